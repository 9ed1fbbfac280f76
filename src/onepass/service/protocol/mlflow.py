"""MLflow's scoring protocol: JSON in four forms, and CSV.

======================= ==========================================================================
key of the body         value
======================= ==========================================================================
``dataframe_split``     ``{"columns": ["speed", …], "data": [[3, …], …]}``; rows without names if
                        there are no columns or if they are 0, 1, …, as in pandas
``dataframe_records``   ``[{"speed": 3, …}, …]``; a key that a row lacks is a missing value
``instances``           rows ``[[3, …], …]`` or ``[3, …]`` of numbers; records; or columns
``inputs``              as ``instances``
======================= ==========================================================================

Columns are ``{"speed": [3, …], …}``; a single column may be a matrix, ``{"X": [[3, …], …]}``. A
body has exactly one of these keys, and optionally ``params``; other keys are ignored, as in MLflow.
null is a missing value. pyarrow infers the types of CSV columns that are not text in the model.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv

from onepass.errors import OnepassError, RequestError, SourceError
from onepass.service.protocol.arrow import arrays, columns_place
from onepass.service.protocol.json import (
    Number,
    Object,
    Row,
    Scalar,
    column,
    decoded,
    encoded,
    features,
)
from onepass.service.protocol.limits import Limits, request_error, shown
from onepass.service.protocol.rows import DecodedRequest, EncodedResponse, build_request
from onepass.stream.csv import PANDAS_MISSING, ParseErrors
from onepass.types import Array
from onepass.validation.rows import Rows

_Columns: TypeAlias = Annotated[
    dict[str, list[Scalar | Row]], msgspec.Meta(description="Values by the names of their columns")
]
_Rows: TypeAlias = list[Number | Row | Object] | _Columns


class Split(msgspec.Struct):
    """A data frame as pandas writes it with ``orient="split"``."""

    data: list[list[Scalar]]
    columns: list[str | int] = []


class Invocation(msgspec.Struct):
    """Rows to predict, in one of MLflow's forms."""

    dataframe_split: Split | None = None
    dataframe_records: list[Object] | None = None
    instances: _Rows | None = None
    inputs: _Rows | None = None
    params: dict[str, Scalar] | None = None


class Predictions(msgspec.Struct):
    """Predictions, one per row."""

    predictions: list[Scalar | list[Scalar]]


_BODY = msgspec.json.Decoder(Invocation)
_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
_NO_LIMITS = Limits()


def read(body: bytes, limits: Limits = _NO_LIMITS) -> DecodedRequest:
    """Decode a request whose body is JSON.

    Parameters
    ----------
    body : bytes
    limits : Limits

    Raises
    ------
    RequestError
        If the body is not a valid request, or a limit is exceeded.

    Examples
    --------
    >>> read(b'{"dataframe_records": [{"speed": 3}, {"speed": null}]}').rows.X["speed"]
    array([ 3., nan])
    >>> read(b'{"inputs": [[1, 2], [3, 4]]}').rows.X
    array([[1., 2.],
           [3., 4.]])
    """
    invocation = decoded(_BODY, body, limits)
    forms = [form for form in _FORMS if getattr(invocation, form) is not None]
    if len(forms) != 1:
        must = "have one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`"
        remedy = "Send the rows under one of these keys"
        raise request_error("", must, " and ".join(forms) or "none", remedy)
    (form,) = forms
    data: Any = getattr(invocation, form)
    if isinstance(data, Split):
        form = "dataframe_split.data"
        data = _unsplit(data)
    if not data:
        raise request_error(form, "have at least one row", "none", "Send one or more rows")
    if isinstance(data, dict):
        request = _columns(data, form, limits)
    else:
        request = _rows(data, form, limits, len(body))
    request.parameters = invocation.params or {}
    return request


def _unsplit(split: Split) -> dict[str, list[Any]] | list[list[Any]]:
    """Return columns by name, or rows of numbers without names."""
    names, rows = split.columns, split.data
    for i, row in enumerate(rows):
        if names and len(row) != len(names):
            must = f"have {len(names):,} values, one per name in `columns`"
            place, remedy = f"dataframe_split.data[{i}]", "Send one value per column"
            raise request_error(place, must, f"{len(row):,}", remedy)
    if not names or names == list(range(len(names))):
        return rows
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    named = {str(name): list(each) for name, each in zip(names, columns, strict=True)}
    if len(named) < len(names):
        place, remedy = "dataframe_split.columns", "Rename one of the columns"
        raise request_error(place, "have unique names", "a name twice", remedy)
    return named


