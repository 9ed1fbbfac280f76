"""Shown: what outcomes of experiments share: a table, its Markdown, JSON, and a folder of all."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from rich.table import Table as RichTable

from onepass.durable import writing

__all__ = ["Shown"]

_WORDS = 2  # columns of words; the others hold numbers


class Shown(ABC):
    """An outcome with a name, a title and rows of text.

    Attributes
    ----------
    name : str
        As the command line knows it.
    title : str
        What is shown.
    columns : list of str
        Heads of the table, the first two of words.
    """

    name: str
    title: str
    columns: ClassVar[list[str]]

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, text and numbers."""

    @abstractmethod
    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """All numbers as one table."""

    @abstractmethod
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The figure."""

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
            table.add_column(column, justify="left" if i < _WORDS else "right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """The same table in Markdown, with what is said of it below."""
        sides = ["---"] * _WORDS + ["---:"] * (len(self.columns) - _WORDS)
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
