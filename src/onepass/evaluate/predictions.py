"""Predictions of a fitted model for the rows of a stream, block by block.

A model with lagged targets forecasts: the rows follow the last row learned, in their order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onepass.errors import ColumnError, ParameterError, did_you_mean
from onepass.evaluate.blocks import locating
from onepass.types import Array
from onepass.validation import label_names
from onepass.validation.rows import Rows
from onepass.validation.table import Table, is_missing

_WHERE = "op.evaluate.predictions"


def predictions(
    model: Any,
    stream: Iterable[Rows],
    *,
    keep: Sequence[str] = (),
    proba: bool = False,
    interval: bool = False,
    recall: bool = False,
) -> Iterator[dict[str, Array]]:
    """Predict the rows of a stream without learning.

    If the model skips rows with missing values, as with ``Encode(missing="skip")``, predictions for
    such rows are nan, or None for labels.

    The rows of a model with lagged targets are predicted as by its ``forecast``: they follow the
    last row learned, and where the stream has a column of the target, its values are the lags.

    Parameters
    ----------
    model : learner or Pipeline
        A fitted model.
    stream : Stream or iterable of Rows
        A stream of ``op.stream``; the features of its rows are a Table ``X``.
    keep : sequence of str
        Feature columns to copy into the result, such as identifiers.
    proba : bool, default=False
        Whether to add the probabilities of the classes of a classifier.
    interval : bool, default=False
        Whether to add the intervals of a Conformal regressor.
    recall : bool, default=False
        Whether to predict rows of the whole past, as by ``recall`` of a mixture.

    Yields
    ------
    block : dict of str to ndarray of shape (n,)
        The copied columns, then ``prediction``; ``prediction0``, ``prediction1``, … for a model
        with several outputs; then ``lower`` and ``upper``, with the same numbers, or
        ``probability_`` and the class for each class.

    Raises
    ------
    ColumnError
        If a column to copy is missing, or has the name of a prediction.
    ParameterError
        If ``proba``, ``interval`` or ``recall`` is True and the model does not have it.
    OnepassError
        If the model cannot predict a block: the message names the rows.

    Examples
    --------
    >>> import onepass as op
    >>> from onepass import models
    >>> model = models.pipelines(["rls"], "regression", {"rls__prior": 0.0})["rls"]
    >>> rows = [{"km": 1.0, "by": "sea"}, {"km": 2.0, "by": "sea"}, {"km": 3.0, "by": "sea"}]
    >>> _ = model.partial_fit(rows, [3.0, 5.0, 7.0])
    >>> (block,) = predictions(model, op.stream.read(rows), keep=["km"])
    >>> block["km"].tolist(), block["prediction"].round(3).tolist()
    ([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    """
    before, keep = 0, tuple(keep)
    lagged = lagged_target(model)
    _check_able(model, lagged, proba=proba, interval=interval, recall=recall)
    model = model if lagged is None else copy.copy(model)  # forecasts become lags
    for rows in stream:
        check_keep(rows.X, keep)
        copied = {name: rows.X[name] for name in keep}
        place = f"{_WHERE}: {len(rows):,} row(s) starting at row {rows.first:,} (counting from 0)"
        with locating(rows, place):
            if lagged is None:
                found = _predict(model, rows.X, "recall" if recall else "predict")
                limits = _predict(model, rows.X, "predict_interval") if interval else None
                shares = _predict(model, rows.X, "predict_proba") if proba else None
            else:
                found, limits, shares = _forecast(
                    model, rows.X, before, lagged, interval=interval, proba=proba
                )
        before += len(rows)
        columns = (
            {"prediction": found}
            if found.ndim == 1
            else {f"prediction{j}": output for j, output in enumerate(found.T)}
        )
        if limits is not None:
            for j, name in enumerate(("lower", "upper")):
                bound = limits[..., j]
                several = {f"{name}{k}": column for k, column in enumerate(bound.T)}
                columns |= {name: bound} if bound.ndim == 1 else several
        if shares is not None:
            names = [f"probability_{label}" for label in label_names(model.classes_)]
            columns |= dict(zip(names, shares.T, strict=True))
        reserved = [name for name in keep if name in columns]
        if reserved:
            raise ColumnError(
                "columns to copy must not have the name of a prediction, got "
                f"{reserved[0]!r}. Rename the column.",
                _WHERE,
            )
        yield {**copied, **columns}


def _check_able(
    model: Any, lagged: str | None, *, proba: bool, interval: bool, recall: bool
) -> None:
    """Raise an error if the model has no probabilities, intervals or recall."""
    kind = type(getattr(model, "learner", model)).__name__
    if proba and not hasattr(model, "predict_proba"):
        text = f"`proba` must be False for a model without probabilities, got a {kind}"
        raise ParameterError(text, _WHERE, remedy="Only classifiers have them.")
    if recall and (proba or interval):
        text = "`recall` must be False with `proba` or `interval`, which it does not have, got True"
        raise ParameterError(text, _WHERE, remedy="Leave one of them out.")
    if recall and (lagged is not None or not hasattr(model, "recall")):
        raise ParameterError(
            "`recall` must be False unless the model is a mixture with rls whose forgetting is "
            f"'auto' or 1.0, without lags and keys, got a {kind}",
            _WHERE,
            remedy="Learn with the model mixture.",
        )
    if lagged is not None and interval and not hasattr(model, "_forecast_interval"):
        raise ParameterError(
            "`interval` must be False for forecasts of Keyed, got True. Learn with "
            "op.Conformal(op.Keyed(...)), whose intervals are those of all keys.",
            _WHERE,
        )
    if interval and not hasattr(model, "predict_interval"):
        raise ParameterError(
            f"`interval` must be False for a model without intervals, got a {kind}. Learn with "
            "op.Conformal(model) (on the command line, onepass run --interval 0.9).",
            _WHERE,
        )


def lagged_target(model: Any) -> str | None:
    """Return the name of the target whose lags a Pipeline or Conformal forecasts with, or None.

    Parameters
    ----------
    model : learner or Pipeline
    """
    return getattr(model, "_lagged_target", None)


def _forecast(
    model: Any,
    table: Table,
    before: int,
    lagged: str,
    *,
    interval: bool,
    proba: bool,
) -> tuple[Array, Array | None, Array | None]:
    """Forecast rows after ``before`` others; return predictions, intervals and probabilities."""
    complete = _complete(model, table)
    table = table[complete]
    known = lagged in table and lagged not in model.dtypes_  # else it is a feature of this name
    y = table[lagged] if known else None
    limits = shares = None
    if interval:
        found, limits = model._forecast_interval(table, y, before)  # noqa: SLF001
    elif proba:
        found, shares = model._forecast(table, y, proba=True)  # noqa: SLF001
    else:
        found = model._forecast(table, y)  # noqa: SLF001
    wide = [None if part is None else _spread(np.asarray(part), complete)
            for part in (limits, shares)]  # fmt: skip
    return _spread(np.asarray(found), complete), wide[0], wide[1]


def _predict(model: Any, table: Table, verb: str) -> Array:
    """Return predictions of a model; nan or None for rows that it skips."""
    complete = _complete(model, table)
    return _spread(np.asarray(getattr(model, verb)(table[complete])), complete)


def _complete(model: Any, table: Table) -> Array:
    """Return whether the model predicts each row: it may skip rows with missing values."""
    complete = np.ones(len(table), dtype=bool)
    if getattr(model, "missing", "keep") == "skip":
        for name in model.dtypes_:
            complete &= ~is_missing(table[name]) if name in table else False
    return complete


def _spread(found: Array, complete: Array) -> Array:
    """Return results of the complete rows at their places; nan or None for other rows."""
    if complete.all():
        return found
    real = found.dtype.kind == "f"
    shape = (len(complete), *found.shape[1:])
    result = np.full(shape, np.nan if real else None, found.dtype if real else object)
    result[complete] = found
    return result


def check_keep(table: Table, keep: Iterable[str]) -> None:
    """Raise an error if columns to copy are missing.

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
                "`keep` must name columns of the source that are not dropped, got "
                f"{name!r}.{did_you_mean(name, table.names) or ' Check the spelling.'}",
                _WHERE,
            )
