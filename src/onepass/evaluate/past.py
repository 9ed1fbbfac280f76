"""A random sample of past rows: what a model that has learned further rows still knows of them.

A model that forgets, or whose rows are sorted by class, can predict each next row well and old rows
badly; for those a :class:`onepass.Mixture` has ``recall``. Each of n rows is in the sample with
probability m / n (reservoir sampling [1]). Its error just before it was learned is compared with
those of the model at the end, for the same rows.

Cost: O(1) time per row, memory of m rows.

[1] J. S. Vitter, "Random sampling with a reservoir", ACM Transactions on Mathematical Software
    11(1), 1985; algorithm R.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier

from onepass.types import Array
from onepass.validation.rows import concatenate_tables
from onepass.validation.table import Table

_WORSE, _WRONG = 1.5, 0.1  # ratio of mean absolute errors; difference of shares of wrong labels
_MOST, _FEWEST = 0.5, 5  # share of the rows of a label, and their number


class PastErrors(NamedTuple):
    """Mean absolute errors, or shares of wrong labels, of the same rows."""

    rows: int
    before: float
    """Of the predictions just before each row was learned."""
    now: float
    """Of the model now."""
    recalled: float | None
    """Of its ``recall``, if it has one."""
    forgotten: bool
    """Whether the model is clearly worse now."""
    labels: tuple[Any, ...]
    """The labels of which most rows were predicted correctly, and now are not."""
    numbers: bool
    """Whether the targets are numbers."""


class PastRows:
    """A random sample of the rows of a stream, with their prequential predictions.

    Parameters
    ----------
    size : int
        m, the maximum number of rows.
    seed : int, default=0

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> past, model = PastRows(4), op.RLSRegressor(1e-6, op.forgetting.Window(10))
    >>> X = np.arange(40.0)[:, None]
    >>> y = np.where(X[:, 0] < 20, X[:, 0], -X[:, 0])
    >>> past.add(X, y, {"rls": model.test_then_train(X, y)})
    >>> past.errors("rls", model).rows
    4
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size, self._seen = size, 0
        self._rng = np.random.default_rng(seed)
        self._rows: list[tuple[Table | Array, Any, dict[str, Any]]] = []

    def add(self, X: Table | Array, y: Array, predictions: Mapping[str, Array]) -> None:
        """Add a block of rows, their targets, and their prequential predictions by model."""
        places = (self._rng.random(len(y)) * (self._seen + np.arange(1, len(y) + 1))).astype(int)
        for i, place in enumerate(places.tolist()):
            full = len(self._rows) == self._size
            if full and place >= self._size:
                continue
            at = np.array([i])  # copied: a view would keep the block
            row = X[at], y[at][0], {name: value[at][0] for name, value in predictions.items()}
            if full:
                self._rows[place] = row
            else:
                self._rows.append(row)
        self._seen += len(y)

    def __len__(self) -> int:
        return len(self._rows)

    def errors(self, name: str, model: Any) -> PastErrors:
        """Return the errors of a model on these rows, before it learned each of them, and now.

        Parameters
        ----------
        name : str
            The name of its predictions.
        model : learner or Pipeline
        """
        numbers, recalls = not is_classifier(model), hasattr(model, "recall")
        rows: list[Any] = [x for x, _, _ in self._rows]
        X = concatenate_tables(rows) if isinstance(rows[0], Table) else np.concatenate(rows)
        targets = [y for _, y, _ in self._rows]
        found: list[Any] = [[predictions[name] for *_, predictions in self._rows], model.predict(X)]
        found += [model.recall(X)] if recalls else []
        losses = [
            [
                np.abs(np.asarray(p, dtype=float) - y).mean() if numbers else float(p != y)
                for p in each
            ]
            for *each, y in zip(*found, targets, strict=True)
        ]
        L = np.array(losses)
        before, now, *recalled = L.mean(axis=0).tolist()
        forgotten = now > _WORSE * before if numbers else now > before + _WRONG
        labels = []
        for label in () if numbers else np.unique(targets):
            own = L[[y == label for y in targets]]
            early, late, *_ = own.mean(axis=0)
            labels += [label] if len(own) >= _FEWEST and early < _MOST <= late else []
        return PastErrors(
            len(L), before, now, recalled[0] if recalls else None, forgotten, tuple(labels), numbers
        )
