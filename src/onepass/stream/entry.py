"""Entry: all that is known of one data set, and how it is found, opened and checked."""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onepass.errors import SourceError
from onepass.stream import places
from onepass.stream.forms import Form
from onepass.stream.openml import Fetcher, Progress
from onepass.stream.pictures import Pictures
from onepass.stream.pieces import Source

__all__ = ["Content", "Description", "Entry"]


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
class Description:
    """A data set in words.

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
        The answers.
    licence : str
        Under which it may be used, as its source states it.
    source : str
        Where it comes from.
    how : str
        How to get its files.
    place : Path
        Where its first file lies, or should lie.
    found : bool
        Whether all its files lie there.
    """

    name: str
    title: str
    rows: int
    task: str
    target: str | list[str]
    licence: str
    source: str
    how: str
    place: Path
    found: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A data set in the catalogue.

    Parameters
    ----------
    name, title, rows, task, licence, source, how
        As in :class:`Description`.
    files : tuple of str
        Its files, as ``set/file`` below a folder of data.
    form : callable
        Opens them.
    target : str, list of str or None
        The columns of answers; None where the form brings the answers with it.
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

    name: str
    title: str
    rows: int
    task: str
    licence: str
    source: str
    how: str
    files: tuple[str, ...]
    form: Form
    target: str | list[str] | None
    content: Content | Pictures
    time: str | None = None
    drop: tuple[str, ...] = ()
    system: str | None = None
    fetcher: Fetcher | None = None
    fetched: str | None = None

    def described(self, cache: str | os.PathLike[str] | None = None) -> Description:
        """The entry in words, with the place of its files."""
        paths = self.located(cache)
        last = places.folders(cache)[1]  # what the user names, or else the cache
        return Description(
            name=self.name, title=self.title, rows=self.rows, task=self.task,
            target="label" if self.target is None else self.target, licence=self.licence,
            source=self.source, how=self.how, place=(paths or [last / self.files[0]])[0],
            found=paths is not None,
        )  # fmt: skip

    def located(self, cache: str | os.PathLike[str] | None = None) -> list[Path] | None:
        """The paths of its files; None where they are not there."""
        paths = places.located(self.files, self.system, cache)
        if paths is None and self.fetched is not None:
            paths = places.located([self.fetched], None, cache)
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
                f"{places.cache_folder(cache)}. {self.how}."
            )
        path = places.cache_folder(cache) / (self.fetched or self.files[0])
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
        for piece in source.pieces(targets, {}, 65536):
            answers = np.column_stack([piece.table[name] for name in targets])
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
