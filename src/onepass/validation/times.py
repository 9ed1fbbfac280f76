"""Validation of the times of rows: numbers or dates, in order."""

from __future__ import annotations

import datetime as dt
import math
import re
from contextlib import suppress
from typing import Any

import numpy as np

from onepass.errors import NotFiniteError, ParameterError, ShapeError, TypeMismatchError
from onepass.types import Array, Floats, TimeLike
from onepass.validation.table import dates_from, dates_of, is_date, moment, zoned

_UNITS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_MICROSECONDS = np.dtype("M8[us]")
_VAGUE = {"", "[Y]", "[M]"}  # no unit, or one of varying length
_MAX = 2.0**63
_TEXT = re.compile(rf"\s*(\d+\.?\d*(?:e[+-]?\d+)?)\s*({'|'.join(_UNITS)})\s*", re.IGNORECASE)


def duration(value: object, name: str) -> float | str:
    """Validate a duration; return a number in the unit of the times, or text such as ``"90min"``.

    Parameters
    ----------
    value : float, str, datetime.timedelta or numpy.timedelta64
        Greater than 0.
    name : str
        The parameter, for messages.

    Raises
    ------
    ParameterError
        If the value is not a positive duration.

    Examples
    --------
    >>> duration(dt.timedelta(hours=1.5), "half_life"), seconds("1.5h")
    ('5400s', 5400.0)
    """
    result: float | str | None = None
    if isinstance(value, np.timedelta64):
        vague = value.dtype.str[3:] in _VAGUE
        length = math.nan if vague else float(value / np.timedelta64(1, "s"))
        result = f"{length:.15g}s" if 0.0 < length < math.inf else None
    elif isinstance(value, dt.timedelta):
        result = f"{value.total_seconds():.15g}s" if value > dt.timedelta(0) else None
    elif isinstance(value, str):
        result = value.strip() if 0.0 < seconds(value) < math.inf else None
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        result = float(value) if 0.0 < value < math.inf else None
    if result is None:
        raise ParameterError(
            f"`{name}` must be a duration > 0: a number in the unit of `time`, or, if "
            f"`time` contains dates, a timedelta or text in {', '.join(_UNITS)}, such "
            f"as '90min', got {value!r}",
            remedy=f"Choose another `{name}`.",
        )
    return result


def seconds(text: str) -> float:
    """Convert a duration given as text to seconds; NaN if the text cannot be parsed."""
    match = _TEXT.fullmatch(text)
    return math.nan if match is None else float(match[1]) * _UNITS[match[2].lower()]


def times(time: Any, n: int, *, dates: bool, last: float | np.datetime64 | None) -> Array:
    """Validate the times of n rows.

    Parameters
    ----------
    time : array-like of shape (n,), or a single time if n is 1
    n : int
        The number of rows.
    dates : bool
        Whether times must be dates; otherwise numbers.
    last : float, int or datetime64, optional
        The time of the previous row.

    Returns
    -------
    times : ndarray of shape (n,)
        Of int64, float64, datetime64[us] or datetime64[ns].

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError, ParameterError
        If ``time`` is not one time of this kind for each row, in non-decreasing order.
    """
    array = _dates(time) if dates else as_numbers(time)
    if array.dtype.kind not in ("M" if dates else "if"):
        kind, rule = ("dates", "a duration") if dates else ("numbers", "a number")
        given = array.dtype if array.dtype.kind != "O" else f"values such as {array.flat[0]!r}"
        raise TypeMismatchError(
            f"`time` must contain {kind}, because the forgetting rule uses {rule}, got "
            f"{given}. Pass {kind}, or use another rule: half_life=60.0 for numbers, "
            "half_life='1min' for dates."
        )
    if array.ndim == 0 and n == 1:
        array = array[None]
    if array.shape != (n,):
        raise ShapeError(
            f"`time` must have shape ({n},), one time for each row, got {array.shape}. "
            "Check that X and time come from the same rows."
        )
    if np.ma.is_masked(time):
        masked = np.datetime64("NaT") if dates else np.nan
        array = np.where(np.ma.getmaskarray(time), masked, array)
    nat = np.iinfo(np.int64).min  # NaT as an integer
    missing = np.isnat(array) if dates else ~np.isfinite(array) | (array == nat)
    if missing.any():
        raise NotFiniteError(
            "`time` must not be missing or infinite",
            got=array[missing][0],
            remedy="Drop the row, or fill in its time.",
            row=int(np.argmax(missing)),
        )
    early = n and last is not None and _exact(array[0]) < _exact(last)
    back = np.flatnonzero(array[1:] < array[:-1])
    if not early and not len(back):
        return array
    i = 0 if early else int(back[0]) + 1
    hint = " If local clocks were set back, pass dates in UTC or with a time zone."
    raise ParameterError(
        "`time` must not decrease",
        got=f"{array[i]} after {array[i - 1] if i else last}",
        remedy=f"Sort the rows by time; equal times are allowed.{hint if dates else ''}",
        row=i,
    )


