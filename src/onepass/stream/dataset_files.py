"""Files of data sets: description, location, format and checksum of each.

Files are looked for in this order:

1. the package itself, for the sets that come with it;
2. the folder named by the environment variable ``ONEPASS_DATA``;
3. the cache: the folder named by ``ONEPASS_CACHE``, or the platform's own for caches;
4. where a system package puts them.

Sets of OpenML are fetched by scikit-learn's client, checked, and stored in the cache.
"""

import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from onepass.errors import SourceError
from onepass.serialization.atomic import atomic_write
from onepass.stream.arrow import Parquet
from onepass.stream.csv import Delimited
from onepass.stream.dtypes import ColumnTypes
from onepass.stream.files import File
from onepass.stream.pictures import Images, Pictures
from onepass.stream.sources import BaseSource, Chunk, Matrix, Source
from onepass.stream.stream import concatenate_tables
from onepass.stream.write import write
from onepass.validation.table import Table

__all__ = [
    "Content",
    "Description",
    "Electricity",
    "Entry",
    "Facts",
    "Fetcher",
    "Form",
    "OpenMLImages",
    "Ordered",
    "Progress",
    "cache_folder",
    "csv_form",
    "located",
    "parquet",
    "recording",
]


_BUNDLED = Path(__file__).parent / "data"


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder in which fetched data sets are kept.

    Parameters
    ----------
    cache : path, optional
        Another folder, before all others.
    """
    if cache is not None:
        return Path(cache)
    if named := os.environ.get("ONEPASS_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "onepass"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/onepass"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onepass"


def _folders(cache: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders in which a set's files, ``set/file``, are looked for."""
    named = os.environ.get("ONEPASS_DATA")
    return [_BUNDLED, *([Path(named)] if named else []), cache_folder(cache)]


