"""Methods, networks and streams of the experiment ``orfit-deep``.

A method is a name, a factory and a grid. The factory gets a network and settings, and returns a
learner with ``learn(x, y)``, ``after_task()`` and ``nbytes``; its settings are chosen from the grid
on held-out training rows. All learn batches of ``BATCH`` rows, each once.

Optimizers that use task boundaries run in a training loop in which each batch is one step. The rows
of a task are held until it ends and then shown to the optimizer again, as the authors of GPM do;
they do not count as memory, and are dropped.

Networks are a wide perceptron and a small convolutional one. Weights and biases are uniform in
±1/√(inputs of a unit), as PyTorch initialises its own layers, from a seed of their own; no global
generator is touched. Streams are of images at half the height and width.
"""

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

__all__ = [
    "BATCH",
    "METHODS",
    "NETWORKS",
    "STREAMS",
    "Loop",
    "Method",
    "Stream",
    "Task",
    "halved",
    "network",
]


class Loop:
    """A module and an optimizer with ``after_task(loader)``, as a learner with the usual verbs.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place.
    optimizer : torch.optim.Optimizer
        Such as ``op.nn.optim.GPM``.
    loss : {"cross_entropy", "squared"}
        What is lowered; half the squared error.

    Raises
    ------
    NumericalError
        By ``learn`` and ``after_task``, where training has diverged.
    """

    def __init__(self, module: "Module", optimizer: "GPM | OrthogonalGradient", loss: str) -> None:
        self._torch = import_extra("torch", extra="torch", where="orfit_deep")
        self.module, self.optimizer, self.loss = module, optimizer, loss
        self._task: list[tuple[Tensor, Tensor]] = []

    def learn(self, x: "Tensor", y: "Tensor") -> Self:
        """One step on a batch."""
        functional = self._torch.nn.functional
        self.optimizer.zero_grad()
        said = self.module(x)
        if self.loss == "cross_entropy":
            loss = functional.cross_entropy(said, y)
        else:
            loss = 0.5 * functional.mse_loss(said, y, reduction="sum") / len(x)
        self._hold([loss])
        loss.backward()
        self.optimizer.step()
        self._task.append((x, y))
        return self

    def after_task(self) -> Self:
        """Let the optimizer hold on to what the task needs."""
        self._hold(self.module.parameters())
        self.optimizer.after_task(self._task)
        self._task = []
        return self

    def _hold(self, tensors: "Iterable[Tensor]") -> None:
        """Stop where training has diverged."""
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise NumericalError(
                "orfit_deep: loss and weights must be finite, got some that are not. Lower the "
                "step size."
            )

    @property
    def nbytes(self) -> int:
        """Bytes that the optimizer keeps."""
        return int(self.optimizer.nbytes)


BATCH = 10  # rows a step, as GPM's authors had it
Task: TypeAlias = Literal["classes", "angles"]
"""What is to be said: one of ten classes, or a number."""

Grid: TypeAlias = Mapping[str, Sequence[object]]
"""Names of settings and the values they may have."""


@dataclass(frozen=True)
class Method:
    """One way to learn a stream.

    Parameters
    ----------
    name : str
        In tables.
    make : callable
        Called as ``make(module, task, seed, **settings)``.
    classes, angles : Grid
        What settings are chosen from, by what is to be said.
    at_the_end : bool
        Whether it learns when all tasks are over.
    """

    name: str
    make: Callable[..., Any]
    classes: Grid
    angles: Grid
    at_the_end: bool = False

    def grid(self, task: Task) -> Grid:
        """What settings are chosen from."""
        return self.classes if task == "classes" else self.angles


def _baseline(name: str) -> Callable[..., Any]:
    """A maker of a baseline, by its loss for what is to be said."""

    def make(module: "Module", task: Task, seed: int, **settings: object) -> Any:
        loss = "cross_entropy" if task == "classes" else "squared"
        seeded = {} if name == "SGD" else {"seed": seed}
        made = getattr(import_module("onepass_experiments.baselines"), name)
        return made(module, loss=loss, **seeded, **settings)

    return make


def _network(name: str, **fixed: object) -> Callable[..., Any]:
    """A maker of a learner of op.nn, which takes the rows of a batch one by one."""

    def make(module: "Module", task: Task, seed: int, **settings: object) -> Any:
        del seed  # it draws nothing
        given = {**fixed, **settings}
        if task == "angles":
            given["loss"] = "squared"
        return getattr(import_module("onepass.nn"), name)(module, **given)

    return make


def _gpm(module: "Module", task: Task, seed: int, *, step_size: float, **settings: object) -> Loop:
    """Plain SGD within GPM."""
    plain = import_module("torch.optim").SGD(module.parameters(), lr=step_size)
    held = import_module("onepass.nn.optim").GPM(plain, module, seed=seed, **settings)
    return Loop(module, held, "cross_entropy" if task == "classes" else "squared")


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
"""All methods by name, in the order of tables."""

_WHERE = "orfit_deep"
_PIXELS, _WIDTH = 14 * 14, 256


def network(name: str, c: int, seed: list[int]) -> "Module":
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
    torch = import_extra("torch", extra="torch", where=_WHERE)
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


def _mlp(nn: ModuleType, c: int) -> "Module":
    """196–256–c."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_PIXELS, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, c))


def _conv(nn: ModuleType, c: int) -> "Module":
    """16 and 32 filters of 3 × 3 at stride 2, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, c),
    )


NETWORKS: dict[str, Callable[[ModuleType, int], Any]] = {"mlp": _mlp, "conv": _conv}
"""Name on the command line -> what makes its layers of torch.nn and the number of outputs."""


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
        In tables and figures.
    make : callable
        Called as ``make(images, scale, seed)``.
    measure : {"accuracy", "error"}
        What is told of it.
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
"""The streams by name, in the order of tables."""


def halved(images: Images) -> Images:
    """The same pictures at half the height and width: each pixel the mean of four.

    Networks for them have a fifth of the weights.

    Parameters
    ----------
    images : Images
        Of an even height and width.

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
