"""OpenML: data sets fetched by scikit-learn's client, checked, and kept in the cache."""

import csv
import gzip
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from onepass.errors import SourceError
from onepass.stream.pictures import Images, Pictures

__all__ = ["Electricity", "Fetcher", "OpenMLImages", "Progress"]

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
        with _whole(path) as file:
            arrays = {part: getattr(images, part) for part in Images.__slots__}
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
        features = data[:, [names.index(name) for name in self.columns[:-1]]].astype(np.float64)
        up = np.asarray(bunch.target).astype(str) == "UP"
        with _whole(path) as file, gzip.open(file, "wt", newline="", encoding="utf-8") as text:
            writer = csv.writer(text)
            writer.writerow(self.columns)
            writer.writerows(
                [*row, int(label)] for row, label in zip(features.tolist(), up, strict=True)
            )


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


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its place only once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
