"""Chain: rows through several features, one behind the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from onepass.errors import Array, Floats
from onepass.features.transformer import Transformer

__all__ = ["asked", "taught", "taught_where"]


def taught(features: Sequence[Transformer], read: Any) -> Floats:
    """Learn rows in every feature; return them as seen at their time.

    Parameters
    ----------
    features : sequence of Transformer, at least one
    read : rows as the first one's ``read_rows`` or ``read_row`` gives them

    Returns
    -------
    ndarray of shape (n, width)
        The width is that after the last row; a column is 0 in the rows before it came.
    """
    rows: Any = read
    born: Array | None = None
    before: Transformer | None = None
    for feature in features:
        if before is not None and getattr(feature, "n_features_in_", -1) != rows.shape[1]:
            feature.feature_names_in_ = before.get_feature_names_out()
        rows, born = feature.take(rows, born)
        before = feature
    seen: Floats = rows
    return seen


def asked(features: Sequence[Transformer], read: Any) -> Floats:
    """The rows, each as if it were the next one; nothing is learned but, at first, the width."""
    if not hasattr(features[0], "n_features_in_"):
        taught(features, read[:0])
    rows: Any = read
    for feature in features:
        rows = feature.ask(rows)
    seen: Floats = rows
    return seen


def taught_where(
    features: Sequence[Transformer], read: Any, on: Array, *, in_order: bool
) -> Floats:
    """Learn the rows that are ``on``, shape (n,); return all as in ``taught``.

    The others are seen as if each were the next one: at its place if ``in_order``, which costs a
    cut wherever they begin and end; else behind all rows.
    """
    if on.all():
        return taught(features, read)
    if in_order:
        runs = np.split(np.arange(len(on)), np.flatnonzero(np.diff(on)) + 1)
    else:
        runs = [rows for rows in (np.flatnonzero(on), np.flatnonzero(~on)) if len(rows)]
    parts = [(taught if on[rows[0]] else asked)(features, read[rows]) for rows in runs]
    seen = np.zeros((len(on), parts[-1].shape[1]))
    for rows, part in zip(runs, parts, strict=True):
        seen[rows, : part.shape[1]] = part
    return seen
