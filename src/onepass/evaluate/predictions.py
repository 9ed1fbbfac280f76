"""Predictions of a fitted model for the rows of a stream, block by block."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onepass.errors import ColumnError, OnepassError, did_you_mean
from onepass.evaluate.blocks import refusal
from onepass.stream import Rows
from onepass.types import Array
from onepass.validation.table import Table, is_missing

__all__ = ["answers", "check_keep"]

_WHERE = "op.evaluate.answers"


def answers(
    model: Any, stream: Iterable[Rows], *, keep: Sequence[str] = ()
) -> Iterator[dict[str, Array]]:
    """What a model says of each row; nothing is learned.

    A model that is to skip rows that lack a value, ``Encode(missing="skip")``, says nothing of
    them: nan, or None for labels.

    Parameters
    ----------
    model : learner or Pipeline
        It has learned something.
    stream : Stream or iterable of blocks
        As from ``op.stream``; the features of a block are a Table ``X``.
    keep : sequence of str
        Columns of the features that are given too, to tell the rows apart.

    Yields
    ------
    block : dict of str to ndarray of shape (n,)
        The columns kept, then ``said``; for a model with c outputs ``said0``, ``said1``, …

    Raises
    ------
    ColumnError
        If a column to keep is not there, or has the name of an answer.
    OnepassError
        If the model refuses a block: the message says which rows.

    Examples
    --------
    >>> import onepass as op
    >>> from onepass import models
    >>> model = models.pipelines(["rls"], "regression", {"rls.prior": 0.0})["rls"]
    >>> rows = [{"km": 1.0, "by": "sea"}, {"km": 2.0, "by": "sea"}, {"km": 3.0, "by": "sea"}]
    >>> _ = model.partial_fit(rows, [3.0, 5.0, 7.0])
    >>> (block,) = answers(model, op.stream.read(rows), keep=["km"])
    >>> block["km"].tolist(), block["said"].round(3).tolist()
    ([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    """
    seen = 0
    for rows in stream:
        check_keep(rows.X, keep)
        kept = {name: rows.X[name] for name in keep}
        try:
            said = _said(model, rows.X)
        except OnepassError as error:
            first = getattr(rows, "first", seen)
            place = f"{_WHERE}: {len(rows):,} rows from row {first:,} (from 0)"
            raise refusal(error, place, getattr(rows, "located", None), len(rows)) from error
        seen += len(rows)
        columns = (
            {"said": said}
            if said.ndim == 1
            else {f"said{j}": output for j, output in enumerate(said.T)}
        )
        taken = [name for name in keep if name in columns]
        if taken:
            raise ColumnError(
                f"{_WHERE}: no column to keep may be called as an answer, got {taken[0]!r}. "
                "Rename the column."
            )
        yield {**kept, **columns}


def _said(model: Any, table: Table) -> Array:
    """What the model says; nothing, nan or None, of rows that it is to skip."""
    if getattr(model, "missing", "keep") != "skip":
        return np.asarray(model.predict(table))
    whole = np.ones(len(table), dtype=bool)
    for name in model.dtypes_:
        whole &= ~is_missing(table[name]) if name in table else False
    known = np.asarray(model.predict(table[whole]))
    floats = known.dtype.kind == "f"
    said = np.full(
        (len(table), *known.shape[1:]),
        np.nan if floats else None,
        known.dtype if floats else object,
    )
    said[whole] = known
    return said


def check_keep(table: Table, keep: Iterable[str]) -> None:
    """Refuse columns to keep that are not there.

    Parameters
    ----------
    table : Table
        The features of some rows.
    keep : iterable of str

    Raises
    ------
    ColumnError
    """
    for name in keep:
        if name not in table:
            raise ColumnError(
                f"{_WHERE}: `keep` must name columns of the source that are not dropped, got "
                f"{name!r}.{did_you_mean(name, table.names) or ' Check the spelling.'}"
            )