def _columns(columns: dict[str, list[Any]], form: str, limits: Limits) -> DecodedRequest:
    def place(name: str, i: int | None = None) -> str:
        return f"{form}[{shown(name)}]" + ("" if i is None else f"[{i}]")

    limits.check_size(0, len(columns), form)
    limits.check_text(max(map(len, columns)), form)
    named = {}
    for name, values in columns.items():
        limits.check_size(len(values), len(columns), place(name))
        named[name] = column(values, partial(place, name), limits)
    texts = sum(each.dtype == object for each in named.values())
    limits.check_size(max(map(len, named.values())), len(columns), form, texts=texts)
    return build_request(named, place, learning=False)


def _rows(rows: list[Any], form: str, limits: Limits, nbytes: int) -> DecodedRequest:
    def place(i: int) -> str:
        return f"{form}[{i}]"

    if type(rows[0]) in {dict, list}:
        return DecodedRequest(Rows(features(rows, place, limits, nbytes)))
    return DecodedRequest(Rows(column(rows, place, limits).astype(np.float64)[:, None]))


def write(
    request: DecodedRequest, values: Mapping[str, Array], *, model: str, version: str
) -> EncodedResponse:
    """Encode a response, which contains only predictions, as MLflow's clients expect.

    Parameters
    ----------
    request : DecodedRequest
        Ignored; other formats use it.
    values : mapping of str to ndarray
        Mapping with the predictions as ``y``; nan and infinity become null.
    model, version : str
        Ignored; other formats use them.

    Raises
    ------
    LabelError
        If a predicted text cannot be encoded in UTF-8.

    Examples
    --------
    >>> import numpy as np
    >>> write(None, {"y": np.array([0.5, 1])}, model="flow", version="7").body
    b'{"predictions":[0.5,1.0]}'
    """
    del request, model, version
    return EncodedResponse(encoded(Predictions(values["y"].tolist())))


_LONGEST = 1 << 20  # max bytes of the header line


def read_csv(
    body: bytes, limits: Limits = _NO_LIMITS, *, texts: Sequence[str] = ()
) -> DecodedRequest:
    r"""Decode a request whose body is CSV: a header line, and one line per row.

    Parameters
    ----------
    body : bytes
        CSV in UTF-8, separated by commas.
    limits : Limits
    texts : sequence of str
        The columns that are text in the model, so that codes such as 001 are not numbers.

    Raises
    ------
    RequestError
        If the body is not such CSV, or a limit is exceeded.

    Examples
    --------
    >>> read_csv(b"speed,gear\n3,low\n,high\n").rows.X["speed"]
    array([ 3., nan])
    """
    _check_size(body, limits)
    convert = csv.ConvertOptions(
        strings_can_be_null=True, column_types=dict.fromkeys(texts, pa.string())
    )
    convert.null_values = [*convert.null_values, *PANDAS_MISSING]
    try:
        errors = ParseErrors("the request")
        errors.check_beginning(body[:_LONGEST], ",")
        try:
            table = csv.read_csv(
                pa.BufferReader(body),  # in one block, as types are inferred from the first block
                read_options=csv.ReadOptions(use_threads=False, block_size=len(body) + 1),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=convert,
            )
            if pa.binary() in table.schema.types:  # pyarrow's type of text that is not UTF-8
                raise request_error("", "be UTF-8", "other bytes", "Encode the CSV in UTF-8")
            named = arrays(table, limits, len(body))
        except OnepassError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise errors.error(error) from error
    except SourceError as error:
        raise RequestError(str(error.at(where=""))) from error
    return build_request(named, columns_place, learning=False)


def _check_size(body: bytes, limits: Limits) -> None:
    """Raise RequestError if there are too many values, or too many names in the first line."""
    cells = body.count(b",") + body.count(b"\n") + body.count(b"\r")
    if cells > limits.values:
        must = f"have at most {limits.values:,} commas and line ends"
        raise request_error("", must, f"{cells:,}", "Send fewer rows per request")
    first = re.split(rb"[\r\n]", body[:_LONGEST].lstrip(), maxsplit=1)[0]
    limits.check_size(0, first.count(b",") + 1, "header")
    if len(first) == _LONGEST or first.count(b'"') % 2:
        got = "a longer line, or a line end within quotes"
        raise request_error("header", "be a line of names", got, "Begin with the column names")
