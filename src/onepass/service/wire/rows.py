"""Rows: what a request asks, whatever form it came in, and what is sent back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import Array, meant
from onepass.service.wire.dates import dates
from onepass.service.wire.limits import refused, shown
from onepass.validation.table import Table

__all__ = ["ANSWERS", "OUTPUTS", "ROLES", "Asked", "Output", "Reply", "asked", "hold_output"]

OUTPUTS = ("y", "probabilities", "classes")
"""What can be asked for: answers (n,), the classes' probabilities (n, k), and the classes (k,)."""

ROLES = ("y", "sample_weight", "time")
"""What columns are called that belong to rows to be learned, and are no features."""

_Place = Callable[[str], str]


class Output(NamedTuple):
    """Something that is to be sent back."""

    name: str
    """One of ``OUTPUTS``."""
    binary: bool = False
    """Whether as a binary tensor."""


ANSWERS = (Output("y"),)
"""What is sent back if nothing is said of it."""


@dataclass(slots=True, eq=False)
class Asked:
    """What a request asks.

    Parameters
    ----------
    X : ndarray of shape (n, d) or Table
        The rows: numbers without names, or named columns.
    y : ndarray of shape (n,) or (n, c), optional
        Their answers, if they are to be learned: float64, int64, uint64, bool, or text as objects.
    sample_weight : ndarray of shape (n,), optional
        float64.
    time : ndarray of shape (n,), optional
        float64, int64, or datetime64[us] in UTC.
    id : str, default ""
        What the asker calls the request.
    outputs : tuple of Output
        What is to be sent back, in this order.
    parameters : mapping of str to bool, int, float, str or None, optional
        What else came, as it came.
    """

    X: Any
    y: Array | None = None
    sample_weight: Array | None = None
    time: Array | None = None
    id: str = ""
    outputs: tuple[Output, ...] = ANSWERS
    parameters: Mapping[str, Any] | None = None


class Reply(NamedTuple):
    """What is sent back."""

    body: bytes
    kind: str = "application/json"
    """Its content type."""
    headers: Mapping[str, str] | None = None
    """Further headers of HTTP."""


def asked(named: dict[str, Array], place: _Place, *, learning: bool) -> Asked:
    """Columns by their names as rows, and, if they are to be learned, as what belongs to them.

    Parameters
    ----------
    named : dict of str to ndarray of shape (n,) or (n, k)
        Numbers, truth values, text as objects, or dates. One matrix by itself is rows without
        names; else each is a column.
    place : callable
        Where a column stands in the request, by its name.
    learning : bool
        Whether y, sample_weight and time belong to rows to be learned. If not, they are ignored
        beside a matrix, and are columns otherwise.

    Raises
    ------
    RequestError
        If they do not go together.
    """
    parts = {role: named[role] for role in ROLES if role in named} if learning else {}
    others = {name: array for name, array in named.items() if name not in ROLES}
    if learning or [array.ndim for array in others.values()] == [2]:
        named = others
    if not named:
        came = " and ".join(parts) or "none"
        raise refused("", "have columns that are features", came, "Send rows, one or more columns")
    X = _features(named, place)
    for role, part in parts.items():
        if len(part) != len(X):
            must = f"have {len(X):,} rows, as the features have"
            raise refused(place(role), must, f"{len(part):,}", "Send as many as there are rows")
    found = Asked(X)
    if "y" in parts:
        found.y = _answers(parts["y"], place("y"))
    if "sample_weight" in parts:
        found.sample_weight = _weights(parts["sample_weight"], place("sample_weight"))
    if "time" in parts:
        found.time = _times(parts["time"], place("time"))
    return found


def hold_output(name: str, place: str) -> None:
    """Refuse an output that there is none of.

    Parameters
    ----------
    name : str
    place : str
        Where it is asked for.
    """
    if name not in OUTPUTS:
        remedy = meant(name[:40], OUTPUTS).strip() or "Leave it out to have y"
        must = f"be one of {', '.join(map(repr, OUTPUTS))}"
        raise refused(place, must, shown(name), remedy)


def _features(named: dict[str, Array], place: _Place) -> Any:
    """A matrix, or a Table."""
    if len(named) == 1:
        (only,) = named.values()
        if only.ndim == 2 and only.dtype.kind in "biuf":
            return only.astype(np.float64, copy=False)
    n = len(next(iter(named.values())))
    columns = {name: _column(array, n, name, place) for name, array in named.items()}
    return Table(columns, n)


def _column(array: Array, n: int, name: str, place: _Place) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "be a column of shape [n] or [n, 1], as text or one of several is"
        remedy = "Send numbers as one matrix [n, d], or each column by its name"
        raise refused(place(name), must, f"{list(array.shape)}", remedy)
    if len(array) != n:
        must = f"have {n:,} rows, as the column before"
        raise refused(place(name), must, f"{len(array):,}", "Send columns of equal length")
    array = array.reshape(n)
    return array if array.dtype.kind in "OM" else array.astype(np.float64, copy=False)


def _answers(array: Array, place: str) -> Array:
    """Answers: text without a second axis, and whole numbers of one kind wherever they fit."""
    kind = array.dtype.kind
    if kind == "M" or (kind == "O" and array.ndim == 2 and array.shape[1] != 1):
        came = "dates" if kind == "M" else f"text of shape {list(array.shape)}"
        raise refused(place, "be numbers, or one text a row", came, "Send such answers")
    if kind == "O":
        return array.reshape(len(array))
    if kind == "u" and (not array.size or int(array.max()) < 1 << 63):
        return array.astype(np.int64)
    return array


def _weights(array: Array, place: str) -> Array:
    if array.dtype.kind not in "iuf":
        raise refused(place, "be numbers", "others", "Send one number a row")
    return _one_a_row(array, place).astype(np.float64, copy=False)


def _times(array: Array, place: str) -> Array:
    array = _one_a_row(array, place)
    if array.dtype.kind == "O":
        return dates(array, lambda i: f"{place}, row {i}")
    if array.dtype.kind == "b":
        raise refused(place, "be numbers or dates", "truth values", "Send one time a row")
    return array


def _one_a_row(array: Array, place: str) -> Array:
    if array.ndim == 2 and array.shape[1] != 1:
        must = "have the shape [n] or [n, 1]"
        raise refused(place, must, f"{list(array.shape)}", "Send one value a row")
    return array.reshape(len(array))
