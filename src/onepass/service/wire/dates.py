"""Dates: ISO 8601 text as datetime64 to the nanosecond, in UTC."""

import datetime as dt
import re
from collections.abc import Callable

import numpy as np

from onepass.service.wire.limits import refused, shown
from onepass.table import dates_of
from onepass.types import Array

__all__ = ["dates"]

_BELOW = re.compile(r"[.,]\d{6}(\d{1,3})")  # digits below a microsecond
_FIRST, _LAST = 1677, 2262  # years between which nanoseconds fit in 64 bits


def dates(texts: Array, place: Callable[[int], str]) -> Array:
    """Dates out of text.

    Parameters
    ----------
    texts : ndarray of shape (n,), of objects
        Text such as ``2026-11-22T23:08:40.5Z`` or ``2026-11-22``, or None. Without a zone it is
        taken as UTC; what is finer than a nanosecond is left out.
    place : callable
        Where a text stands in the request, by its number.

    Returns
    -------
    dates : ndarray of shape (n,), datetime64[us], or [ns] if one has digits below a microsecond
        NaT for None.

    Raises
    ------
    RequestError
        If one is no date.

    Examples
    --------
    >>> dates(np.array(["2026-11-22T01:00+02:00", None], dtype=object), str)
    array(['2026-11-21T23:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    nothing = np.datetime64("NaT", "us")
    return dates_of(
        [nothing if each is None else _date(each, i, place) for i, each in enumerate(texts)]
    )


def _date(text: str, i: int, place: Callable[[int], str]) -> np.datetime64:
    try:
        date = dt.datetime.fromisoformat(text)
        date = date if date.tzinfo is None else date.astimezone(dt.UTC).replace(tzinfo=None)
        below, stamp = _BELOW.search(text), np.datetime64(date, "us")
        if below is None or not _FIRST < date.year < _LAST:
            return stamp
        return stamp + np.timedelta64(int(below[1].ljust(3, "0")), "ns")
    except (ValueError, OverflowError) as wrong:
        must = "be a date as ISO 8601 writes it, such as '2026-11-22T23:08:40Z'"
        raise refused(place(i), must, shown(text), "Write it so") from wrong
