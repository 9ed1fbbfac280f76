"""Moments: when rows come, and when their answers are known, checked."""

from collections.abc import Callable
from typing import Any

import numpy as np

from onepass.errors import Array, NotFiniteError, ParameterError, TypeMismatchError
from onepass.validation import as_dates, as_numbers
from onepass.validation.table import is_missing

__all__ = ["dues", "moments"]


def moments(time: Array | None, last: Any, located: Callable[[int], str], where: str) -> Array:
    """The moments at which rows come: numbers or dates that never fall.

    Parameters
    ----------
    time : ndarray of shape (n,), or None
        The stream's times.
    last : object
        The moment of the row before, or None.
    located : callable
        Says where a row stands in the source, by its place in the block.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If there are no times, or they fall.
    NotFiniteError, TypeMismatchError
        If one is missing, or they are neither numbers nor dates.
    """
    if time is None:
        raise ParameterError(
            f"{where}: `delay_until` needs a stream that says when each row comes, got none. "
            "Name the column of times: op.stream.read(source, time=...), or --time."
        )
    at = _checked(np.asarray(time), "the column of times", located, where)
    before = at[:1] if last is None else np.asarray([last])
    if (before.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"{where}: times must be of one kind, got {at.dtype} after {before.dtype}, from "
            f"{located(0)} on. Convert them."
        )
    fallen = np.flatnonzero(at < np.concatenate([before, at[:-1]]))
    if len(fallen):
        i = int(fallen[0])
        raise ParameterError(
            f"{where}: with `delay_until` the times of rows must not fall, got {at[i]} in "
            f"{located(i)}, after {before[0] if i == 0 else at[i - 1]}. Sort the rows by "
            "time; if local clocks went back here, give dates in UTC or with their time zone."
        )
    return at


def dues(column: Array, name: str, at: Array, located: Callable[[int], str], where: str) -> Array:
    """When answers are known; an answer known before its row came is known as it comes.

    Parameters
    ----------
    column : ndarray of shape (n,)
        The column that says so.
    name : str
        Its name.
    at : ndarray of shape (n,)
        The moments at which the rows come.
    located : callable
        Says where a row stands in the source, by its place in the block.
    where : str
        The public call, for messages.

    Raises
    ------
    NotFiniteError, TypeMismatchError
        If one is missing, or they are not of the kind of the moments.
    """
    due = _checked(np.asarray(column), f"column {name!r}", located, where)
    if (due.dtype.kind == "M") != (at.dtype.kind == "M"):
        raise TypeMismatchError(
            f"{where}: column {name!r} must be of the kind of the stream's times, {at.dtype}, got "
            f"{due.dtype}. Convert one of them."
        )
    return np.maximum(due, at)


def _checked(values: Array, what: str, located: Callable[[int], str], where: str) -> Array:
    """Numbers or dates in full precision, none missing."""
    if values.dtype.kind in "iuf":
        values = as_numbers(values, where)
    elif values.dtype.kind == "M":
        values = as_dates(values, where)
    else:
        raise TypeMismatchError(
            f"{where}: {what} must hold numbers or dates, to say when a row comes or is answered, "
            f"got {values.dtype}. Convert it, or give its kind by `types` (--type NAME=date)."
        )
    missing = np.flatnonzero(is_missing(values))
    if len(missing):
        raise NotFiniteError(
            f"{where}: {what} must say of every row when it comes or is answered, got none in "
            f"{located(int(missing[0]))}. Fill it in, or drop the row."
        )
    return values
