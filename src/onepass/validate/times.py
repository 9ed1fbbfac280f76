"""Times: when rows happened, as numbers or dates that never go back."""

import datetime as dt
import math
import re
from typing import Any

import numpy as np

from onepass.errors import NotFiniteError, ParameterError, ShapeError, TypeMismatchError
from onepass.types import Array, Floats

__all__ = ["duration", "elapsed", "seconds", "times"]

_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_VAGUE = {"", "[Y]", "[M]"}  # lengths of no unit, or of one that is not always as long
_TEXT = re.compile(rf"\s*(\d+\.?\d*(?:e[+-]?\d+)?)\s*({'|'.join(_UNITS)})\s*", re.IGNORECASE)


def duration(value: Any, name: str, where: str) -> float | str:
    """A length of time: a number in the unit of the times, or text such as ``"90min"``.

    Parameters
    ----------
    value : float, str, datetime.timedelta or numpy.timedelta64
        More than nothing.
    name : str
        The parameter, for messages.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it is none.

    Examples
    --------
    >>> duration(dt.timedelta(hours=1.5), "half_life", "Bounded"), seconds("1.5h")
    ('5400s', 5400.0)
    """
    said: float | str | None = None
    if isinstance(value, np.timedelta64):
        vague = value.dtype.str[3:] in _VAGUE
        length = math.nan if vague else float(value / np.timedelta64(1, "s"))
        said = f"{length:.15g}s" if 0.0 < length < math.inf else None
    elif isinstance(value, dt.timedelta):
        said = f"{value.total_seconds():.15g}s" if value > dt.timedelta(0) else None
    elif isinstance(value, str):
        said = value.strip() if 0.0 < seconds(value) < math.inf else None
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        said = float(value) if 0.0 < value < math.inf else None
    if said is None:
        raise ParameterError(
            f"{where}: `{name}` must be a length of time > 0: a number in the unit of `time`, or, "
            f"where `time` holds dates, a timedelta or text in {', '.join(_UNITS)}, such as "
            f"'90min', got {value!r}. Give another `{name}`."
        )
    return said


def seconds(text: str) -> float:
    """The seconds of a duration that is text."""
    found = _TEXT.fullmatch(text)
    return math.nan if found is None else float(found[1]) * _UNITS[found[2].lower()]


def times(time: Any, n: int, where: str, *, dates: bool, last: Any) -> Array:
    """Times of n rows: shape (n,), of numbers, or of dates in microseconds, in order.

    Parameters
    ----------
    time : array-like of shape (n,), or one time where n is 1
    n : int
        How many rows there are.
    where : str
        The public call, for messages.
    dates : bool
        Whether they must be dates; else numbers.
    last : float, int or datetime64, optional
        The time of the row before.

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError, ParameterError
        If it is not one time a row, of this kind, each as late as that before it or later.
    """
    array = _dates(time, where) if dates else _numbers(time, where)
    if array.ndim == 0 and n == 1:
        array = array[None]
    if array.shape != (n,):
        raise ShapeError(
            f"{where}: `time` must have shape ({n},), one time for each row, got {array.shape}. "
            "Check that X and time come from the same rows."
        )
    if np.ma.is_masked(time):
        nothing = np.datetime64("NaT") if dates else np.nan
        array = np.where(np.ma.getmaskarray(time), nothing, array)
    missing = np.isnat(array) if dates else ~np.isfinite(array)
    if missing.any():
        raise NotFiniteError(
            f"{where}: `time` must say when each row happened, got {array[missing][0]} in row "
            f"{int(np.argmax(missing))}. Drop the row, or fill in its time."
        )
    known = array if last is None else np.concatenate(([last], array))
    back = np.flatnonzero(known[1:] < known[:-1])
    if len(back):
        i = int(back[0])
        row = i + len(array) - len(known) + 1
        raise ParameterError(
            f"{where}: `time` must never go back, {known[i]} before, got {known[i + 1]} in row "
            f"{row}. Sort the rows by time; rows of one moment may have equal times."
        )
    return array


def elapsed(time: Array, last: Any) -> Floats:
    """What passed before each row since the row before, (n,): numbers, or seconds of dates."""
    known = np.concatenate(([time[0] if last is None else last], time))
    gaps = np.diff(known)
    if gaps.dtype.kind == "m":
        gaps = gaps / np.timedelta64(1, "s")
    gaps = gaps.astype(np.float64)
    return np.where(gaps < 0.0, np.inf, gaps)  # more than 64 bits can hold: time never goes back


def _numbers(time: Any, where: str) -> Array:
    array = np.asarray(time)
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            array = np.asarray(time)
    if array.dtype.kind not in "iuf":
        raise _wrong(where, "numbers, as the rule of forgetting is given in numbers", array)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64, copy=False)


def _dates(time: Any, where: str) -> Array:
    array = np.asarray(time)
    if array.dtype.kind == "O":
        try:
            array = np.array([_plain(moment) for moment in array.flat], dtype="datetime64[us]")
            array = array.reshape(np.shape(time))
        except (TypeError, ValueError):
            array = np.asarray(time)
    if array.dtype.kind != "M":
        raise _wrong(where, "dates, as the rule of forgetting is given as a duration", array)
    return array.astype("datetime64[us]")


def _plain(moment: Any) -> Any:
    """A date without its zone, in UTC."""
    if moment is None or moment != moment:  # noqa: PLR0124  NaT of any library
        return np.datetime64("NaT")
    if isinstance(moment, np.datetime64):
        return moment
    if not isinstance(moment, dt.date):
        raise TypeError
    if isinstance(moment, dt.datetime) and moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return np.datetime64(moment, "us")


def _wrong(where: str, expected: str, array: Array) -> TypeMismatchError:
    came = array.dtype if array.dtype.kind != "O" else f"values such as {array.flat[0]!r}"
    return TypeMismatchError(
        f"{where}: `time` must hold {expected}, got {came}. Give times of that kind, or another "
        "rule, such as half_life=60.0 for numbers and half_life='1min' for dates."
    )
