"""Asking: how a model is asked about rows and taught them, whoever made it."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from onepass import linalg
from onepass.errors import Array, NotFittedError, OnepassError
from onepass.evaluate.refusal import placed
from onepass.evaluate.waiting import Turns

__all__ = ["said_of", "said_of_rest", "said_of_turns"]

_MOST = 4096  # rows a call: what has waited may come all at once


def said_of(model: Any, X: Any, y: Array, time: Array | None, weight: Any = None) -> Array:
    """What a model says of rows, each just before it learns it.

    Parameters
    ----------
    model : learner
        It is given what it asks for: times if it has ``uses_time``.
    X : Table or ndarray of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or (n, c)
        Their answers.
    time : ndarray of shape (n,), or None
        When each row comes.
    weight : ndarray of shape (n,), optional
        Of each row.
    """
    given = {} if weight is None else {"sample_weight": weight}
    if time is not None and getattr(model, "uses_time", False):
        given["time"] = time
    said = _array(model.test_then_train(X, y, **given))
    # what a compiled loop holds is read out after each block, whether somebody looks at it or not:
    # a run that is resumed from a file is to be the unbroken run to the last bit
    getattr(model, "__dict__", None)
    return said


def said_of_turns(model: Any, turns: Turns) -> Array:
    """What a model says of the rows it is asked about, while it learns others in between.

    Parameters
    ----------
    model : learner
        One that takes weights goes through all turns as through a block, others row by row.
    turns : Turns
        At least one of them asks.
    """
    parts = [slice(a, a + _MOST) for a in range(0, len(turns.learned), _MOST)]
    taken = inspect.signature(model.test_then_train).parameters
    by_weight = "sample_weight" in taken
    said = [(_by_weight if by_weight else _in_turn)(model, turns, part) for part in parts]
    return np.concatenate([some for some in said if len(some)])


def said_of_rest(model: Any, rest: Turns) -> Array:
    """What a model says of rows that have waited, each just before it learns it.

    Parameters
    ----------
    model : learner
        It learns all of them.
    rest : Turns
        At least one row.
    """
    parts = [slice(a, a + _MOST) for a in range(0, len(rest.learned), _MOST)]
    times = [None if rest.time is None else rest.time[part] for part in parts]
    said = [
        said_of(model, rest.X[part], rest.y[part], time)
        for part, time in zip(parts, times, strict=True)
    ]
    return np.concatenate(said)


def _by_weight(model: Any, turns: Turns, part: slice) -> Array:
    """Rows of weight 0 are answered and not learned."""
    learned, time = turns.learned[part], None if turns.time is None else turns.time[part]
    with _placing(turns, part):
        said = said_of(model, turns.X[part], turns.y[part], time, learned.astype(np.float64))
    return said.reshape(turns.y[part].shape)[~learned]


def _in_turn(model: Any, turns: Turns, part: slice) -> Array:
    """Runs of rows that are learned, and runs of rows that are asked about."""
    learned = turns.learned[part]
    ends = [*(np.flatnonzero(np.diff(learned)) + 1).tolist(), len(learned)]
    said, a = [turns.y[:0]], 0
    for b in ends:
        run = slice(part.start + a, part.start + b)
        with _placing(turns, run):
            if learned[a]:
                time = None if turns.time is None else turns.time[run]
                said_of(model, turns.X[run], turns.y[run], time)
            else:
                said.append(_answers(model, turns.X[run]).reshape(turns.y[run].shape))
        a = b
    return np.concatenate(said[1:] or said)


@contextmanager
def _placing(turns: Turns, run: slice) -> Iterator[None]:
    """A model counts the turns that it was given: say where the row stands in the source."""
    try:
        yield
    except OnepassError as error:
        located = turns.located
        if located is None:
            raise
        raise placed(error, lambda i: located(run.start + i), run.stop - run.start) from error


def _answers(model: Any, X: Any) -> Array:
    """What a model says of rows that it will not learn yet."""
    try:
        return _array(model.predict(X))
    except NotFittedError:
        rows = X.rows() if hasattr(X, "rows") else X
        return np.asarray([model.predict_one(x) for x in rows])


def _array(said: Any) -> Array:
    """Answers as an array, also those that a network gave on a device."""
    return np.asarray(linalg.widened(said).cpu() if hasattr(said, "cpu") else said)
