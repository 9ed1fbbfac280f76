"""Forms in which the files of data sets come: how to open each as a source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from onepass.errors import SourceError
from onepass.stream.arrays import Matrix
from onepass.stream.blocks import stacked
from onepass.stream.delimited import Delimited
from onepass.stream.parquet import Parquet
from onepass.stream.pieces import Piece, Source

__all__ = ["Form", "Ordered", "csv", "parquet", "recording"]

Form = Callable[[Sequence[Path], str], Source]
"""Opens the files at some paths as a source of some name."""


def csv(*header: str, order: str | None = None) -> Form:
    """A CSV file; ``header`` where it has no line of names, ``order`` the column to sort by."""

    def opened(paths: Sequence[Path], name: str) -> Source:
        source: Source = Delimited(paths[0], name, header=header or None)
        return source if order is None else Ordered(source, order)

    return opened


def parquet() -> Form:
    """A Parquet file."""
    return lambda paths, name: Parquet(paths[0], name)


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


class Ordered:
    """A source sorted by one of its columns; all its rows are held, so it must be small.

    Parameters
    ----------
    source : Source
        The rows.
    by : str
        The column to sort by; rows that are equal in it keep their order.
    """

    def __init__(self, source: Source, by: str) -> None:
        self.name = source.name
        self.n_rows = source.n_rows
        self.repeatable = source.repeatable
        self.ahead = False
        self._source = source
        self._by = by

    def columns(self) -> list[str] | None:
        """The names of its columns."""
        return self._source.columns()

    def kinds(self) -> dict[str, str]:
        """What the source is certain of."""
        return self._source.kinds()

    def located(self, row: int) -> str:
        """Where a row stands, once they are sorted."""
        return f"{self.name}: row {row} (counting from 0, sorted by {self._by!r})"

    def pieces(
        self, names: Sequence[str] | None, types: Mapping[str, str], block: int, start: int = 0
    ) -> Iterator[Piece]:
        """All rows, in order."""
        del start  # all must be read
        wanted = None if names is None else [*names, *({self._by} - set(names))]
        whole = stacked(tuple(p.table for p in self._source.pieces(wanted, types, block)))
        ordered = whole[np.argsort(whole[self._by], kind="stable")]
        yield Piece(ordered if names is None else ordered.select(names), fraction=1.0)
