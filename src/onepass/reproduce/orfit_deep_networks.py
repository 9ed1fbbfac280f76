"""Networks of the experiment ``orfit-deep``: a wide perceptron and a small convolutional one.

Weights and biases are uniform in ±1/√(inputs of a unit), as PyTorch begins its own layers, from a
seed of their own; no global generator is touched.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from onepass.errors import need

__all__ = ["NETWORKS", "network"]

_WHERE = "orfit_deep"
_PIXELS, _WIDTH = 14 * 14, 256


def network(name: str, c: int, seed: list[int]) -> Any:
    """A network for pictures of 14 × 14 pixels.

    Parameters
    ----------
    name : str
        One of ``NETWORKS``.
    c : int
        Outputs.
    seed : list of int
        Where its weights begin.

    Returns
    -------
    torch.nn.Module
        Takes float32 tensors of shape (n, 1, 14, 14).

    Raises
    ------
    MissingExtraError
        If torch is not installed.

    Examples
    --------
    >>> sum(w.numel() for w in network("mlp", 10, [0]).parameters())
    53002
    """
    torch = need("torch", extra="torch", where=_WHERE)
    with torch.device("meta"):  # layers of no content: making them draws nothing
        module = NETWORKS[name](torch.nn, c)
    module.to_empty(device="cpu")
    words = np.random.SeedSequence(seed).generate_state(1)
    generator = torch.Generator().manual_seed(int(words[0]))
    with torch.no_grad():
        for layer in module.modules():
            if hasattr(layer, "weight"):
                reach = layer.weight[0].numel() ** -0.5
                for part in (layer.weight, layer.bias):
                    part.uniform_(-reach, reach, generator=generator)
    return module


def _mlp(nn: Any, c: int) -> Any:
    """196–256–c."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_PIXELS, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, c))


def _conv(nn: Any, c: int) -> Any:
    """16 and 32 filters of 3 × 3 at stride 2, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, c),
    )


NETWORKS: dict[str, Callable[[Any, int], Any]] = {"mlp": _mlp, "conv": _conv}
"""Name on the command line -> what makes its layers of torch.nn and the number of outputs."""
