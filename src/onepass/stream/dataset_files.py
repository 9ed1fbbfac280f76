"""Files of data sets: descriptions, locations, formats and checksums.

Files are searched for in this order:

1. the package itself, for the sets that it contains;
2. the folder named by the environment variable ``ONEPASS_DATA``;
3. the cache: the folder named by ``ONEPASS_CACHE``, or the cache folder of the platform;
4. the folder of a system package.

Some sets can be downloaded, with pooch [1], into the cache.

[1] L. Uieda et al., "Pooch: A friend to fetch your data files", JOSS 5, 2020.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import SourceError
from onepass.stream.arrow import Parquet
from onepass.stream.csv import Delimited
from onepass.stream.dtypes import ColumnTypes
from onepass.stream.files import File
from onepass.stream.pictures import ImageChecksums
from onepass.stream.sources import BaseSource, Chunk, Matrix, Source
from onepass.validation.rows import concatenate_tables
from onepass.validation.table import Table

_BUNDLED = Path(__file__).parent / "data"


def cache_folder() -> Path:
    """Return the folder for fetched data sets."""
    named = os.environ.get("ONEPASS_CACHE")
    return Path(named) if named else Path(_pooch().os_cache("onepass"))


def _pooch() -> Any:
    """Import pooch, which is slow and rarely needed."""
    import pooch  # noqa: PLC0415

    pooch.get_logger().setLevel("WARNING")
    return pooch


def _folders() -> Iterator[Path]:
    """Yield the folders that are searched for files ``set/file``, in order."""
    yield _BUNDLED
    if named := os.environ.get("ONEPASS_DATA"):
        yield Path(named)
    yield cache_folder()


def _packed_or_not(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".gz" and not path.is_file() else path


Form = Callable[[Sequence[Path], str], Source]
"""Function that opens the files at some paths as a source with a name."""


def csv_form(*header: str, order: str | None = None) -> Form:
    """Return a form for CSV without a header if ``header``, sorted by ``order`` if given."""

    def opened(paths: Sequence[Path], name: str) -> Source:
        source: Source = Delimited(File(str(paths[0])), name, header=header or None)
        return source if order is None else Ordered(source, order)

    return opened


def parquet() -> Form:
    """Return a form for Parquet files."""
    return lambda paths, name: Parquet(File(str(paths[0])), name)


def recording(time: str, *groups: str) -> Form:
    """Return a form for recordings of a robot: npz files of arrays with one row per time.

    Parameters
    ----------
    time : str
        The array of times, shape (n,), in seconds.
    groups : str
        Arrays of shape (n, joints). Columns are named by group and joint, such as q0.
    """

    def opened(paths: Sequence[Path], name: str) -> Source:
        with np.load(paths[0], allow_pickle=False) as arrays:
            parts = [arrays[time][:, None], *(arrays[group] for group in groups)]
        joints = [
            f"{group}{j}"
            for group, part in zip(groups, parts[1:], strict=True)
            for j in range(part.shape[1])
        ]
        return Matrix(np.concatenate(parts, axis=1, dtype=np.float64), name, [time, *joints])

    return opened


class Ordered(BaseSource):
    """A small source, held in memory, sorted by one of its columns.

    Parameters
    ----------
    source : Source
        The rows.
    by : str
        The column to sort by; the sort is stable.
    """

    def __init__(self, source: Source, by: str) -> None:
        super().__init__(source.name, source.n_rows, repeatable=source.repeatable, prefetch=False)
        self._source = source
        self._by = by

    def columns(self) -> list[str] | None:
        """Return the column names."""
        return self._source.columns()

    def located(self, row: int) -> str:
        """Describe the position of a row after sorting."""
        return f"{self.name}: row {row} (counting from 0, sorted by {self._by!r})"

    def chunks(self, names: Sequence[str] | None, block: int, start: int = 0) -> Iterator[Chunk]:
        """Yield all rows in sorted order, as one chunk."""
        del start  # sorting reads all rows
        wanted = None if names is None else [*names, *({self._by} - set(names))]
        whole = concatenate_tables(list(_tables(self._source, wanted, block)))
        ordered = whole[np.argsort(whole[self._by], kind="stable")]
        chosen = ordered if names is None else ordered.select(names)
        yield Chunk(chosen.columns, len(chosen), fraction=1.0)


def _tables(
    source: Source,
    names: Sequence[str] | None,
    block: int,
    types: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Table]:
    """Yield tables of the rows of a source, converted to column types."""
    converter, seen = ColumnTypes(types, source.located), 0
    for chunk in source.chunks(names, block):
        yield converter.convert(chunk, seen).table
        seen += chunk.n


Progress = Callable[[str, float | None], None]
"""Called with the name of a step and the completed fraction, in [0, 1], or None if unknown."""


class Download(NamedTuple):
    """A file to download: its address, and its MD5 sum."""

    url: str
    md5: str


@dataclass(frozen=True, slots=True)
class Content:
    """Columns and checksum of a table, checked before its first row is yielded.

    Parameters
    ----------
    columns : tuple of str
        The columns.
    crc : int
        CRC-32 of the targets as float64, row by row; missing targets count as 0.
    """

    columns: tuple[str, ...]
    crc: int


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Information about a data set, independent of its files.

    Parameters
    ----------
    name : str
        Its name, for :func:`onepass.stream.dataset`.
    title : str
        Title.
    rows : int
        Number of rows, including those without a target.
    task : str
        ``"regression"`` or ``"classification"``.
    target : str or list of str
        The target column, or several; None in an entry whose form has separate targets.
    licence : str
        The licence, as stated by the source.
    source : str
        The origin of the data.
    how : str
        How to obtain the files, as an instruction.
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
class Description(DatasetInfo):
    """Description of a data set.

    Parameters
    ----------
    name, title, rows, task, target, licence, source, how
        As in :class:`DatasetInfo`.
    place : Path
        Existing or expected path of the first file.
    found : bool
        Whether all files exist.
    """

    place: Path
    found: bool


@dataclass(frozen=True, slots=True)
class Entry(DatasetInfo):
    """A data set in the catalogue.

    Parameters
    ----------
    name, title, rows, task, target, licence, source, how
        As in :class:`DatasetInfo`.
    files : tuple of str
        The files, as ``set/file`` within a data folder.
    form : callable
        Opens the files.
    content : Content or ImageChecksums
        The expected content.
    time : str, optional
        The column of times.
    drop : tuple of str
        Columns that reveal the target, or are irrelevant.
    system : str, optional
        The folder in which a system package installs the files.
    downloads : tuple of Download
        The files to download, if they are not found; with the names of ``files``, or one that
        ``unpack`` converts to ``files[0]``.
    unpack : callable, optional
        Writes ``files[0]``, its second argument, from the downloaded file, its first argument.
    """

    files: tuple[str, ...]
    form: Form
    content: Content | ImageChecksums
    time: str | None = None
    drop: tuple[str, ...] = ()
    system: str | None = None
    downloads: tuple[Download, ...] = ()
    unpack: Callable[[Path, Path], object] | None = None

    def describe(self) -> Description:
        """Return a description with the location of the files."""
        paths = self.located()
        facts = {fact.name: getattr(self, fact.name) for fact in fields(DatasetInfo)}
        if self.target is None:
            facts["target"] = "label"
        if paths is None:
            folder = Path(os.environ.get("ONEPASS_DATA") or cache_folder())
            place = folder / self.files[0]
        else:
            place = paths[0]
        return Description(**facts, place=place, found=paths is not None)

    def located(self) -> list[Path] | None:
        """Return the paths of the files, all in one folder; None if they do not exist.

        A file that ends in ``.gz`` may exist in decompressed form.
        """
        for candidates in self._candidates():
            paths = [_packed_or_not(path) for path in candidates]
            if all(path.is_file() for path in paths):
                return paths
        return None

    def _candidates(self) -> Iterator[list[Path]]:
        """Yield the paths at which the files may exist, in order."""
        for folder in _folders():
            yield [folder / file for file in self.files]
        if self.system is not None:
            yield [Path(self.system) / Path(file).name for file in self.files]

    def fetch_paths(self, progress: Progress | None = None) -> list[Path]:
        """Return the paths of the files, after downloading them if necessary.

        Raises
        ------
        SourceError
            If they do not exist and cannot be downloaded.
        """
        paths = self.located()
        if paths is not None:
            return paths
        if not self.downloads:
            raise SourceError(
                f"{self.name!r} must exist as {', '.join(self.files)} in the folder named by "
                f"ONEPASS_DATA, got no such file there or in {cache_folder()}. {self.how}."
            )
        paths = [cache_folder() / file for file in self.files]
        for i, (url, md5) in enumerate(self.downloads):
            name = url.rpartition("/")[2]
            if progress is not None:
                progress(f"download {name}", i / len(self.downloads))
            try:
                fetched = _pooch().retrieve(url, f"md5:{md5}", name, paths[0].parent)
            except (OSError, ValueError) as error:
                raise SourceError(
                    f"{url} must be available to fetch {self.name!r}",
                    got=error,
                    remedy="Check the connection and try again, or put the files "
                    f"{', '.join(self.files)} into the folder named by ONEPASS_DATA.",
                ) from error
            if self.unpack is not None:
                self.unpack(Path(fetched), paths[0])
                Path(fetched).unlink()
        if progress is not None:
            progress("done", 1.0)
        return paths

    def opened(self, paths: list[Path]) -> Source:
        """Check the content of these files, and return their rows.

        Raises
        ------
        SourceError
            If the content is wrong.
        """
        source = self.form(paths, self.name)
        if isinstance(self.content, Content):
            self._check(source, self.content, paths[0])
        return source

    def _check(self, source: Source, content: Content, path: Path) -> None:
        target_names = [self.target] if isinstance(self.target, str) else list(self.target or [])
        columns, crc, rows = tuple(source.columns() or ()), 0, 0
        if columns == content.columns:
            types = dict.fromkeys(target_names, "number")
            for table in _tables(source, target_names, 65536, types):
                targets = np.column_stack([table[name] for name in target_names])
                crc = zlib.crc32(np.nan_to_num(targets).astype("<f8").tobytes(), crc)
                rows += len(targets)
        if (columns, rows, crc) != (content.columns, self.rows, content.crc):
            raise SourceError(
                f"{path} must have the columns {list(content.columns)}, {self.rows} rows and "
                f"targets of CRC-32 {content.crc:#010x}, as {self.name!r} has",
                got=f"the columns {list(columns)}, {rows} rows and {crc:#010x}",
                remedy=f"Delete the file. {self.how}.",
            )
