"""Arrow: rows as a stream of record batches, and answers as one.

Each column is one of a table: numbers, truth values, text, dates. A column of fixed-size lists of
numbers is a matrix: by itself, or beside what belongs to rows to be learned, it is rows without
names. Dictionaries are read; nested columns else are not.

What comes is checked in full before any of it is used, for Arrow itself trusts the offsets within.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from onepass.errors import Array, OnepassError, need
from onepass.service.wire.arrays import Arrays
from onepass.service.wire.datatypes import datatype_of
from onepass.service.wire.gathered import Gathered
from onepass.service.wire.jsontext import encoded, unwritable
from onepass.service.wire.limits import Limits, refused, shown
from onepass.service.wire.messages import hold_messages
from onepass.service.wire.rows import Asked, Reply, asked
from onepass.stream.arrow import letters

__all__ = ["KIND", "read", "write"]

KIND = "application/vnd.apache.arrow.stream"
"""The content type."""

_NO_LIMITS = Limits()
_WHERE = "onepass.service.wire.arrow"


def read(body: bytes, limits: Limits = _NO_LIMITS, *, learning: bool = False) -> Asked:
    """What a request asks whose body is an Arrow stream.

    Parameters
    ----------
    body : bytes
    limits : Limits
    learning : bool, default False
        Whether the columns y, sample_weight and time are what these say, and no features.

    Raises
    ------
    RequestError
        If it is no such stream, or too large, unpacked too.
    MissingExtraError
        If pyarrow is not installed.
    """
    limits.hold_body(body)
    pa = need("pyarrow", extra="files", where=_WHERE)
    ipc = need("pyarrow.ipc", extra="files", where=_WHERE)
    gathered = Gathered(limits, _place)
    with _told(pa):
        hold_messages(ipc.MessageReader.open_stream(pa.BufferReader(body)), limits)
        source = pa.BufferReader(body)
        options = ipc.IpcReadOptions(use_threads=False)
        with ipc.open_stream(source, options=options) as reader:
            _hold_schema(reader.schema, pa, limits)
            gathered.add(dict.fromkeys(reader.schema.names), 0)
            arrays = Arrays(pa, limits)
            for batch in reader:
                batch.validate(full=True)
                columns = zip(batch.schema.names, batch.columns, strict=True)
                n = gathered.n + batch.num_rows
                limits.hold(n, batch.num_columns, "stream", texts=arrays.texts(batch.schema))
                limits.hold_sparse(n * arrays.empty(batch.schema), len(body), "stream")
                found = {name: arrays.of(each, _place(name)) for name, each in columns}
                gathered.add(found, batch.num_rows)
        if source.tell() != len(body):
            came = f"{len(body) - source.tell():,} bytes behind it"
            raise refused("", "end with its stream", came, "Send one stream a request")
        return asked(gathered.joined(), _place, learning=learning)


def write(asked: Asked, answers: Mapping[str, Array], *, model: str, version: str = "") -> Reply:
    """What is sent back: y a column, and so probabilities, as fixed-size lists.

    Parameters
    ----------
    asked : Asked
        Its ``outputs`` say what.
    answers : mapping of str to ndarray
        By the names of ``OUTPUTS``: numbers, truth values or text, or objects of one of these with
        None among them.
    model, version : str
        The model's name, and the version that answered. They stand in the schema's metadata, as
        JSON under "onepass", and the classes, if they are asked for.

    Raises
    ------
    LabelError
        If a text among the answers is none that UTF-8 can write.
    """
    pa = need("pyarrow", extra="files", where=_WHERE)
    ipc = need("pyarrow.ipc", extra="files", where=_WHERE)
    about: dict[str, Any] = {"model_name": model, "model_version": version}
    about |= {"id": asked.id} if asked.id else {}
    columns = {}
    for output in asked.outputs:
        array = answers[output.name]
        if output.name == "classes":
            about["classes"] = array.tolist()
        else:
            columns[output.name] = _column(array, pa)
    schema = pa.schema([(name, each.type) for name, each in columns.items()])
    schema = schema.with_metadata({b"onepass": encoded(about)})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    return Reply(sink.getvalue().to_pybytes(), KIND)


def _hold_schema(schema: Any, pa: ModuleType, limits: Limits) -> None:
    """Refuse columns that are too many, twice there, or of a kind that no table has."""
    names = [str(name) for name in schema.names]
    limits.hold(0, len(names), "schema")
    limits.hold_text(max(map(len, names), default=0), "schema")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise refused("schema", "hold each name once", f"{shown(twice)} again", "Rename one")
    for name, kind in zip(names, schema.types, strict=True):
        matrix = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
        inner = kind.value_type if matrix else kind
        known = letters([(name, inner)], pa).get(name)
        if (matrix and known not in {"f", "b"}) or (known is None and not pa.types.is_null(inner)):
            must = "be numbers, truth values, text, dates, or fixed-size lists of numbers"
            remedy = "Leave it out, or send columns of plain values"
            raise refused(_place(name), must, f"Arrow's {str(kind)[:80]}", remedy)


def _column(array: Array, pa: ModuleType) -> Any:
    """An array of answers as Arrow's."""
    if array.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
    if array.dtype == object and datatype_of(array).name == "FP64":
        array = array.astype(np.float64)
    try:
        return pa.array(array.tolist() if array.dtype.kind in "OU" else array)
    except UnicodeEncodeError as wrong:
        raise unwritable(wrong) from wrong


def _place(name: str) -> str:
    return f"columns[{shown(name)}]"


@contextmanager
def _told(pa: ModuleType) -> Iterator[None]:
    """Say what Arrow says of damaged bytes in the asker's words."""
    try:
        yield
    except OnepassError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as wrong:
        came = f"one that breaks off or is damaged ({str(wrong)[:200]})"
        raise refused("", "be a whole Arrow stream", came, "Check what wrote it") from wrong
