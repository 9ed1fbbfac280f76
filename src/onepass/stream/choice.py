"""Selection of columns: which are read, and as target, time or feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onepass.errors import (
    ColumnError,
    NotFiniteError,
    OnepassError,
    ParameterError,
    ShapeError,
    SourceError,
    TypeMismatchError,
    did_you_mean,
    join_names,
)
from onepass.stream.literals import SKIP_REMEDY
from onepass.stream.sources import Chunk
from onepass.types import Array
from onepass.validation.arrays import is_finite
from onepass.validation.rows import Rows
from onepass.validation.table import Table, is_missing

_EXACT = 2.0**53  # float64 represents all integers up to this
_MISSING = ("keep", "skip", "error")
_BAD_ROWS = ("error", "skip")


class Split(NamedTuple):
    """The rows of a chunk to use, and those that are skipped, by their position in the source.

    ``gaps`` are rows with a target that are skipped because a feature is missing. ``bad`` maps
    invalid rows to their errors.
    """

    rows: Rows
    gaps: list[int]
    bad: dict[int, OnepassError]


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns of targets, times and features.

    Parameters
    ----------
    target : str, list of str or None
        The target column, or a list of them for targets of shape (n, c).
    time : str or None
        The column of times. It is also a feature unless it is dropped.
    drop : tuple of str
        Columns that are not features.
    columns : tuple of str or None
        The only columns that are features; None for all.
    where : str
        The source, for messages.
    missing : {"keep", "skip", "error"}
        How to handle rows with missing features.
    bad_rows : {"error", "skip"}
        How to handle invalid rows, and rows to learn that contain infinity.

    Raises
    ------
    ParameterError
        If ``missing`` or ``bad_rows`` is invalid, a target is dropped or is also a feature, or a
        name occurs twice.
    """

    target: str | list[str] | None
    time: str | None
    drop: tuple[str, ...]
    columns: tuple[str, ...] | None
    where: str
    missing: str = "keep"
    bad_rows: str = "error"

    def __post_init__(self) -> None:
        for option, value, known in (
            ("missing", self.missing, _MISSING), ("bad_rows", self.bad_rows, _BAD_ROWS),
        ):  # fmt: skip
            if value not in known:
                raise ParameterError(
                    f"`{option}` must be one of {', '.join(known)}, got "
                    f"{value!r}.{did_you_mean(str(value), known) or ' Choose one of these.'}",
                    self.where,
                )
        for name in self.targets:
            if name in self.drop or name in (self.columns or ()):
                raise ParameterError(
                    f"the target {name!r} must not be among `drop` or `columns`, which "
                    "select the features. Name it only as `target`.",
                    self.where,
                )
        for what, names in (("target", self.targets), ("columns", self.columns or ())):
            if len(set(names)) != len(names):
                raise ParameterError(
                    f"`{what}` must name each column once, got {list(names)}. Remove "
                    "the duplicate.",
                    self.where,
                )

    @property
    def targets(self) -> list[str]:
        """The target columns, as a list."""
        if self.target is None:
            return []
        return [self.target] if isinstance(self.target, str) else list(self.target)

    def of(self, names: Sequence[str], types: Mapping[str, str]) -> list[str]:
        """Return the columns to read, in the order of the source.

        Raises
        ------
        ColumnError
            If a named column does not exist, or a column exists twice.
        """
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise ColumnError(
                "each column must have a unique name, got "
                f"{', '.join(map(repr, twice))} more than once. Rename the columns.",
                self.where,
            )
        available = set(names)
        for what, wanted in (
            ("target", self.targets),
            ("time", [] if self.time is None else [self.time]),
            ("drop", self.drop),
            ("columns", self.columns or ()),
            ("types", types),
        ):
            for name in wanted:
                if name not in available and not (what == "drop" and _within(name, names)):
                    raise self._unknown(what, name, names)
        read = {*self._features(names), *self._others()}
        return [name for name in names if name in read]

    def split(
        self,
        chunk: Chunk,
        first: int = 0,
        start: int = 0,
        place: Callable[[int], str] | None = None,
        *,
        gaps: bool = False,
    ) -> Split:
        """Split a chunk into features, targets and times of the rows to use.

        Parameters
        ----------
        chunk : Chunk
            A chunk whose columns and targets are arrays.
        first, start : int
            Position of its first row in the source, and of the first row to use.
        place : callable, optional
            Returns the location of a row as text, by its position.
        gaps : bool
            Whether rows of numeric targets are used although a target is missing, NaN.

        Raises
        ------
        ParameterError
            If a target is named although the source has separate targets, or times are numbers
            above 2**53.
        ColumnError, TypeMismatchError, ShapeError
            If the target does not exist, is a date, or mixes text and numbers.
        """
        table = chunk.table
        targets = None if chunk.targets is None else Chunk(chunk.targets, chunk.n).table
        if self.targets and targets is not None:
            raise ParameterError(
                "`target` must be omitted if the source has separate targets, such as "
                f"(x, y), got {self.target!r}. Omit it.",
                self.where,
            )
        if self.targets:
            targets = self._picked(table, "target", self.targets)
        used = np.ones(len(table), dtype=bool)
        y = None
        if targets is not None:
            flat = chunk.flat if not self.targets else isinstance(self.target, str)
            y, used = self._targets(targets, flat=flat, gaps=gaps)
        time = None
        if self.time is not None:
            time = self._picked(table, "time", [self.time])[self.time]
            if time.dtype.kind == "f" and (large := np.abs(time) > _EXACT).any():
                raise ParameterError(
                    f"the times in column {self.time!r} must be numbers up to 2**53, "
                    f"which float64 represents exactly, got {time[large][0]:g}. Convert "
                    "them to dates or to a larger unit.",
                    self.where,
                )
        features = table.select(self._features(table.names))
        numbers = np.arange(first, first + chunk.n)
        used[list(chunk.bad)] = False
        used[: max(0, start - first)] = False
        holes = used & _gaps(features) if self.missing == "skip" else np.zeros(len(used), bool)
        rows = Rows(features, y, time=time, first=first, numbers=numbers, place=place)
        bad = {first + i: error for i, error in chunk.bad.items() if first + i >= start}
        return Split(_used_rows(rows, used & ~holes), numbers[holes].tolist(), bad)

    def check(self, split: Split) -> Split:
        """Raise for infinite values, or skip such rows; raise for missing features if required.

        Raises
        ------
        NotFiniteError
            If a row to be learned contains infinity, unless bad rows are skipped.
        SourceError
            If ``missing`` is "error" and a feature of a row is missing.
        """
        rows, bad = split.rows, dict(split.bad)
        numbers = rows.positions
        finite = np.ones(len(rows), dtype=bool)
        for name, column in self._learned(rows):
            if is_finite(column):
                continue
            for i in np.flatnonzero(np.isinf(column) & finite).tolist():
                error = NotFiniteError(
                    f"{rows.located(i)}, column {name!r} must be finite",
                    got=column[i],
                    remedy=f"Fix the row, or pass {SKIP_REMEDY}.",
                )
                if self.bad_rows == "error":
                    raise error
                finite[i], bad[int(numbers[i])] = False, error
        rows = _used_rows(rows, finite)
        if self.missing == "error" and (gaps := _gaps(rows.X)).any():
            i = int(gaps.argmax())
            name = next(n for n, c in rows.X.columns.items() if is_missing(c[i : i + 1])[0])
            raise SourceError(
                f"{rows.located(i)}, column {name!r} must have a value, got none. Fill it in, "
                "or pass missing='skip' (--missing skip) to skip such rows, or missing='keep' "
                "(--missing impute) to have the model impute it.",
            )
        return Split(rows, split.gaps, bad)

    def _learned(self, rows: Rows) -> list[tuple[str, Array]]:
        """Return the numeric columns of rows to be learned; models check the rows they predict."""
        if rows.y is None and self.bad_rows == "error":
            return []
        targets = [] if rows.y is None else rows.y.T if rows.y.ndim > 1 else [rows.y]
        names = self.targets or [f"y{j}" for j in range(len(targets))]
        columns = [*rows.X.columns.items(), *zip(names, targets, strict=False)]
        return [(name, column) for name, column in columns if column.dtype.kind == "f"]

    def _features(self, names: Sequence[str]) -> list[str]:
        """Return the feature columns of the source, in the requested order."""
        excluded = {*self.targets, *(n for drop in self.drop for n in _within(drop, names))}
        return [n for n in (names if self.columns is None else self.columns) if n not in excluded]

    def _others(self) -> list[str]:
        return [*self.targets, *([] if self.time is None else [self.time])]

    def _unknown(self, what: str, name: str, names: Sequence[str], rows: str = "") -> ColumnError:
        return ColumnError(
            f"`{what}` must name a column of the source, which has "
            f"{join_names(names) or 'no columns'}{rows}, got {name!r}."
            f"{did_you_mean(name, names) or ' Check the spelling.'}",
            self.where,
        )

    def _picked(self, table: Table, what: str, names: Sequence[str]) -> Table:
        for name in names:
            if name not in table:
                raise self._unknown(what, name, table.names, " in its first rows")
        return table.select(names)

    def _targets(self, targets: Table, *, flat: bool, gaps: bool) -> tuple[Array, Array]:
        """Return the targets as one array, and a mask of the rows without missing targets."""
        if not targets.columns:  # no targets yet
            return np.full(len(targets), np.nan), np.full(len(targets), gaps)
        used = np.ones(len(targets), dtype=bool)
        for name, column in targets.columns.items():
            if column.dtype.kind == "M":
                raise TypeMismatchError(
                    f"the target {name!r} must contain numbers or labels, got dates. "
                    f"Pass types={{{name!r}: 'text'}} if they are labels.",
                    self.where,
                )
            used &= ~is_missing(column) | (gaps and column.dtype.kind == "f")
        # a target without a value so far is nan, whatever its type will be
        known = {c.dtype.kind for c in targets.columns.values() if not is_missing(c).all()}
        if len(known) > 1:
            raise ShapeError(
                "several targets must be all numbers or all text, got both in "
                f"{join_names(targets.names)}. Use one learner per target.",
                self.where,
            )
        columns = list(targets.columns.values())
        return (columns[0] if flat else np.column_stack(columns)), used


def _used_rows(rows: Rows, used: Array) -> Rows:
    """Return the rows to use; a view if all are used."""
    return rows if used.all() else rows[used]


def _within(name: str, names: Sequence[str]) -> list[str]:
    """Return the column of this name, or the columns of the struct of this name."""
    return [name] if name in names else [n for n in names if n.startswith(f"{name}.")]


def _gaps(table: Table) -> Array:
    """Return a mask of the rows with a missing value."""
    gaps = np.zeros(len(table), dtype=bool)
    for column in table.columns.values():
        gaps |= is_missing(column)
    return gaps
