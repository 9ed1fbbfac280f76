"""Rows of a source: what of it may be learned, and what is tested."""

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from onepass.errors import Array, LabelError, ParameterError, ShapeError
from onepass.validation import in_range, labels, whole
from onepass.validation.table import Table, has_names, is_frame

__all__ = ["Source", "some_of", "sources"]

_APART = 6  # sets the draw of rows to test apart from others


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows with answers, and which of them are meant.

    Parameters
    ----------
    X : ndarray of shape (N, …) or Table
        All rows.
    y : ndarray of shape (N,) or (N, c)
        Their answers.
    rows : ndarray of int of shape (n,)
        Which of them.
    key : ndarray of shape (N,), or None
        What tasks are made by.
    title : str
        What the key is called.
    """

    X: Any
    y: Array
    rows: Array
    key: Array | None = None
    title: str = "key"


def sources(
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    test_share: float,
    seed: int,
    said: tuple[str, Any, Any],
) -> list[Source]:
    """Rows to learn and rows to test, checked.

    Parameters
    ----------
    X, y, X_test, y_test, test_share, seed
        As :func:`onepass.stream.experiences` has them.
    said : tuple of str, by and by_test
        The public call, and the keys.

    Raises
    ------
    ShapeError, ColumnError, ParameterError
        If they do not go together.
    LabelError
        If labels are not of one kind, text or whole numbers.
    """
    where, by, by_test = said
    if isinstance(y, str) and y_test is None and X_test is not None:
        y_test = y
    if (X_test is None) != (y_test is None):
        raise ParameterError(
            f"{where}: `X_test` and `y_test` must be given both or not at all, got one of them. "
            "Without them a share of the rows is tested."
        )
    learned = _source(X, y, by, where, "")
    if X_test is None:
        share = in_range(test_share, "test_share", where, above=0.0, high=0.9)
        return _parted(learned, share, seed)
    named = by is None or isinstance(by, (str, int))
    if not named and by_test is None:
        raise ParameterError(
            f"{where}: `by_test` must hold the key of each row to test, as `by` does of the rows "
            "to learn, got None. Give it, or name a column that both have."
        )
    return [learned, _source(X_test, y_test, by if named else by_test, where, "_test")]


def _source(X: Any, y: Any, by: Any, where: str, suffix: str) -> Source:
    rows: Any = X
    if is_frame(X):
        rows = Table.from_frame(X) if has_names(X) else np.asarray(X)
    elif not isinstance(X, Table):
        rows = np.asarray(X)
    if isinstance(y, str) and isinstance(rows, Table):
        y, rows = _answers(X, rows, y), rows.drop([y])
    answers = np.asarray(y)
    shape = (len(rows), len(rows.names)) if isinstance(rows, Table) else rows.shape
    # several answers a row have no classes that could make tasks
    if (
        not 1 <= answers.ndim <= (1 if by is None else 2)
        or len(shape) < 2
        or shape[0] != len(answers)
        or not shape[0]
    ):
        raise ShapeError(
            f"{where}: `X{suffix}` must be of shape (n, …) and `y{suffix}` of shape (n,), got "
            f"{shape} and {answers.shape}. Give one class a row, of one row or more."
        )
    if answers.ndim == 1 and answers.dtype.kind != "f":
        answers = labels(answers, len(answers), where, what=f"y{suffix}")
    key, title = _key(rows, by, len(answers), where, suffix)
    return Source(rows, answers, np.arange(len(answers)), key, title)


def _answers(frame: Any, rows: Table, name: str) -> Array:
    """A column of answers; whole numbers and truth values stay so, and are classes."""
    answers: Array = rows[name]
    if not isinstance(frame, Table):
        column = nw.from_native(frame, eager_only=True)[name]
        if column.dtype.is_integer() or column.dtype == nw.Boolean:
            gaps = bool(column.is_null().any())
            return answers if gaps else column.to_numpy()
    return answers


def _key(rows: Any, by: Any, n: int, where: str, suffix: str) -> tuple[Array | None, str]:
    """What tasks are made by, and what it is called."""
    if by is None:
        return None, ""
    if isinstance(by, str):
        if not isinstance(rows, Table):
            raise ParameterError(
                f"{where}: `by` must be a column's place, or the key of each row, where rows are "
                f"an array without names, got {by!r}. Give a frame, or the place as a number."
            )
        return rows[by], by
    if isinstance(by, (int, np.integer)) and not isinstance(by, bool):
        if isinstance(rows, Table):
            if not -len(rows.names) <= by < len(rows.names):
                raise ParameterError(
                    f"{where}: `by` must be the place of one of the {len(rows.names)} columns "
                    f"that are left, got {by}. Count from 0, or name the column."
                )
            name = rows.names[by]
            return rows[name], name
        if rows.ndim != 2 or not -rows.shape[1] <= by < rows.shape[1]:
            raise ParameterError(
                f"{where}: `by` must be the place of a column of `X{suffix}`, of shape "
                f"{rows.shape}, got {by}. Count from 0."
            )
        return rows[:, by], f"x{by % rows.shape[1]}"
    key = np.asarray(by)
    if key.shape != (n,):
        raise ShapeError(
            f"{where}: `by{suffix}` must be of shape ({n},), a key for each row, got {key.shape}. "
            "Give one for each row."
        )
    if key.dtype.kind == "O":
        _refuse_kinds(key, where, suffix)
    return key, "key"


def _refuse_kinds(key: Array, where: str, suffix: str) -> None:
    """Refuse keys that have no order: of several kinds, or with gaps."""
    try:
        np.sort(key)
    except TypeError as wrong:
        raise LabelError(
            f"{where}: `by{suffix}` must hold values of one kind, in each row, got "
            f"{' and '.join(sorted({type(each).__name__ for each in key.tolist()}))}. Drop rows "
            "without a key, and give all of them one type."
        ) from wrong


def _parted(source: Source, share: float, seed: int) -> list[Source]:
    """Some rows to test and the others to learn; of each class a share, where there are classes."""
    rng = np.random.default_rng([seed, _APART])
    real = source.y.dtype.kind == "f" or source.y.ndim > 1
    at = np.zeros(len(source.y), dtype=int) if real else np.unique(source.y, return_inverse=True)[1]
    if source.key is not None:  # neighbours along the key: each range has its share
        few = max(2, round(1.0 / share))
        at = np.minimum(_ranks(source.key) // few, max(1, len(at) // few) - 1)
    tested = np.zeros(len(at), dtype=bool)
    for group in np.split(np.argsort(at, kind="stable"), np.flatnonzero(np.diff(np.sort(at))) + 1):
        n = max(1, round(share * len(group))) if len(group) > 1 else 0
        tested[rng.choice(group, n, replace=False)] = True
    whole_of = (source.X, source.y)
    return [
        Source(*whole_of, np.flatnonzero(rows), source.key, source.title)
        for rows in (~tested, tested)
    ]


def _ranks(key: Array) -> Array:
    ranks = np.empty(len(key), dtype=int)
    ranks[np.argsort(key, kind="stable")] = np.arange(len(key))
    return ranks


def some_of(
    rows: Array, wanted: int | None, rng: np.random.Generator, where: str, name: str
) -> Array:
    """Rows drawn without replacement; all of them, shuffled, if no number is given.

    Raises
    ------
    ParameterError
        If there are fewer.
    """
    if wanted is None:
        return rng.permutation(rows)
    if whole(wanted, name, where, low=1) > len(rows):
        raise ParameterError(
            f"{where}: `{name}` must be at most {len(rows)}, as many as there are, got {wanted}. "
            "Ask for fewer."
        )
    return rng.choice(rows, wanted, replace=False)
