"""Records: rows as plain JSON, without data types and shapes.

=================================================== ============================================
a body                                              is
=================================================== ============================================
``{"x": {"speed": 3.0, "gear": "low"}, "y": 9}``    a row of named values; a missing key or null
                                                    is a missing value
``{"x": [1.0, 2.0], "y": 9}``                       a row of numbers without names
``{"x": [[1, 2], [3, 4]], "y": [9, 8]}``            several rows, also as objects
``[{"x": …, "y": …}, …]``                           several rows, each of one of the first two forms
the same objects, one a line                        NDJSON
=================================================== ============================================

To be learned, a row has its target ``y`` (a number, text, true or false, or a list of numbers), and
may have ``sample_weight`` and ``time`` (a number, or an ISO 8601 date). To predict, it may have
``outputs``, or ``await_label`` with ``seconds`` if its target is sent later by its id.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from onepass.errors import join_names
from onepass.service.protocol.json import (
    ALIKE,
    Number,
    Object,
    Row,
    Scalar,
    column,
    decoded,
    encoded,
    features,
)
from onepass.service.protocol.limits import Limits, request_error
from onepass.service.protocol.rows import (
    OUTPUTS,
    ROLES,
    DecodedRequest,
    EncodedResponse,
    Output,
    OutputName,
    with_roles,
)
from onepass.types import Array

__all__ = ["Record", "RecordsResponse", "is_records", "read", "write"]

_Values = Annotated[
    Scalar | list[Scalar | list[Number]],
    msgspec.Meta(description="Target of a row, or list of the targets of several rows"),
]


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A row, or several rows, to predict or to learn."""

    x: Annotated[Object | list[Number | Row | Object], msgspec.Meta(description="Features")]
    y: _Values | UnsetType = UNSET
    sample_weight: float | list[float] | UnsetType = UNSET
    time: int | float | str | list[int | float | str] | UnsetType = UNSET
    outputs: list[OutputName] | UnsetType = UNSET
    await_label: (
        Annotated[bool, msgspec.Meta(description="Store rows until their labels come")] | UnsetType
    ) = UNSET
    seconds: (
        Annotated[float, msgspec.Meta(description="How long to wait for the labels")] | UnsetType
    ) = UNSET


class RecordsResponse(msgspec.Struct, omit_defaults=True):
    """Predictions, one a row, and the version of the model that made them."""

    version: int
    predictions: list[Scalar | list[Scalar]] | UnsetType = UNSET
    probabilities: list[list[float | None]] | UnsetType = UNSET
    classes: list[Scalar] | UnsetType = UNSET
    ids: Annotated[list[str], msgspec.Meta(description="To send labels later")] | UnsetType = UNSET


class _Keys(msgspec.Struct):
    """The keys that distinguish records from a request of the Open Inference Protocol."""

    x: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()


_KEYS = msgspec.json.Decoder(_Keys)
_BODY = msgspec.json.Decoder(Record | list[Record])
_LINE = msgspec.json.Decoder(Record)
_HINTS = {"outputs": f"Choose some of {join_names(OUTPUTS)}", "x": ALIKE, "y": ALIKE}
_NO_LIMITS = Limits()


def is_records(body: bytes) -> bool:
    """Whether a JSON body is records: a list, or an object with ``x`` and without ``inputs``."""
    if body[:64].lstrip().startswith(b"["):
        return True
    try:
        keys = _KEYS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return bool(memoryview(keys.x)) and not memoryview(keys.inputs)


