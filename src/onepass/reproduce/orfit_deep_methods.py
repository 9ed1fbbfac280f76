"""Methods of the experiment ``orfit-deep``: how each is made for a network, and how it is told.

A method is a name, a maker and a grid. The maker gets a network and settings, and gives a learner
with the verbs ``learn(x, y)``, ``after_task()`` and ``nbytes``; the grid is what its settings are
chosen from, on rows held out of those to learn. All learn batches of ``BATCH`` rows, each once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from onepass.reproduce.orfit_deep_loop import Loop

__all__ = ["BATCH", "METHODS", "Method", "Task"]

BATCH = 10  # rows a step, as GPM's authors had it
Task: TypeAlias = Literal["classes", "angles"]
"""What is to be said: one of ten classes, or a number."""

Grid: TypeAlias = Mapping[str, Sequence[Any]]
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

    def make(module: Any, task: Task, seed: int, **settings: Any) -> Any:
        loss = "cross_entropy" if task == "classes" else "squared"
        seeded = {} if name == "SGD" else {"seed": seed}
        made = getattr(import_module("onepass.baselines"), name)
        return made(module, loss=loss, **seeded, **settings)

    return make


def _network(name: str, **fixed: Any) -> Callable[..., Any]:
    """A maker of a learner of op.nn, which takes the rows of a batch one by one."""

    def make(module: Any, task: Task, seed: int, **settings: Any) -> Any:
        del seed  # it draws nothing
        given = {**fixed, **settings}
        if task == "angles":
            given["loss"] = "squared"
        return getattr(import_module("onepass.nn"), name)(module, **given)

    return make


def _gpm(module: Any, task: Task, seed: int, *, step_size: float, **settings: Any) -> Any:
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