def time_like(last: float | np.datetime64, time: Any, aware: bool | None = False) -> Any:  # noqa: FBT001, FBT002  a state
    """Convert a time to the type of an earlier one; None if `times` must validate it.

    Parameters
    ----------
    last : int, float or datetime64
        As in the result of `times`.
    time : object
        Another time of the same stream: a number, or a date that microseconds represent exactly.
    aware : bool, optional
        Whether the datetimes of the stream have time zones; None if it contains no datetimes.
    """
    if isinstance(time, (np.integer, np.floating)):
        time = time.item()
    if not isinstance(last, np.datetime64):
        return time if type(time) is type(last) and abs(time) < _MAX else None
    if isinstance(time, dt.datetime):
        if (time.tzinfo is not None) != aware:
            return None
    elif not isinstance(time, (dt.date, np.datetime64)):
        return None
    if last.dtype != _MICROSECONDS:
        return None
    exact: Any = moment(time)
    if type(time) is dt.datetime:  # in microseconds, and never missing
        return exact
    converted = np.datetime64(exact, "us")
    return converted if converted.astype(exact.dtype) == exact else None


def elapsed(time: Array, last: float | np.datetime64 | None) -> Floats:
    """Time since the previous row, shape (n,): numbers, or seconds for dates.

    Integers and dates are subtracted as integers and rounded once.
    """
    gaps, dates = np.zeros(len(time)), time.dtype.kind == "M"
    if last is not None:
        a, b = _exact(last), _exact(time[0])
        gaps[0] = (b - a) / 10**9 if dates else b - a
    if time.dtype.kind == "f":
        with np.errstate(over="ignore"):
            gaps[1:] = np.diff(time)
    else:  # differences of sorted times are below 2**64
        gaps[1:] = np.diff(time.view(np.int64).view(np.uint64)) / (per_second(time) if dates else 1)
    return gaps


def per_second(time: Array) -> int:
    """Units per second of dates returned by ``times``: 10⁶ or 10⁹."""
    return 10**6 if np.datetime_data(time.dtype)[0] == "us" else 10**9


def aware(time: TimeLike) -> bool | None:
    """Whether datetimes have time zones; None for other kinds of times."""
    array = np.asarray(time)
    return next(iter(zoned(array.flat if array.dtype.kind == "O" else ())), None)


def _exact(time: float | np.datetime64) -> Any:
    """Convert a time to a Python number, a date to nanoseconds since 1970."""
    if not isinstance(time, np.datetime64):
        return time.item() if isinstance(time, np.generic) else time
    return int(time.astype(np.int64)) * (10**9 // per_second(np.asarray(time)))


def as_numbers(time: TimeLike) -> Array:
    """Convert integer times to int64 and real ones to float64; return other kinds unchanged.

    Parameters
    ----------
    time : array-like

    Raises
    ------
    ParameterError
        If an integer needs more than 64 bits.
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
        if (large := np.isfinite(array) & (np.abs(array) >= _MAX)).any():
            raise ParameterError(
                f"`time` must contain whole numbers of at most 64 bits, got {given[large][0]}. "
                "Subtract a constant, such as the first time, or use a larger unit."
            )
    if array.dtype.kind not in "if":
        return array
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64, copy=False)


def _dates(time: TimeLike) -> Array:
    """Convert dates of any library to datetime64; return other kinds unchanged."""
    array = np.asarray(time)
    if array.dtype.kind == "O" and all(is_date(value) for value in array.flat):
        array = dates_from(array.ravel().tolist(), "`time`").reshape(array.shape)
    return as_dates(array) if array.dtype.kind == "M" else array


def as_dates(array: Array) -> Array:
    """Convert dates to microseconds, or to nanoseconds if they are finer.

    Parameters
    ----------
    array : ndarray of datetime64

    Raises
    ------
    ParameterError
        If neither unit represents the dates exactly.
    """
    result = dates_of(array)
    inexact = ~((result.astype(array.dtype) == array) | np.isnat(array))
    if inexact.any():
        raise ParameterError(
            "`time` must contain dates that fit in 64 bits as microseconds or nanoseconds, got "
            f"{array[inexact][0]}. Use numbers, and a rule such as half_life=60."
        )
    return result
