"""Times: when rows happened, as numbers or dates that never go back."""

import datetime as dt
import math
import re
from contextlib import suppress
from typing import Any

import numpy as np

from onepass.errors import NotFiniteError, ParameterError, ShapeError, TypeMismatchError
from onepass.types import Array, Floats, TimeLike
from onepass.validation.table import dates_from, dates_of, is_date, zoned

__all__ = [
    "as_dates",
    "as_numbers",
    "aware",
    "duration",
    "elapsed",
    "per_second",
    "seconds",
    "times",
]

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
_MOST = 2.0**63
_TEXT = re.compile(rf"\s*(\d+\.?\d*(?:e[+-]?\d+)?)\s*({'|'.join(_UNITS)})\s*", re.IGNORECASE)


def duration(value: object, name: str, where: str) -> float | str:
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


def times(
    time: Any, n: int, where: str, *, dates: bool, last: float | np.datetime64 | None
) -> Array:
    """Times of n rows in order, shape (n,): int64, float64, datetime64[us] or datetime64[ns].

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
    array = _dates(time, where) if dates else as_numbers(time, where)
    if array.dtype.kind not in ("M" if dates else "if"):
        kind, rule = ("dates", "as a duration") if dates else ("numbers", "in numbers")
        came = array.dtype if array.dtype.kind != "O" else f"values such as {array.flat[0]!r}"
        raise TypeMismatchError(
            f"{where}: `time` must hold {kind}, as the rule of forgetting is given {rule}, got "
            f"{came}. Give times of that kind, or another rule, such as half_life=60.0 for numbers "
            "and half_life='1min' for dates."
        )
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
    nothing = np.iinfo(np.int64).min  # NaT as an integer
    missing = np.isnat(array) if dates else ~np.isfinite(array) | (array == nothing)
    if missing.any():
        raise NotFiniteError(
            f"{where}: `time` must say when each row happened, got {array[missing][0]} in row "
            f"{int(np.argmax(missing))}. Drop the row, or fill in its time."
        )
    early = n and last is not None and _exact(array[0]) < _exact(last)
    back = np.flatnonzero(array[1:] < array[:-1])
    if not early and not len(back):
        return array
    i = 0 if early else int(back[0]) + 1
    clock = " If local clocks went back here, give dates in UTC or with their time zone."
    raise ParameterError(
        f"{where}: `time` must never go back, {array[i - 1] if i else last} before, got {array[i]} "
        f"in row {i}. Sort the rows by time; rows of one moment may have equal times."
        f"{clock if dates else ''}"
    )


def elapsed(time: Array, last: float | np.datetime64 | None) -> Floats:
    """What passed before each row since the row before, (n,): numbers, or seconds of dates.

    Whole numbers and dates are subtracted as integers and rounded once.
    """
    gaps, dates = np.zeros(len(time)), time.dtype.kind == "M"
    if last is not None:
        a, b = _exact(last), _exact(time[0])
        gaps[0] = (b - a) / 10**9 if dates else b - a
    if time.dtype.kind == "f":
        with np.errstate(over="ignore"):
            gaps[1:] = np.diff(time)
    else:  # differences of times in order are below 2**64
        gaps[1:] = np.diff(time.view(np.int64).view(np.uint64)) / (per_second(time) if dates else 1)
    return gaps


def per_second(time: Array) -> int:
    """Units a second of an array of dates from ``times``."""
    return 10**6 if np.datetime_data(time.dtype)[0] == "us" else 10**9


def aware(time: TimeLike) -> bool | None:
    """Whether datetimes have time zones; None for other kinds of times."""
    array = np.asarray(time)
    return next(iter(zoned(array.flat if array.dtype.kind == "O" else ())), None)


def _exact(time: float | np.datetime64) -> Any:
    """A time as a Python number: a date as its nanoseconds since 1970."""
    if not isinstance(time, np.datetime64):
        return time.item() if isinstance(time, np.generic) else time
    return int(time.astype(np.int64)) * (10**9 // per_second(np.asarray(time)))


def as_numbers(time: TimeLike, where: str) -> Array:
    """Times as int64 where they are whole numbers, else as float64; other kinds as they are.

    Parameters
    ----------
    time : array-like
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If whole numbers need more than 64 bits.
    """
    array = np.asarray(time)
    if array.dtype.kind in "Ou":
        given = array.astype(object)
        with suppress(TypeError, ValueError, OverflowError):
            whole = given.astype(np.int64)
            if (whole == given).all():
                return whole
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return array
        if (large := np.isfinite(array) & (np.abs(array) >= _MOST)).any():
            raise ParameterError(
                f"{where}: `time` must hold whole numbers of at most 64 bits, got "
                f"{given[large][0]}. Subtract a constant, such as the first time, or use a larger "
                "unit."
            )
    if array.dtype.kind not in "if":
        return array
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64, copy=False)


def _dates(time: TimeLike, where: str) -> Array:
    array = np.asarray(time)
    if array.dtype.kind == "O" and all(is_date(each) for each in array.flat):
        array = dates_from(array.ravel().tolist(), f"{where}: `time`").reshape(array.shape)
    return as_dates(array, where) if array.dtype.kind == "M" else array


def as_dates(array: Array, where: str) -> Array:
    """Dates in microseconds, or in nanoseconds where they have digits below.

    Parameters
    ----------
    array : ndarray of datetime64
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If neither holds all their digits.
    """
    found = dates_of(array)
    lost = ~((found.astype(array.dtype) == array) | np.isnat(array))
    if lost.any():
        raise ParameterError(
            f"{where}: `time` must hold dates that microseconds or nanoseconds in 64 bits can "
            f"hold, got {array[lost][0]}. Give numbers, and a rule in numbers: half_life=60.0."
        )
    return found
