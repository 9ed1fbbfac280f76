"""Datatypes: those of the Open Inference Protocol, and what each is here.

Numbers with a fraction are float64 here, whole ones int64, or uint64 where they are that; all
narrower ones fit in these to the last bit.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from onepass.errors import Array, listed
from onepass.service.wire.limits import refused, shown

__all__ = ["DATATYPES", "Datatype", "datatype_named", "datatype_of"]


_WRITTEN = {"b": "BOOL", "U": "BYTES"}


@dataclass(frozen=True, slots=True)
class Datatype:
    """One of them.

    Parameters
    ----------
    name : str
        The protocol's.
    dtype : numpy.dtype
        Of its bytes, little-endian; object for BYTES.
    within : numpy.dtype
        What it becomes here.
    flat, nested : msgspec.json.Decoder
        Of a list of its values, and of a list of such lists.
    """

    name: str
    dtype: Any
    within: Any
    flat: Any
    nested: Any

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of whole numbers."""
        found = np.iinfo(self.dtype)
        return int(found.min), int(found.max)


def datatype_named(name: str, place: str) -> Datatype:
    """The datatype of a name that came.

    Parameters
    ----------
    name : str
    place : str
        Where it stands in the request, for messages.

    Raises
    ------
    RequestError
        If it is none that is read here.
    """
    known = DATATYPES.get(name)
    if known is None:
        remedy = "Send FP32, which holds each BF16" if name == "BF16" else "Choose one of these"
        must = f"be one of {listed(list(DATATYPES), most=len(DATATYPES))}"
        raise refused(place, must, shown(name), remedy)
    return known


def datatype_of(array: Array) -> Datatype:
    """The datatype in which an array of answers is written.

    Parameters
    ----------
    array : ndarray
        Numbers, truth values or text; of objects, text or whole numbers with None among them.

    Examples
    --------
    >>> [datatype_of(np.array(y)).name for y in (0.5, 3, True, "late")]
    ['FP64', 'INT64', 'BOOL', 'BYTES']
    >>> datatype_of(np.array([None, 3])).name  # nan stands for None
    'FP64'
    """
    kind = array.dtype.kind
    if kind == "f":
        return _FP64
    if kind == "O":
        words = any(isinstance(each, str) for each in array.flat)
        return DATATYPES["BYTES" if words or not array.size else "FP64"]
    if kind == "u" and array.dtype.itemsize == 8:
        return DATATYPES["UINT64"]
    return DATATYPES[_WRITTEN.get(kind, "INT64")]


def _made(name: str, code: str, within: Any, kind: Any) -> Datatype:
    flat, nested = (msgspec.json.Decoder(each) for each in (list[kind], list[list[kind]]))
    return Datatype(name, np.dtype(code), np.dtype(within), flat, nested)


def _whole(name: str, code: str) -> Datatype:
    low, high = (int(each) for each in (np.iinfo(code).min, np.iinfo(code).max))
    most = None if high >= 1 << 63 else high  # msgspec's bounds have 64 bits with a sign
    within = np.uint64 if most is None else np.int64
    return _made(name, code, within, Annotated[int, msgspec.Meta(ge=low, le=most)])


DATATYPES = {
    each.name: each
    for each in (
        _made("BOOL", "?", np.bool_, bool),
        *(_whole(f"UINT{8 * size}", f"<u{size}") for size in (1, 2, 4, 8)),
        *(_whole(f"INT{8 * size}", f"<i{size}") for size in (1, 2, 4, 8)),
        *(_made(f"FP{8 * size}", f"<f{size}", np.float64, float) for size in (2, 4, 8)),
        _made("BYTES", "O", object, str | None),
    )
}
"""All that are read here, by their names."""
_FP64 = DATATYPES["FP64"]