def read(
    body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False, ndjson: bool = False
) -> DecodedRequest:
    """Decode a request.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether ``y``, ``sample_weight`` and ``time`` are used.
    ndjson : bool, default False
        Whether each line is a record.

    Raises
    ------
    RequestError
        If it is not such a request, or too large.

    Examples
    --------
    >>> read(b'{"x": {"speed": 3.0, "gear": "low"}, "y": 9}', learning=True).X["gear"]
    array(['low'], dtype=object)
    >>> read(b'{"x": [[1, 2], [3, 4]]}').X
    array([[1., 2.],
           [3., 4.]])
    """
    records, places = _records(body, limits, ndjson=ndjson)
    if not records:
        raise request_error("", "hold records", "none", "Send one or more")
    first, x = records[0], records[0].x
    if places == [""] and type(x) is list and x and type(x[0]) in {list, dict}:
        rows: list[Any] = x
        values = {role: getattr(first, role) for role in ROLES}
        if several := [
            role for role, each in values.items() if type(each) not in {list, UnsetType}
        ]:
            raise request_error(
                several[0], "be a list, as x is", "one value", "Give one for each row"
            )
        places = [f"[{i}]" for i in range(len(rows))]
    else:
        _check_alike(records, places)
        rows = [each.x for each in records]
        values = {role: [getattr(each, role) for each in records] for role in ROLES}

    def place(name: str) -> Callable[[int], str]:
        return lambda i: f"{name}{places[i]}" if rows is x else f"{places[i]}{name}"

    parts = {
        role: column(each, place(role), limits)
        for role, each in values.items()
        if learning and getattr(first, role) is not UNSET
    }
    X = features(rows, place("x"), limits, len(body))
    request = with_roles(X, parts, str)
    given = {name: getattr(first, name) for name in ("await_label", "seconds")}
    request.parameters = {name: each for name, each in given.items() if each is not UNSET} or None
    if first.outputs:
        request.outputs = tuple(map(Output, dict.fromkeys(first.outputs)))
    return request


def _records(body: bytes, limits: Limits, *, ndjson: bool) -> tuple[list[Record], list[str]]:
    """The records, and what begins the place of each in messages."""
    if not ndjson:
        found = decoded(_BODY, body, limits, _HINTS)
        if isinstance(found, Record):
            return [found], [""]
        return found, [f"[{i}]." for i in range(len(found))]
    limits.check_json(len(body))
    lines = [(i, line) for i, line in enumerate(body.split(b"\n"), start=1) if line.strip()]
    places = [f"line {i}: " for i, _ in lines]
    pairs = zip(lines, places, strict=True)
    return [decoded(_LINE, line, limits, _HINTS, place) for (_, line), place in pairs], places


def _check_alike(records: list[Record], places: list[str]) -> None:
    """Raise RequestError if a record has several rows, or other fields than the first."""
    first = _settings(records[0])
    for record, place in zip(records, places, strict=True):
        if type(record.x) is list and any(type(each) in {list, dict} for each in record.x):
            raise request_error(f"{place}x", "be one row", "several", "Send a record for each")
        if _settings(record) != first:
            must = "have the fields and settings of the first record"
            raise request_error(place.rstrip(".: "), must, "others", "Send such rows by themselves")


def _settings(record: Record) -> list[Any]:
    given = [getattr(record, role) is UNSET for role in ROLES]
    return [*given, record.outputs, record.await_label, record.seconds]


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str = "0"
) -> EncodedResponse:
    """Encode a response.

    Parameters
    ----------
    request : DecodedRequest
        Its ``outputs`` are those of the response.
    values : mapping of str to ndarray
        By the names of the outputs, "id" among them where labels come later.
    model, version : str
        The model's name, which is not in the response, and the version that predicted.

    Raises
    ------
    LabelError
        If a predicted text cannot be encoded in UTF-8.

    Examples
    --------
    >>> import numpy as np
    >>> request = read(b'{"x": [1.0, 2.0]}')
    >>> write(request, {"y": np.array([0.5])}, model="flow", version="12").body
    b'{"version":12,"predictions":[0.5]}'
    """
    del model
    names = {"y": "predictions", "id": "ids"}
    outputs = {names.get(o.name, o.name): values[o.name].tolist() for o in request.outputs}
    return EncodedResponse(encoded(RecordsResponse(int(version), **outputs)))
