"""Telling: what a learner of networks tells of itself: how sure it is, how far answers have moved.

With P the covariance of the weights that a learner knows, and g the gradient of an output,

    std = √(gᵀ P g)                                                                         (1)

is how far the output is unknown because the weights are: that of the linearised network. The noise
of an answer is not in it: an answer lies within √(std² + noise) of what is said.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

from onepass import linalg
from onepass.errors import (
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TaskWarning,
)
from onepass.memory.certificate import ForgettingBound
from onepass.nn.mode import plainly
from onepass.nn.numbers import numbers

__all__ = [
    "deviations",
    "drift",
    "explained",
    "filled",
    "refuse_nameless",
    "refuse_verb",
    "representation",
    "tags",
    "warn_of_no_tasks",
]

_VERBS = {
    "learn_one": "use learn(X[k:k+1], y[k:k+1])",
    "predict_one": "use predict(X[k:k+1])[0]",
    "partial_fit": "use learn(X, y), which goes on from what was learned before",
    "fit": "use learn(X, y) of a new learner around a new module",
    "predict_proba": (
        "use outputs(X).softmax(1), which are probabilities with loss='cross_entropy'; of numbers "
        "predict(X, return_std=True) says how sure it is"
    ),
}
_AT_ONCE = 1 << 22  # numbers of a Jacobian that are made at once for standard deviations


def deviations(learner: Any, x: Any, variances: Callable[[Any], Any]) -> tuple[Any, Any]:
    """What a learner's module says of rows, and (1).

    Parameters
    ----------
    learner : learner of op.nn
    x : rows, as the module takes them
    variances : callable
        gᵀ P g of each column of G (p, n·c), (n·c,).

    Returns
    -------
    said, std : Tensors of shape (n, c)

    Raises
    ------
    ParameterError
        If it learns classes.
    """
    where, net = f"op.nn.{type(learner).__name__}.predict", learner.network
    if learner.loss != "squared":
        raise ParameterError(
            f"{where}: `return_std` must be False for classes, got True with "
            f"loss={learner.loss!r}. A class has no standard deviation: see `outputs`."
        )
    rows = net.prepare(x, where)
    said = net.outputs(rows)
    n, c = said.shape
    width = max(_AT_ONCE // max(net.p * c, 1), 1)
    std = torch.zeros_like(said)
    for i in range(0, n, width):
        with plainly(net.device, net.p):
            J = linalg.widened(net.jacobian(rows[i : i + width])[1])
            found = torch.as_tensor(variances(J.T), device=std.device).clamp_min(0.0).sqrt()
        std[i : i + width] = found.reshape(-1, c).to(std.dtype)
    return said, std


def refuse_nameless(said: Any, where: str) -> None:
    """Refuse outputs (n, c) that name no class; a device is waited for.

    Parameters
    ----------
    said : Tensor of shape (n, c)
    where : str
        What the user called, for messages.

    Raises
    ------
    NumericalError
        If one is nan, of which there is no largest.
    """
    bad = said.isnan().any(dim=1)
    if bool(bad.any()):
        raise NumericalError(
            f"{where}: outputs must be numbers to name a class, got nan in row "
            f"{int(bad.nonzero()[0])}. Look at that row, and at the module's weights; `outputs` "
            "gives all of them as they are."
        )


def refuse_verb(learner: Any, name: str) -> None:
    """Refuse a verb that other learners have, and say what a network has in its place.

    Parameters
    ----------
    learner : learner of op.nn
    name : str
        Of an attribute that it has not.

    Raises
    ------
    AttributeError
        So that ``hasattr`` says no.
    """
    if name in _VERBS:
        kind = type(learner).__name__
        raise AttributeError(
            f"op.nn.{kind}: the verb must be one of networks, got {name!r}: {_VERBS[name]}.",
            name=name,
            obj=learner,
        )


def drift(learner: Any, x: Any, said: Any) -> float:
    """√(Σ (outputs now − outputs then)²), over all rows.

    Parameters
    ----------
    learner : learner of op.nn
    x : rows, as the module takes them
    said : Tensor or array of shape (n,) or (n, …)
        The outputs then.

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError
        If these are not as many finite numbers as there are outputs.
    """
    where = f"op.nn.{type(learner).__name__}.drift"
    now = learner.network.outputs(learner.network.prepare(x, where)).double()
    remedy = "Give what `outputs` said of these rows just after each was learned."
    then = numbers(said, "said", where, remedy).to(now.device).double()
    if then.ndim < 1 or then.numel() != now.numel() or len(then) != len(now):
        raise ShapeError(
            f"{where}: `said` must hold {now.shape[1]} number(s) for each of {len(now)} rows, got "
            f"shape {tuple(then.shape)}. {remedy}"
        )
    if not bool(then.isfinite().all()):
        raise NotFiniteError(
            f"{where}: `said` must be finite, got nan or infinity. From what was no number nothing "
            "has moved by so much: leave these rows out."
        )
    return float(torch.linalg.vector_norm(now - then.reshape(now.shape)))


def explained(bound: ForgettingBound, *, linear: bool, forgotten: float) -> ForgettingBound:
    """A certificate of forgetting, with what a network's does not tell.

    Parameters
    ----------
    bound : ForgettingBound
    linear : bool
        Whether the module is linear in its weights.
    forgotten : float
        What it says of all steps; infinite if nobody knows.
    """
    if bound.kind == "estimate":
        turns = (
            "it counts what the memory let go, and not that the gradients of a network turn while "
            "it learns: measure both with drift(x, said)"
        )
        return bound if linear else replace(bound, why=turns)
    if math.isinf(forgotten):
        merged = (
            "a merge has moved answers of its parts, and their memories know directions without "
            "their lengths, so that nobody knows by how much; op.memory.Principal(m) and "
            "op.memory.Sketch(m) keep lengths"
        )
        return replace(bound, why=merged)
    return bound


def filled(memory: Any, p: int, remedy: str) -> str | None:
    """What is wrong with a memory that holds all directions, None with another.

    Parameters
    ----------
    memory : state of a memory, or None
    p : int
        Weights.
    remedy : str
        What to do, as a sentence.
    """
    if memory is None or memory.rank < p:
        return None
    return (
        f"the memory should hold fewer directions than there are weights, got all {p}: nothing "
        f"more can be learned. {remedy}"
    )


def warn_of_no_tasks(where: str) -> None:
    """Warn the caller's caller that no task can be over where there are none."""
    warnings.warn(
        f"{where}: `per_task` must be a number of rows for a task to be over, got None: gradients "
        "of each batch have entered the memory at once, and nothing was done. Give per_task=100, "
        "or leave after_task() out.",
        TaskWarning,
        stacklevel=3,
    )


def representation(learner: Any) -> str:
    """A learner in one line: its arguments that are not the defaults, its module, its size.

    Parameters
    ----------
    learner : learner of op.nn
    """
    known = inspect.signature(type(learner)).parameters
    given = [type(learner.module).__name__]
    for name in learner.arguments:
        value = getattr(learner, name)
        if value != known[name].default:
            given.append(f"{name}={value!r}")
    name, p = type(learner).__name__, learner.network.p
    return f"<{name}({', '.join(given)}), p={p}, rows_seen_={learner.rows_seen_}>"


def tags(learner: Any) -> Tags:
    """What scikit-learn asks of an estimator: whether it classifies or regresses.

    Parameters
    ----------
    learner : learner of op.nn
    """
    classes = learner.loss != "squared"
    return Tags(
        estimator_type="classifier" if classes else "regressor",
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags() if classes else None,
        regressor_tags=None if classes else RegressorTags(),
    )
