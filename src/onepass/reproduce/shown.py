"""Shown: what outcomes of experiments share: a table, a figure, and files of both."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.table import Table as RichTable
from scipy.stats import ttest_rel

from onepass.errors import Floats
from onepass.serialization.atomic import writing
from onepass.stream import write

__all__ = ["Shown", "paired", "rounded"]

_SAME = 1e-9  # differences that are rounding


class Shown(ABC):
    """An outcome with a name, a title and rows of text.

    Attributes
    ----------
    name : str
        As the command line knows it.
    title : str
        What is shown.
    columns : list of str
        Heads of the table.
    """

    columns: ClassVar[list[str]]
    _words: ClassVar[int] = 2
    """Columns of words, which come first; the others hold numbers."""
    _groups: ClassVar[int] = 0
    """Columns that rows of a section of the table have in common."""

    name: str
    title: str

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers."""

    @abstractmethod
    def _tables(self) -> Iterable[dict[str, Any]]:
        """All numbers as columns, one piece after the other."""

    @abstractmethod
    def _draw(self, path: str | os.PathLike[str] | None) -> Any:
        """The figure, and where to write it."""

    @abstractmethod
    def _rows(self) -> Iterator[list[str]]:
        """The table's rows."""

    @abstractmethod
    def _caption(self) -> str:
        """What is said below the table."""

    def __rich__(self) -> RichTable:
        return self.table()

    def table(self) -> RichTable:
        """The outcome as a table for a terminal."""
        table = RichTable(title=self.title, caption=self._caption())
        for i, column in enumerate(self.columns):
            words = i < self._words
            table.add_column(column, justify="left" if words else "right", no_wrap=words)
        before: list[str] | None = None
        for row in self._rows():
            group = row[: self._groups]
            if before not in (None, group):
                table.add_section()
            table.add_row(*row)
            before = group
        return table

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The figure, as the class tells.

        Parameters
        ----------
        path : path, optional
            Where to write it; the suffix says how: .png, .svg, .pdf.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the path has another suffix.
        SourceError
            If the file cannot be written.
        """
        return self._draw(path)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """All numbers as one tidy table, whose columns the class tells; empty where there is none.

        Parameters
        ----------
        path : path
            Where to write it: .csv, .tsv, .csv.gz, .tsv.gz or .parquet.

        Raises
        ------
        ParameterError
            If the path has another suffix.
        SourceError
            If the file cannot be written.
        """
        write(self._tables(), path)

    def to_markdown(self) -> str:
        """The same table in Markdown, with what is said of it below."""
        sides = ["---"] * self._words + ["---:"] * (len(self.columns) - self._words)
        lines = ["| " + " | ".join(row) + " |" for row in [self.columns, sides, *self._rows()]]
        return "\n".join([*lines, "", self._caption(), ""])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """All of it as JSON.

        Parameters
        ----------
        path : path, optional
            Where to write it as well.

        Raises
        ------
        SourceError
            If the file cannot be written.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        if path is not None:
            with writing(path, f"{type(self).__name__}.to_json"):
                Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write NAME.json, NAME.csv, NAME.md and NAME.png: all, numbers, table and figure.

        Parameters
        ----------
        directory : path
            Made if it is not there.

        Returns
        -------
        paths : list of Path
            What was written.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed: then all but the figure is written.
        SourceError
            If the folder or a file cannot be written.
        """
        folder = Path(directory)
        with writing(folder, f"{type(self).__name__}.save"):
            folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}{suffix}" for suffix in (".json", ".csv", ".md", ".png")]
        self.to_json(paths[0])
        self.to_csv(paths[1])
        with writing(paths[2], f"{type(self).__name__}.save"):
            paths[2].write_text(self.to_markdown(), encoding="utf-8")
        self.plot(paths[3])
        return paths


def rounded(tree: Any, by: Callable[[float], float]) -> Any:
    """A tree of dicts and lists with all its numbers that are not whole rounded.

    Parameters
    ----------
    tree : dict, list, tuple or what they hold
    by : callable
        Rounds a number.
    """
    if isinstance(tree, dict):
        return {name: rounded(part, by) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [rounded(part, by) for part in tree]
    return by(tree) if isinstance(tree, float) else tree


def paired(ours: Sequence[float] | Floats, base: Sequence[float] | Floats) -> float | None:
    """The p of a paired t-test, two-sided; None where there is nothing to test.

    That is of fewer than two pairs, if all differ by the same, or if one is not finite.

    Parameters
    ----------
    ours, base : sequence of float, or array
        A number each of every run.
    """
    if len(ours) < 2 or not (np.isfinite(ours).all() and np.isfinite(base).all()):
        return None
    if np.ptp(np.subtract(ours, base)) < _SAME:
        return None
    return float(ttest_rel(ours, base).pvalue)
