"""Targets relative to the first one.

A learner whose predictions start at 0, such as a kernel method or ORFit, must first learn the level
of the targets; its error then grows with that level. Behind this step it learns

    y − y₁,   y₁ the first target                                                        (1)

and y₁ is added to its predictions. The first target itself is learned as 0, and is predicted as 0.

Cost: O(d) time per row, O(c) memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onepass.features.transformer import Columnwise, Starts
from onepass.types import Array, Floats
from onepass.validation.table import known_rows


class TargetOrigin(Columnwise):
    """Let the regressor of a pipeline learn targets relative to the first one.

    Rows are unchanged. The step has no effect before a classifier.

    Attributes
    ----------
    recent_ : ndarray of shape (1,) or (1, c), or None
        The first target.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> model = op.Pipeline(TargetOrigin(), op.KernelRLSRegressor(gamma=1.0))
    >>> X = np.linspace(0.0, 3.0, 40)[:, None]
    >>> far = model.partial_fit(X, 5000.0 + np.sin(X[:, 0])).predict([[9.0]])
    >>> bool(abs(far[0] - 5000.0) < 1.0)
    True
    """

    _relative = True
    _accepts_missing = True
    _merging = "exact"

    recent_: Array | None

    @property
    def _uses_targets(self) -> bool:  # type: ignore[override]  # the first one only
        return getattr(self, "recent_", None) is None

    def _merge_conflict(self, other: TargetOrigin) -> str:
        """Return a reason if the targets of both were relative to different ones."""
        if self.recent_ is None or np.array_equal(self.recent_, other.recent_):  # type: ignore[arg-type]
            return ""
        return "its targets are relative to its own first target. Remove this transformer"

    def _start(self, d: int) -> None:
        del d
        self.recent_ = None

    def _widen(self, d: int) -> None:
        """Do nothing: rows are unchanged."""

    def _learn_row(self, x: Any, *, checked: bool) -> tuple[Floats, dict[str, Any]] | None:
        """Return a row unchanged, and the new attributes."""
        if not checked:
            return super()._learn_row(x, checked=checked)
        return x, {"rows_seen_": self.rows_seen_ + 1}

    def _transform_row(self, x: Any, *, checked: bool) -> Floats:
        """Return a row unchanged."""
        row: Floats = x if checked else super()._transform_row(x, checked=checked)
        return row

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        return X, starts

    def _transform_block(self, X: Floats) -> Floats:
        return X

    def _merge_block(self, other: TargetOrigin, at: Array, known: int) -> Array:
        del known
        self.recent_ = other.recent_ if self.recent_ is None else self.recent_
        return at

    def _learn_with_targets(
        self, checked_rows: Floats, starts: Starts | None, y: Array | None
    ) -> tuple[Floats, Starts]:
        """Learn the rows, and the first target."""
        result = self._learn_rows(checked_rows, starts)
        if self.recent_ is None and y is not None and len(y):
            if y.dtype.kind != "f":
                self.recent_ = np.zeros(1)  # labels have no origin
            elif (known := known_rows(y)).any():
                self.recent_ = y[known][:1].copy()
        return result

    def _level(self, ahead: int | None = None) -> Any:
        """Return the first target; 0 before it."""
        del ahead
        return 0.0 if self.recent_ is None else self.recent_[0]

    def _changes(self, past: Array | None, y: Array, learned: Array) -> tuple[Floats, Floats]:
        """Return the targets minus the origin, and the origin; both are 0 before the first target.

        ``past`` is ``recent_`` before these rows, and ``learned`` selects the learned ones.
        """
        level = np.zeros(y.shape)
        if past is not None:
            level += past
            return y - level, level
        first = np.flatnonzero(learned & known_rows(y))[:1]
        for i in first:
            level[i + 1 :] = y[i]
        changes = y - level
        changes[: first.max(initial=-1) + 1] *= 0.0  # a missing target remains so
        return changes, level
