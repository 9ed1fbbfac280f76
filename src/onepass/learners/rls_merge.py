"""Merging of least-squares learners: the sums over two sets of rows, or the rows of two windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from onepass.errors import MergeError, NumericalError
from onepass.learners.estimator import Layout
from onepass.memory import least_squares
from onepass.memory.least_squares import Positions
from onepass.memory.vector import Slot
from onepass.types import Array, Floats


def merge_learners(learner: Any, other: Any, layout: Layout) -> None:
    """Add the rows of another learner to a learner.

    Parameters
    ----------
    learner, other : least-squares learners
        Both have the same forgetting rule; the first has all outputs of the second.
    layout : Layout
        The positions of the other learner's features and outputs.

    Raises
    ------
    MergeError
        If ridges, priors or times of the two are incompatible.
    NumericalError
        If sums exceed the range of float64.
    """
    who, chosen = f"{type(learner).__name__}.merge", learner._rule()  # noqa: SLF001
    if layout.d > learner.n_features_in_:
        if np.ndim(learner.ridge) == 2:
            raise MergeError(
                "`ridge` must be a number if the second has additional features, got a "
                f"matrix for {learner.n_features_in_} of now {layout.d} features. Pass "
                "a number, or learn the same features in all parts.",
                who,
            )
        learner._widen(layout.d)  # noqa: SLF001
    if chosen.stores_rows:
        _merge_windows(learner, other, layout)
        return
    d = other.n_features_in_
    ridges = learner._penalty(layout.d), other._penalty(d)  # noqa: SLF001
    if isinstance(ridges[0], float) and ridges[0] == 0.0 and np.any(ridges[1]):
        raise MergeError(
            "`ridge` of the second must be 0 as in the first, since its removal may leave weights "
            f"undetermined, got {other.ridge!r}. Learn all parts with the same ridge.",
            who,
        )
    concurrent = layout.concurrent or chosen.clock is not None
    at = Positions(layout.features, layout.outputs, concurrent)
    one, two = learner.state_, other.state_
    if chosen.clock is not None and "time_" not in learner.__dict__:
        learner.time_ = other.time_
    elif chosen.clock is not None:
        if learner.time_ <= other.time_:
            passed = chosen.fades(np.array([other.time_]), learner.time_)
            one = least_squares.faded(one, float(passed[0]))
            learner.time_ = other.time_
        else:
            passed = chosen.fades(np.array([learner.time_]), other.time_)
            two = least_squares.faded(two, float(passed[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        state, finite = least_squares.merged(one, two, at, *ridges)
    if not finite:
        raise NumericalError(
            "the learned state must be small enough to square and sum, got numbers "
            "beyond float64. Use units in which features and targets are nearer to 1.",
            who,
        )
    learner.state_ = state


def _merge_windows(learner: Any, other: Any, layout: Layout) -> None:
    """Learn the rows of another learner's window; for windows of time, in order of time."""
    chosen = learner._rule()  # noqa: SLF001
    if layout.concurrent and chosen.clock is None:
        raise MergeError(
            f"`concurrent` must be False with {chosen}, which stores the last rows of "
            "one stream, got True. Use a window of time, Window(span=...)."
        )
    c, seen = int(learner.state_[Slot.OUTPUTS]), learner.rows_seen_
    X, Y, weights = _aligned(other.state_, layout, c)
    time: Array | None = getattr(other, "times_", None)
    if time is not None and len(getattr(learner, "times_", ())) and time[0] < learner.time_:
        own = least_squares.stored_rows(learner.state_)[:3]
        X, Y, weights = (np.concatenate(pair) for pair in zip(own, (X, Y, weights), strict=True))
        time = np.concatenate((learner.times_, time))
        order = np.argsort(time, kind="stable")
        X, Y, weights, time = X[order], Y[order], weights[order], time[order]
        learner._start(layout.d, c)  # noqa: SLF001
        del learner.time_, learner.times_
    learner._learn(X, Y, weights, None, time)  # noqa: SLF001
    learner.state_[Slot.ROWS] = seen


def _aligned(state: Floats, layout: Layout, c: int) -> tuple[Floats, Floats, Floats]:
    """The rows of a window in the features and outputs of the merged learner."""
    rows, targets, weights, _ = least_squares.stored_rows(state)
    X, Y = np.zeros((len(rows), layout.d)), np.zeros((len(rows), c))
    X[:, layout.features] = rows
    Y[:, layout.outputs] = targets
    return X, Y, weights
