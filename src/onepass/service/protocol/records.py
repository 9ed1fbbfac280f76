"""Records: rows as plain JSON, without data types and shapes.

=================================================== ============================================
body                                                meaning
=================================================== ============================================
``{"x": {"speed": 3.0, "gear": "low"}, "y": 9}``    a row of named values; an absent key or null is
                                                    a missing value
``{"x": [1.0, 2.0], "y": 9}``                       a row of numbers without names
``{"x": [[1, 2], [3, 4]], "y": [9, 8]}``            several rows, which may also be objects
``[{"x": …, "y": …}, …]``                           several rows, each in one of the first two forms
one such object per line                            NDJSON, several rows
=================================================== ============================================

A row to learn must have a target ``y`` (a number, text, true, false, or a list of numbers), and may
have ``sample_weight`` and ``time`` (a number, or an ISO 8601 date). A row to predict may have
``outputs``, or ``await_label`` and ``seconds`` if its target is sent later with its id.
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
        Annotated[bool, msgspec.Meta(description="Store rows until their labels arrive")]
        | UnsetType
    ) = UNSET
    seconds: (
        Annotated[float, msgspec.Meta(description="How long to wait for the labels, in seconds")]
        | UnsetType
    ) = UNSET


class RecordsResponse(msgspec.Struct, omit_defaults=True):
    """Predictions, one per row, and the version of the model that predicted."""

    version: int
    predictions: list[Scalar | list[Scalar]] | UnsetType = UNSET
    probabilities: list[list[float | None]] | UnsetType = UNSET
    classes: list[Scalar] | UnsetType = UNSET
    recall: list[Scalar | list[Scalar]] | UnsetType = UNSET
    ids: (
        Annotated[list[str], msgspec.Meta(description="Ids of the rows, for their labels")]
        | UnsetType
    ) = UNSET


class _Keys(msgspec.Struct):
    """Keys that distinguish records from a request of the Open Inference Protocol."""

    x: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()


_KEYS = msgspec.json.Decoder(_Keys)
_BODY = msgspec.json.Decoder(Record | list[Record])
_LINE = msgspec.json.Decoder(Record)
_HINTS = {"outputs": f"Choose some of {join_names(OUTPUTS)}", "x": ALIKE, "y": ALIKE}
_NO_LIMITS = Limits()


def is_records(body: bytes) -> bool:
    """Return whether a JSON body is records: a list, or an object with ``x`` but not ``inputs``."""
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
        Whether to decode ``y``, ``sample_weight`` and ``time``, which are ignored otherwise.
    ndjson : bool, default False
        Whether the body is NDJSON, with one record per line.

    Raises
    ------
    RequestError
        If the body is not a valid request, or a limit is exceeded.

    Examples
    --------
    >>> read(b'{"x": {"speed": 3.0, "gear": "low"}, "y": 9}', learning=True).rows.X["gear"]
    array(['low'], dtype=object)
    >>> read(b'{"x": [[1, 2], [3, 4]]}').rows.X
    array([[1., 2.],
           [3., 4.]])
    """
    records, places = _records(body, limits, ndjson=ndjson)
    if not records:
        raise request_error("", "have at least one record", "none", "Send one or more records")
    first, x = records[0], records[0].x
    if places == [""] and type(x) is list and x and type(x[0]) in {list, dict}:
        rows: list[Any] = x
        values = {role: getattr(first, role) for role in ROLES}
        if scalars := [
            role for role, each in values.items() if type(each) not in {list, UnsetType}
        ]:
            remedy = "Send one value per row of x"
            raise request_error(scalars[0], "be a list, as x has several rows", "one value", remedy)
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
    settings = {name: getattr(first, name) for name in ("await_label", "seconds")}
    request.parameters = {
        name: each for name, each in settings.items() if each is not UNSET
    } or None
    if first.outputs:
        request.outputs = tuple(map(Output, dict.fromkeys(first.outputs)))
    return request


def _records(body: bytes, limits: Limits, *, ndjson: bool) -> tuple[list[Record], list[str]]:
    """Return the records, and the prefix of the location of each in messages."""
    if not ndjson:
        records = decoded(_BODY, body, limits, _HINTS)
        if isinstance(records, Record):
            return [records], [""]
        return records, [f"[{i}]." for i in range(len(records))]
    limits.check_json(len(body))
    lines = [(i, line) for i, line in enumerate(body.split(b"\n"), start=1) if line.strip()]
    places = [f"line {i}: " for i, _ in lines]
    pairs = zip(lines, places, strict=True)
    return [decoded(_LINE, line, limits, _HINTS, place) for (_, line), place in pairs], places


def _check_alike(records: list[Record], places: list[str]) -> None:
    """Raise RequestError if a record has several rows, or differs from the first in its fields."""
    first = _settings(records[0])
    for record, place in zip(records, places, strict=True):
        if type(record.x) is list and any(type(each) in {list, dict} for each in record.x):
            raise request_error(
                f"{place}x", "be one row", "several rows", "Send one record per row"
            )
        if _settings(record) != first:
            must = "have the fields and settings of the first record"
            remedy = "Send records with other fields or settings in a separate request"
            raise request_error(place.rstrip(".: "), must, "others", remedy)


def _settings(record: Record) -> list[Any]:
    absent = [getattr(record, role) is UNSET for role in ROLES]
    return [*absent, record.outputs, record.await_label, record.seconds]


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str = "0"
) -> EncodedResponse:
    """Encode a response.

    Parameters
    ----------
    request : DecodedRequest
        Request, with the ``outputs`` to encode.
    values : mapping of str to ndarray
        Outputs by name, including "id" for rows that wait for their labels.
    model, version : str
        Name of the model, which is not part of the response, and the version that predicted.

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
