"""Methods, networks and streams of the experiment ``orfit-deep``.

A method is a name, a factory and a grid. The factory accepts a network and settings, and returns a
learner with ``learn(x, y)``, ``after_task()`` and ``nbytes``; its settings are chosen from the grid
on held-out training rows. All learn batches of ``BATCH`` rows, each once.

Optimizers that use task boundaries run in a training loop in which each batch is one step. The rows
of a task are stored until it ends and are then passed to the optimizer again, as the authors of GPM
do; they do not count as memory and are discarded.

Networks are a wide perceptron and a small convolutional one. Weights and biases are uniform in
±1/√(inputs of a unit), as in PyTorch's own layers, with a separate seed; no global generator is
used. Streams consist of images at half the height and width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from onepass.errors import NumericalError, import_extra
from onepass.stream import (
    Experiences,
    Images,
    permuted_mnist,
    rotated_mnist,
    rotation_angles,
    split_mnist,
)
from onepass.types import Array
from onepass_experiments.orfit_deep_outcome import Measure

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from onepass.nn.optim import GPM, OrthogonalGradient


class Loop:
    """Adapter from a module and an optimizer with ``after_task(loader)`` to a learner.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place.
    optimizer : torch.optim.Optimizer
        Such as ``op.nn.optim.GPM``.
    loss : {"cross_entropy", "squared"}
        Loss: cross entropy, or half the squared error.

    Raises
    ------
    NumericalError
        In ``learn`` and ``after_task``, if training has diverged.
    """

    def __init__(self, module: Module, optimizer: GPM | OrthogonalGradient, loss: str) -> None:
        self._torch = import_extra("torch", extra="torch")
        self.module, self.optimizer, self.loss = module, optimizer, loss
        self._task: list[tuple[Tensor, Tensor]] = []

    def learn(self, x: Tensor, y: Tensor) -> Self:
        """Take one step on a batch."""
        functional = self._torch.nn.functional
        self.optimizer.zero_grad()
        outputs = self.module(x)
        if self.loss == "cross_entropy":
            loss = functional.cross_entropy(outputs, y)
        else:
            loss = 0.5 * functional.mse_loss(outputs, y, reduction="sum") / len(x)
        self._check_finite([loss])
        loss.backward()
        self.optimizer.step()
        self._task.append((x, y))
        return self

    def after_task(self) -> Self:
        """End the task: pass its rows to the optimizer, then discard them."""
        self._check_finite(self.module.parameters())
        self.optimizer.after_task(self._task)
        self._task = []
        return self

    def _check_finite(self, tensors: Iterable[Tensor]) -> None:
        """Raise if training has diverged."""
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise NumericalError(
                "loss and weights must be finite, got nan or infinity. Lower the step size.",
                "orfit_deep",
            )

    @property
    def nbytes(self) -> int:
        """Size of the optimizer's state in bytes."""
        return int(self.optimizer.nbytes)


BATCH = 10  # rows per step, as in the GPM paper
TargetKind: TypeAlias = Literal["classes", "angles"]
"""Kind of target: one of ten classes, or a number."""

Grid: TypeAlias = Mapping[str, Sequence[object]]
"""Name of a setting -> candidate values."""


@dataclass(frozen=True)
class Method:
    """A method to learn a stream.

    Parameters
    ----------
    name : str
        Name in tables.
    make : callable
        Called as ``make(module, task, seed, **settings)``.
    classes, angles : Grid
        Candidate settings for each kind of target.
    at_the_end : bool
        Whether it learns only after the last task.
    """

    name: str
    make: Callable[..., Any]
    classes: Grid
    angles: Grid
    at_the_end: bool = False

    def grid(self, task: TargetKind) -> Grid:
        """Return the candidate settings."""
        return self.classes if task == "classes" else self.angles


def _baseline(name: str) -> Callable[..., Any]:
    """Return a factory of a baseline with the loss for the kind of target."""

    def make(module: Module, task: TargetKind, seed: int, **settings: object) -> Any:
        loss = "cross_entropy" if task == "classes" else "squared"
        seeded = {} if name == "SGD" else {"seed": seed}
        made = getattr(import_module("onepass_experiments.baselines"), name)
        return made(module, loss=loss, **seeded, **settings)

    return make


def _network(name: str, **fixed: object) -> Callable[..., Any]:
    """Return a factory of a learner of op.nn, which learns a batch row by row."""

    def make(module: Module, task: TargetKind, seed: int, **settings: object) -> Any:
        del seed  # no random choices
        given = {**fixed, **settings}
        if task == "angles":
            given["loss"] = "squared"
        return getattr(import_module("onepass.nn"), name)(module, **given)

    return make


def _gpm(
    module: Module, task: TargetKind, seed: int, *, step_size: float, **settings: object
) -> Loop:
    """Return SGD wrapped in GPM."""
    sgd = import_module("torch.optim").SGD(module.parameters(), lr=step_size)
    gpm = import_module("onepass.nn.optim").GPM(sgd, module, seed=seed, **settings)
    return Loop(module, gpm, "cross_entropy" if task == "classes" else "squared")


_STEPS = {"step_size": (0.01, 0.03, 0.1, 0.3, 1.0)}
_SMALL = {"step_size": (0.0001, 0.0003, 0.001, 0.003, 0.01)}

_NOISE = {"noise": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)}
_PRIORS = {"prior": (0.001, 0.01, 0.1)}

