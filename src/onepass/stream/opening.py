"""Opening: the source that reads whatever a user gives."""

import glob
import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from onepass.errors import ParameterError, SourceError, TypeMismatchError, meant
from onepass.stream import catalogue
from onepass.stream.arrays import Frame, Matrix, Pair
from onepass.stream.formats import FORMATS, Reading, format_of, is_read_once
from onepass.stream.iterables import OneByOne
from onepass.stream.parts import Part, Parts, hive, natural
from onepass.stream.pieces import Source
from onepass.stream.remote import Remote, is_address
from onepass.validation.table import is_frame

__all__ = ["opened"]

_WHERE = "op.stream.read"
_Place = Path | Remote


def opened(source: Any, reading: Reading) -> Source:
    """The source that reads this.

    Parameters
    ----------
    source : Any
        As :func:`onepass.stream.read` takes it, but no name of a data set.
    reading : Reading
        How files are read.

    Raises
    ------
    SourceError
        If nothing is there, or nobody can tell what it is.
    TypeMismatchError
        If it is no source.
    """
    if isinstance(source, str) and source == "-":
        return reading.stream(getattr(sys.stdin, "buffer", sys.stdin), "standard input")
    if isinstance(source, (str, os.PathLike)):
        return _named(os.fsdecode(os.fspath(source)), reading)
    if isinstance(source, (list, tuple)) and source and all(map(_is_path, source)):
        files = [_place(os.fsdecode(os.fspath(one))) for one in source]
        return _together(files, [()] * len(files), f"{len(files)} files", reading)
    if isinstance(source, io.IOBase) or callable(getattr(source, "read", None)):
        name = getattr(source, "name", None)
        return reading.stream(source, name if isinstance(name, str) else "the file object")
    held = _held(source)
    if reading.format is not None:
        raise ParameterError(
            f"{_WHERE}: `format` must be left out unless the source is a file, got "
            f"{reading.format!r} for {held.name}. Leave it out."
        )
    reading.check(None, held.name)
    return held


def _held(source: Any) -> Source:
    """The source that reads rows which are in memory, or are made one by one."""
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], Mapping):
        X, y = source
        return Pair(Frame(X) if is_frame(X) else Matrix(X), y)
    if is_frame(source):
        return Frame(source)
    if isinstance(source, np.ndarray) or hasattr(source, "nnz"):
        return Matrix(source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        return OneByOne(source)
    raise TypeMismatchError(
        f"{_WHERE}: `source` must be a path, a file object, a DataFrame, an array, (X, y) or an "
        f"iterable of rows, got {type(source).__name__}. Collect lazy frames first, and give "
        "columns as a DataFrame."
    )


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _named(text: str, reading: Reading) -> Source:
    """The source at a path, an address or a pattern."""
    pattern = any(mark in text for mark in "*?[")
    if is_address(text):
        there = Remote(text)
        if pattern and not there.exists():
            return _matching(there.matching(), text, reading)
        return _within(there, there.within(), reading) if there.is_dir() else reading.place(there)
    path = Path(text)
    if path.is_dir():
        inner = [Path(folder, file) for folder, _, files in os.walk(path) for file in files]
        return _within(path, inner, reading)
    if pattern and not path.exists():
        found = [Path(name) for name in glob.glob(text, recursive=True)]  # noqa: PTH207  any depth
        return _matching([one for one in found if not one.is_dir()], text, reading)
    return reading.place(_place(text))


def _place(text: str) -> _Place:
    """A file, which is there."""
    if is_address(text):
        return Remote(text)
    path = Path(text)
    if path.is_dir():
        raise SourceError(
            f"{_WHERE}: {path} must be a file, got a directory. Give it alone, or the files in it."
        )
    if not path.exists():
        known = format_of(path.name) is not None
        sets = "" if known else f" Data sets by name are {', '.join(catalogue.names())}."
        raise SourceError(
            f"{_WHERE}: {path} must be a file, got nothing by that name. "
            f"Check the path, which is taken from {Path.cwd()}.{sets}"
            f"{'' if known else meant(text, catalogue.names())}"
        )
    return path


def _matching(
    files: list[_Place] | list[Path] | list[Remote], text: str, reading: Reading
) -> Source:
    """The files that a pattern means."""
    if not files:
        raise SourceError(
            f"{_WHERE}: the pattern {text} must match at least one file, got none. Check it; a "
            f"relative one is taken from {Path.cwd()}."
        )
    words = PurePath(text.partition("://")[2] or text).parts
    fixed = next(i for i, word in enumerate(words) if any(mark in word for mark in "*?["))
    return _together(files, [_parts(file)[:-1][fixed:] for file in files], text, reading)


def _within(folder: _Place, files: Sequence[_Place], reading: Reading) -> Source:
    """The files in a folder and below it; those that begin with a point or a dash below are not."""
    depth = len(_parts(folder))
    seen = [
        file for file in files
        if not any(word.startswith((".", "_")) for word in _parts(file)[depth:])
    ]  # fmt: skip
    other = [file for file in seen if format_of(file.name) is None and reading.format is None]
    if other or not seen:
        came = f"{other[0]}, which is none" if other else "none"
        raise SourceError(
            f"{_WHERE}: the folder {folder} must hold files of one format ({', '.join(FORMATS)}), "
            f'got {came}. Name those that are meant by a pattern, such as "{folder}/*.parquet".'
        )
    return _together(seen, [_parts(file)[depth:-1] for file in seen], f"{folder}", reading)


def _parts(place: _Place) -> tuple[str, ...]:
    return tuple(part for part in (place.parts() if isinstance(place, Remote) else place.parts))


def _together(
    files: Sequence[_Place], folders: Sequence[Sequence[str]], name: str, reading: Reading
) -> Source:
    """Some files as one source, in natural order unless the user gave one."""
    told = [hive(each) for each in folders]
    if any(list(one) != list(told[0]) for one in told):
        odd = next(i for i, one in enumerate(told) if list(one) != list(told[0]))
        raise SourceError(
            f"{_WHERE}: all files of {name} must lie in folders of the same keys, "
            f"{list(told[0])} as {files[0]}, got {list(told[odd])} for {files[odd]}. "
            "Move the file, or name those that are meant by a pattern."
        )
    given = list(zip(files, told, strict=True))
    if not name.endswith(" files"):
        given.sort(key=lambda pair: natural(str(pair[0])))
    given = [pair for pair in given if not _is_empty(pair[0], reading)] or given
    if len(given) == 1 and not told[0]:
        return reading.place(given[0][0])
    readings = [replace(reading, leave=None)] * (len(given) - 1) + [reading]  # the last may grow
    parts = [
        Part(str(file), partial(each.place, file, str(file)), _size(file), extra)
        for (file, extra), each in zip(given, readings, strict=True)
    ]
    once = any(is_read_once(file, reading.format or format_of(file.name)) for file, _ in given)
    return Parts(parts, name, reading.literals, skip=reading.skip, repeatable=not once)


def _is_empty(file: _Place, reading: Reading) -> bool:
    """Whether a text file has no bytes, and so no rows."""
    text = (reading.format or format_of(file.name)) in {"csv", "tsv", "jsonl"}
    return text and isinstance(file, Path) and file.is_file() and _size(file) == 0


def _size(file: _Place) -> int:
    return file.size if isinstance(file, Remote) else file.stat().st_size
