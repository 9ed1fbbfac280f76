"""ResNet-18 for images of 32 × 32 with one output: 11.2 million weights, in plain torch.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016; with
their first layer for small images: 3 × 3, without pooling.
"""

from typing import Any

from torch import nn

WIDTHS = (64, 128, 256, 512)


def normal(norm: str, width: int) -> Any:
    """Return batch normalisation, used with running statistics, or group normalisation."""
    return nn.BatchNorm2d(width) if norm == "batch" else nn.GroupNorm(32, width)


def convolution(before: int, after: int, size: int, stride: int) -> Any:
    """Return a convolution without bias that preserves the size except for the stride."""
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, before: int, after: int, stride: int, norm: str) -> None:
        super().__init__()
        self.through = nn.Sequential(
            convolution(before, after, 3, stride),
            normal(norm, after),
            nn.ReLU(),
            convolution(after, after, 3, 1),
            normal(norm, after),
        )
        same = before == after and stride == 1
        self.around: Any = (
            nn.Identity()
            if same
            else nn.Sequential(convolution(before, after, 1, stride), normal(norm, after))
        )

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.through(x) + self.around(x))


def resnet18(norm: str, outputs: int = 1) -> Any:
    """Return the network; ``norm`` is ``"batch"`` or ``"group"``."""
    layers: list[Any] = [convolution(3, WIDTHS[0], 3, 1), normal(norm, WIDTHS[0]), nn.ReLU()]
    before = WIDTHS[0]
    for width in WIDTHS:
        layers += [Block(before, width, 2 if width > before else 1, norm)]
        layers += [Block(width, width, 1, norm)]
        before = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs)]
    return nn.Sequential(*layers, *head).eval()