def located(
    files: Sequence[str],
    system: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> list[Path] | None:
    """The paths of a set's files, all from one folder; None where no folder has them all.

    Parameters
    ----------
    files : sequence of str
        Their paths, ``set/file``. One that ends in ``.gz`` may also lie there unpacked.
    system : str, optional
        The folder of a system package, in which they lie by their file name alone.
    cache : path, optional
        The cache to look in.
    """
    wanted = [[folder / file for file in files] for folder in _folders(cache)]
    if system is not None:
        wanted.append([Path(system) / Path(file).name for file in files])
    for paths in wanted:
        there = [_packed_or_not(path) for path in paths]
        if all(path.is_file() for path in there):
            return there
    return None


def _packed_or_not(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" and not path.is_file() else path


Form = Callable[[Sequence[Path], str], Source]
"""Opens the files at some paths as a source of some name."""


def csv_form(*header: str, order: str | None = None) -> Form:
    """A CSV file; ``header`` where it has no line of names, ``order`` the column to sort by."""

    def opened(paths: Sequence[Path], name: str) -> Source:
        source: Source = Delimited(File(str(paths[0])), name, header=header or None)
        return source if order is None else Ordered(source, order)

    return opened


def parquet() -> Form:
    """A Parquet file."""
    return lambda paths, name: Parquet(File(str(paths[0])), name)


def recording(time: str, *groups: str) -> Form:
    """A robot's recording: an npz file of arrays with a row for each moment.

    Parameters
    ----------
    time : str
        The array of moments, shape (n,), in seconds.
    groups : str
        Arrays of shape (n, joints); their columns are called by the group and the joint, as q0.
    """

    def opened(paths: Sequence[Path], name: str) -> Source:
        try:
            with np.load(paths[0], allow_pickle=False) as arrays:
                parts = [arrays[time][:, None], *(arrays[group] for group in groups)]
        except (OSError, ValueError, KeyError, EOFError, IndexError) as wrong:
            raise SourceError(
                f"op.stream: {paths[0]} must be a NumPy archive that holds {time!r} and "
                f"{', '.join(map(repr, groups))}, got one that cannot be read ({wrong}). "
                "Get it again."
            ) from wrong
        joints = [
            f"{group}{j}"
            for group, part in zip(groups, parts[1:], strict=True)
            for j in range(part.shape[1])
        ]
        return Matrix(np.concatenate(parts, axis=1, dtype=np.float64), name, [time, *joints])

    return opened


class Ordered(BaseSource):
    """A source sorted by one of its columns; all its rows are held, so it must be small.

    Parameters
    ----------
    source : Source
        The rows.
    by : str
        The column to sort by; rows that are equal in it keep their order.
    """

    def __init__(self, source: Source, by: str) -> None:
        super().__init__(source.name, source.n_rows, repeatable=source.repeatable, ahead=False)
        self._source = source
        self._by = by

    def columns(self) -> list[str] | None:
        """The names of its columns."""
        return self._source.columns()

    def located(self, row: int) -> str:
        """Where a row stands, once they are sorted."""
        return f"{self.name}: row {row} (counting from 0, sorted by {self._by!r})"

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """All rows, in order."""
        del start  # all must be read
        wanted = None if names is None else [*names, *({self._by} - set(names))]
        whole = concatenate_tables(tuple(_tables(self._source, wanted, block)))
        ordered = whole[np.argsort(whole[self._by], kind="stable")]
        chosen = ordered if names is None else ordered.select(names)
        yield Chunk(chosen.columns, len(chosen), fraction=1.0)


def _tables(source: Source, names: Sequence[str] | None, block: int) -> Iterator[Table]:
    """The rows of a source, its columns converted."""
    types, seen = ColumnTypes({}, source.located), 0
    for chunk in source.chunks(names, block):
        typed = types.convert(chunk, seen)
        seen += chunk.n
        yield typed.table


Progress = Callable[[str, float | None], None]
"""Told the step that begins and how much of all is done, in [0, 1], or None if unknown."""


class Fetcher(Protocol):
    """Gets a data set and writes it into a folder, in the form in which it will be opened."""

    def __call__(self, path: Path, progress: Progress) -> None:
        """Write the set to ``path``.

        Raises
        ------
        SourceError
            If it cannot be fetched, or is not what it should be.
        """


@dataclass(frozen=True, slots=True)
class OpenMLImages:
    """Fetches images into one npz file.

    Parameters
    ----------
    name, version
        The set in OpenML.
    pictures : Pictures
        What it must hold.
    """

    name: str
    version: int
    pictures: Pictures

    def __call__(self, path: Path, progress: Progress) -> None:
        """Write the images to ``path``."""
        bunch = _bunch(self.name, self.version, progress)
        progress("check", 0.8)
        images = self.pictures.parted(bunch.data, bunch.target, f"{self.name} of OpenML")
        progress("write", 0.9)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {part: getattr(images, part) for part in Images.__slots__}
        with atomic_write(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)


@dataclass(frozen=True, slots=True)
class Electricity:
    """Fetches New South Wales electricity into a CSV file with classes 1 (up) and 0 (down).

    Parameters
    ----------
    columns : tuple of str
        The columns that are kept, the class last.
    """

    columns: tuple[str, ...]

    def __call__(self, path: Path, progress: Progress) -> None:
        """Write the rows to ``path``."""
        bunch = _bunch("electricity", 1, progress)
        progress("write", 0.9)
        names = [str(name) for name in bunch.feature_names]
        missing = [name for name in self.columns[:-1] if name not in names]
        if missing:
            raise SourceError(
                f"op.stream.fetch: electricity of OpenML must have the columns "
                f"{list(self.columns[:-1])}, got {names}. It has changed; report this."
            )
        data = np.asarray(bunch.data)
        block = {name: data[:, names.index(name)].astype(float) for name in self.columns[:-1]}
        block[self.columns[-1]] = (np.asarray(bunch.target).astype(str) == "UP").astype(float)
        path.parent.mkdir(parents=True, exist_ok=True)
        write([block], path)


def _bunch(name: str, version: int, progress: Progress) -> Any:
    """What OpenML gives."""
    from sklearn.datasets import fetch_openml  # noqa: PLC0415  slow, and rarely needed

    progress("download", 0.0)
    # scikit-learn's own reader needs no pandas, but many times the time and memory
    parser = "pandas" if find_spec("pandas") else "liac-arff"
    try:
        return fetch_openml(name, version=version, as_frame=False, parser=parser, cache=False)
    except (OSError, ValueError) as wrong:
        raise SourceError(
            f"op.stream.fetch: {name} must be fetched from OpenML, got no answer that can be used "
            f"({wrong}). Check the connection and try again, or put the files into the folder "
            "that ONEPASS_DATA names; op.stream.datasets() says which."
        ) from wrong


@dataclass(frozen=True, slots=True)
class Content:
    """What a table must be, by which it is checked before its first row is given.

    Parameters
    ----------
    columns : tuple of str
        Its columns.
    crc : int
        CRC-32 of the answers as float64, row by row, missing ones as 0. It tells values and order.
    """

    columns: tuple[str, ...]
    crc: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a data set, wherever its files lie.

    Parameters
    ----------
    name : str
        Its name, for :func:`onepass.stream.dataset`.
    title : str
        What it is.
    rows : int
        How many rows it has, those without an answer included.
    task : str
        ``"regression"`` or ``"classification"``.
    target : str or list of str
        The answers; None in an entry whose form brings them.
    licence : str
        Under which it may be used, as its source states it.
    source : str
        Where it comes from.
    how : str
        How to get its files.
    """

    name: str
    title: str
    rows: int
    task: str
    target: str | list[str] | None
    licence: str
    source: str
    how: str


@dataclass(frozen=True, slots=True)
class Description(Facts):
    """A data set in words.

    Parameters
    ----------
    name, title, rows, task, target, licence, source, how
        As in the catalogue.
    place : Path
        Where its first file lies, or should lie.
    found : bool
        Whether all its files lie there.
    """

    place: Path
    found: bool


@dataclass(frozen=True, slots=True)
class Entry(Facts):
    """A data set in the catalogue.

    Parameters
    ----------
    name, title, rows, task, target, licence, source, how
        As in :class:`Facts`.
    files : tuple of str
        Its files, as ``set/file`` below a folder of data.
    form : callable
        Opens them.
    content : Content or Pictures
        By which it is checked.
    time : str, optional
        The column that says when a row happened.
    drop : tuple of str
        Columns that give the answer away, or mean nothing.
    system : str, optional
        The folder in which a system package puts the files.
    fetcher : callable, optional
        Gets it from the net.
    fetched : str, optional
        The file that the fetcher writes, where it is another than ``files[0]``.
    """

    files: tuple[str, ...]
    form: Form
    content: Content | Pictures
    time: str | None = None
    drop: tuple[str, ...] = ()
    system: str | None = None
    fetcher: Fetcher | None = None
    fetched: str | None = None

    def described(self, cache: str | os.PathLike[str] | None = None) -> Description:
        """The entry in words, with the place of its files."""
        paths = self.located(cache)
        last = _folders(cache)[1]  # what the user names, or else the cache
        facts = {fact.name: getattr(self, fact.name) for fact in fields(Facts)}
        if self.target is None:
            facts["target"] = "label"
        place = (paths or [last / self.files[0]])[0]
        return Description(**facts, place=place, found=paths is not None)

    def located(self, cache: str | os.PathLike[str] | None = None) -> list[Path] | None:
        """The paths of its files; None where they are not there."""
        paths = located(self.files, self.system, cache)
        if paths is None and self.fetched is not None:
            paths = located([self.fetched], None, cache)
        return paths

    def got(
        self, cache: str | os.PathLike[str] | None, progress: Progress, where: str
    ) -> list[Path]:
        """The paths of its files, fetched if they are not there.

        Raises
        ------
        SourceError
            If they are not there and cannot be fetched.
        """
        paths = self.located(cache)
        if paths is not None:
            return paths
        if self.fetcher is None:
            raise SourceError(
                f"{where}: {self.name!r} must lie as {', '.join(self.files)} below the folder that "
                "ONEPASS_DATA names, got no such file there nor in "
                f"{cache_folder(cache)}. {self.how}."
            )
        path = cache_folder(cache) / (self.fetched or self.files[0])
        self.fetcher(path, progress)
        try:
            self.opened([path])
        except SourceError:
            path.unlink(missing_ok=True)  # or it would be found the next time
            raise
        progress("done", 1.0)
        return [path]

    def opened(self, paths: list[Path]) -> Source:
        """The rows in these files, checked.

        Raises
        ------
        SourceError
            If they are not what they should be.
        """
        source = self.form(paths, self.name)
        if isinstance(self.content, Content):
            self._check(source, self.content, paths[0])
        return source

    def _check(self, source: Source, content: Content, path: Path) -> None:
        columns = source.columns() or []
        if tuple(columns) != content.columns:
            raise self._wrong(path, f"the columns {list(content.columns)}", f"{columns}")
        targets = [self.target] if isinstance(self.target, str) else list(self.target or [])
        crc, rows = 0, 0
        for table in _tables(source, targets, 65536):
            answers = np.column_stack([table[name] for name in targets])
            if answers.dtype.kind != "f":
                raise self._wrong(path, "numbers as answers", "text")
            crc = zlib.crc32(np.nan_to_num(answers).astype("<f8").tobytes(), crc)
            rows += len(answers)
        if rows != self.rows:
            raise self._wrong(path, f"{self.rows} rows", f"{rows}")
        if crc != content.crc:
            raise self._wrong(path, f"answers of CRC-32 {content.crc:#010x}", f"{crc:#010x}")

    def _wrong(self, path: Path, expected: str, came: str) -> SourceError:
        return SourceError(
            f"op.stream.dataset: {path} must have {expected}, as {self.name!r} has, got {came}. "
            f"Delete the file. {self.how}."
        )
