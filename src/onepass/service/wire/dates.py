"""Dates: ISO 8601 text as datetime64 to the microsecond, in UTC."""

import datetime as dt
from collections.abc import Callable

import numpy as np

from onepass.errors import Array
from onepass.service.wire.limits import refused, shown

__all__ = ["dates"]


def dates(texts: Array, place: Callable[[int], str]) -> Array:
    """Dates out of text.

    Parameters
    ----------
    texts : ndarray of shape (n,), of objects
        Text such as ``2026-11-22T23:08:40.5Z`` or ``2026-11-22``, or None. Without a zone it is
        taken as UTC; what is finer than a microsecond is left out.
    place : callable
        Where a text stands in the request, by its number.

    Returns
    -------
    dates : ndarray of shape (n,), datetime64[us]
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
    found = [None if each is None else _date(each, i, place) for i, each in enumerate(texts)]
    return np.array(found, dtype="datetime64[us]")


def _date(text: str, i: int, place: Callable[[int], str]) -> dt.datetime:
    try:
        date = dt.datetime.fromisoformat(text)
        return date if date.tzinfo is None else date.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as wrong:
        must = "be a date as ISO 8601 writes it, such as '2026-11-22T23:08:40Z'"
        raise refused(place(i), must, shown(text), "Write it so") from wrong