_ALL = (
    Method("SGD", _baseline("SGD"), _STEPS, _SMALL),
    Method(
        "EWC",
        _baseline("EWC"),
        {"step_size": (0.01, 0.03, 0.1), "penalty": (1.0, 10.0, 100.0, 1000.0)},
        {"step_size": (0.0003, 0.001, 0.003), "penalty": (1.0, 10.0, 100.0)},
    ),
    Method(
        "Replay-100",
        _baseline("Replay"),
        {**_STEPS, "capacity": (100,)},
        {**_SMALL, "capacity": (100,)},
    ),
    Method(
        "Replay-500",
        _baseline("Replay"),
        {**_STEPS, "capacity": (500,)},
        {**_SMALL, "capacity": (500,)},
    ),
    Method("One-step SGD", _network("OneStepSGD", loss="one_hot"), {}, {}),
    *(Method(f"ORFit-{m}", _network("ORFit", memory=m, loss="one_hot"), {}, {}) for m in (10, 100)),
    Method(
        "ORFit-100 noisy",
        _network("ORFit", memory=100, loss="one_hot"),
        _NOISE,
        _NOISE,
    ),
    Method(
        "OGD",
        _network("OGD", memory=None, batch=BATCH, per_task=100, loss="cross_entropy"),
        _STEPS,
        {"step_size": (0.001, 0.003, 0.01, 0.03, 0.1)},
    ),
    Method(
        "GPM",
        _gpm,
        {"step_size": (0.1, 0.3, 1.0), "threshold": (0.8, 0.9, 0.95)},
        {"step_size": (0.003, 0.01, 0.03, 0.1), "threshold": (0.8, 0.9, 0.95)},
    ),
    Method(
        "LO-FI-10",
        _network("LoFi", memory=10, loss="cross_entropy"),
        _PRIORS,
        {**_PRIORS, "noise": (0.1, 1.0)},
    ),
    Method(
        "Joint",
        _baseline("Joint"),
        {"step_size": (0.01, 0.03, 0.1), "momentum": (0.9,), "epochs": (10,), "batch": (32,)},
        {"step_size": (0.0001, 0.0003, 0.001), "momentum": (0.9,), "epochs": (20,), "batch": (32,)},
        at_the_end=True,
    ),
)

METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""All methods by name, in the order of the tables."""

_PIXELS, _WIDTH = 14 * 14, 256


def network(name: str, c: int, seed: list[int]) -> Module:
    """Return a network for images of 14 × 14 pixels.

    Parameters
    ----------
    name : str
        One of ``NETWORKS``.
    c : int
        Number of outputs.
    seed : list of int
        Seed of the initial weights.

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
    torch = import_extra("torch", extra="torch")
    with torch.device("meta"):  # no storage, so construction uses no random numbers
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


def _mlp(nn: ModuleType, c: int) -> Module:
    """Return a perceptron with 196, 256 and c units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_PIXELS, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, c))


def _conv(nn: ModuleType, c: int) -> Module:
    """Return convolutions with 16 and 32 filters of 3 × 3 at stride 2, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, c),
    )


NETWORKS: dict[str, Callable[[ModuleType, int], Any]] = {"mlp": _mlp, "conv": _conv}
"""Name on the command line -> factory, called with ``torch.nn`` and the number of outputs."""


def _angles(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(100, scale)
    return rotation_angles(
        images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True
    )


def _split(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(80, scale)
    return split_mnist(images, rows_per_class=n, test_rows_per_class=100, seed=seed, as_images=True)


def _rotated(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(50, scale)
    return rotated_mnist(images, rows_per_task=n, test_rows_per_task=100, seed=seed, as_images=True)


def _permuted(images: Images, scale: float, seed: int) -> Experiences:
    n = _rows(80, scale)
    return permuted_mnist(
        images, rows_per_task=n, test_rows_per_task=150, seed=seed, as_images=True
    )


def _rows(n: int, scale: float) -> int:
    return max(2, round(n * scale))


@dataclass(frozen=True)
class Stream:
    """A stream of tasks.

    Parameters
    ----------
    title : str
        Title in tables and figures.
    make : callable
        Called as ``make(images, scale, seed)``.
    measure : {"accuracy", "error"}
        Score of the stream.
    """

    title: str
    make: Callable[[Images, float, int], Experiences]
    measure: Measure = "accuracy"


STREAMS: dict[str, Stream] = {
    "angles": Stream("Rotation angles", _angles, "error"),
    "split": Stream("Split MNIST", _split),
    "rotated": Stream("Rotated MNIST", _rotated),
    "permuted": Stream("Permuted MNIST", _permuted),
}
"""Streams by name, in the order of the tables."""


def halved(images: Images) -> Images:
    """Return the images at half the height and width: each pixel is the mean of four.

    Networks for these images have a fifth of the weights.

    Parameters
    ----------
    images : Images
        Images of even height and width.

    Returns
    -------
    images : Images

    Examples
    --------
    >>> pictures, labels = np.full((1, 28, 28), 7, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    >>> halved(Images(pictures, labels, pictures, labels)).train_images.sum()
    np.uint64(1372)
    """

    def small(pictures: Array) -> Array:
        n, height, width = pictures.shape
        means = pictures.reshape(n, height // 2, 2, width // 2, 2).mean(axis=(2, 4))
        return np.asarray(np.rint(means), dtype=np.uint8)

    return Images(
        small(images.train_images), images.train_labels,
        small(images.test_images), images.test_labels,
    )  # fmt: skip
