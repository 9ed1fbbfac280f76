"""Gathered: columns that come some rows at a time, until they are whole."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onepass.errors import Array
from onepass.service.wire.elements import texts
from onepass.service.wire.limits import Limits, refused, shown

__all__ = ["Gathered", "column"]

_NUMBERS = {bool, int, float}
_RUNS = 16
_WORDS = {"f": "numbers", "O": "text", "M": "dates"}
_Run = tuple[int, Mapping[str, Array | None]]
_REMEDY = "Send numbers as numbers and text as text, and null for what is missing"
_MISSING: dict[str, Any] = {"f": np.nan, "O": None, "M": np.datetime64("NaT", "us")}


class Gathered:
    """Columns by their names, which grow.

    Parameters
    ----------
    limits : Limits
    place : callable
        Where a column stands in the request, by its name.
    """

    def __init__(self, limits: Limits, place: Callable[[str], str]) -> None:
        self._limits, self._place = limits, place
        self._runs: list[_Run] = []
        self._recent: list[_Run] = []
        self._wide: dict[str, int] = {}  # values a row, as the limits count them
        self.n = 0

    def add(self, columns: Mapping[str, Array | None], n: int) -> None:
        """Take some rows more.

        Parameters
        ----------
        columns : mapping of str to ndarray of shape (n,) or (n, k), or None
            Those that came; one of None has no value in these rows, and one that did not come
            neither.
        n : int
            How many rows.

        Raises
        ------
        RequestError
            If they are too many.
        """
        for name, array in columns.items():
            wide = 1 if array is None else _wide(array)
            self._wide[name] = max(wide, self._wide.get(name, 0))
        self.n += n
        self._limits.hold(self.n, len(self._wide), "")
        if self.n * sum(self._wide.values()) > self._limits.values:
            must = f"hold at most {self._limits.values:,} values, a text counted as 8"
            raise refused("", must, "more", "Send fewer rows at a time")
        self._recent.append((n, columns))
        if len(self._recent) == _RUNS:  # an array of one row takes the room of fifteen numbers
            self._runs.append(self._one(self._recent))
            self._recent = []

    def joined(self) -> dict[str, Array]:
        """All columns, whole: where nothing came, there is nan, None or NaT.

        Raises
        ------
        RequestError
            If a column is of several kinds.
        """
        n, columns = self._one([*self._runs, *self._recent])
        return {name: np.full(n, np.nan) if array is None else array
                for name, array in columns.items()}  # fmt: skip

    def _one(self, runs: list[_Run]) -> _Run:
        """Runs of rows as one."""
        names = dict.fromkeys(name for _, columns in runs for name in columns)
        runs = [run for run in runs if run[0]]
        sizes = [n for n, _ in runs]
        return sum(sizes), {
            name: self._joined(name, [columns.get(name) for _, columns in runs], sizes)
            for name in names
        }

    def _joined(self, name: str, parts: list[Array | None], sizes: list[int]) -> Array | None:
        """A column of each run as one; None if it has no value in any."""
        known = [array for array in parts if array is not None]
        if not known:
            return None
        kinds = {_kind(array) for array in known}
        shapes = {array.shape[1:] for array in known}
        if len(kinds) > 1 or len(shapes) > 1:
            words = sorted(_WORDS[kind] for kind in kinds)
            came = " and ".join(words) if len(kinds) > 1 else "several"
            raise refused(self._place(name), "hold one kind of value", came, _REMEDY)
        if len(known) == len(parts):
            return known[0] if len(known) == 1 else np.concatenate(known)
        (kind,), (inner,) = kinds, shapes
        dtype = np.float64 if kind == "f" else known[0].dtype
        whole = np.full((sum(sizes), *inner), _MISSING[kind], dtype=dtype)
        start = 0
        for array, n in zip(parts, sizes, strict=True):
            if array is not None:
                whole[start : start + n] = array
            start += n
        return whole


def _kind(array: Array) -> str:
    return array.dtype.kind if array.dtype.kind in _MISSING else "f"


def _wide(array: Array) -> int:
    """The values of a row, as the limits count them."""
    return 8 if array.dtype == object else 1 if array.ndim == 1 else array.shape[1]


def column(values: list[Any], place: str, limits: Limits, *, first: int = 0) -> Array | None:
    """Values of JSON as a column; None if all of them are null.

    Parameters
    ----------
    values : list of bool, int, float, str or None
    place : str
        Where they stand in the request, for messages.
    limits : Limits
    first : int, default 0
        The number of the first of them, for messages.

    Returns
    -------
    array : ndarray of shape (n,), or None
        bool, int64, float64 with nan, or objects: text and None.

    Raises
    ------
    RequestError
        If they are text and numbers, or a number is too large for float64.

    Examples
    --------
    >>> limits = Limits()
    >>> column([1, None], "y", limits), column([1, 2], "y", limits)
    (array([ 1., nan]), array([1, 2]))
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return None
    if kinds == {str}:
        return texts(values, place, limits)
    if not kinds <= _NUMBERS:
        i = next(i for i, each in enumerate(values) if type(each) is str)
        remedy = "Send numbers as numbers and text as text, and null for what is missing"
        raise refused(
            f"{place}[{first + i}]", "be a number, as others are", shown(values[i]), remedy
        )
    plain = len(kinds) == 1 and None not in values
    try:
        return np.array(values, dtype=np.int64 if plain and kinds == {int} else None if plain else
                        np.float64)  # fmt: skip
    except OverflowError:
        return _large(values, place)


def _large(values: list[Any], place: str) -> Array:
    """Numbers beyond 64 bits, as float64."""
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError as wrong:
        must, came = "hold numbers within float64", "one beyond"
        raise refused(place, must, came, "Use larger units, or send it as text") from wrong
