"""Strategies for tables and matrices, and references that learn row by row or in blocks."""

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cases import snapshot
from onepass.features.transformer import Transformer
from onepass.learners.rls import LeastSquares
from onepass.validation.table import Table


def row_by_row(feature: Transformer, X: Any) -> np.ndarray:
    """Features of rows learned one by one; columns added later are 0 in earlier rows."""
    rows = []
    for i in range(len(X)):
        if isinstance(X, np.ndarray) and X.shape[1] > getattr(feature, "n_features_in_", 1 << 30):
            feature.grow(X.shape[1])
        rows.append(feature.learn_transform(X[i : i + 1])[0])
    out = np.zeros((len(rows), feature.n_features_out_))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def in_blocks(feature: Transformer, X: Any, cuts: list[int]) -> np.ndarray:
    """Features of rows learned in blocks that begin at these rows."""
    edges = [0, *sorted(cuts), len(X)]
    parts = [feature.learn_transform(X[a:b]) for a, b in pairwise(edges)]
    out = np.zeros((len(X), feature.n_features_out_))
    for a, part in zip(edges[:-1], parts, strict=True):
        out[a : a + len(part), : part.shape[1]] = part
    return out


def state(thing: Any) -> Any:
    """All attributes of an object as plain values, which are equal only if all bits are."""
    if isinstance(thing, np.ndarray):
        return (
            str(thing.dtype),
            thing.shape,
            thing.tolist() if thing.dtype == object else thing.tobytes(),
        )
    if isinstance(thing, dict):
        return {name: state(value) for name, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [state(value) for value in thing]
    if isinstance(thing, LeastSquares):
        return snapshot(thing)
    if hasattr(thing, "get_params") or hasattr(thing, "__dict__"):
        return {name: state(value) for name, value in vars(thing).items()}
    return repr(thing)


FINITE = st.one_of(
    st.sampled_from([0.0, 1.0, 1e8, 1e8 + 1, 1e8 - 1, -3.5]), st.floats(-1e6, 1e6, width=32)
)
NUMBERS = st.one_of(st.none(), FINITE)
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "c", "d", "nan", "é"]))
DATES = st.one_of(st.none(), st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2040, 12, 31)))  # noqa: DTZ001


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 12) -> Table:
    """A table with two numeric columns, two of text and one of dates, with missing values."""
    n = draw(st.integers(1, max_rows))

    def column(values: st.SearchStrategy[Any], kind: Any) -> np.ndarray:
        listed = draw(st.lists(values, min_size=n, max_size=n))
        if kind is float:
            return np.array([np.nan if v is None else v for v in listed], dtype=float)
        out = np.empty(n, dtype=object)
        out[:] = listed
        return out if kind is object else out.astype("datetime64[us]")

    return Table(
        {
            "u": column(NUMBERS, float),
            "by": column(TEXTS, object),
            "when": column(DATES, "date"),
            "v": column(NUMBERS, float),
            "to": column(TEXTS, object),
        },
        n,
    )


@st.composite
def matrices(draw: st.DrawFn, *, gaps: bool, max_rows: int = 14) -> np.ndarray:
    """A matrix with columns that may be constant or far from 0 or have missing values."""
    n, d = draw(st.integers(1, max_rows)), draw(st.integers(1, 4))
    values = NUMBERS if gaps else FINITE
    rows = draw(st.lists(st.lists(values, min_size=d, max_size=d), min_size=n, max_size=n))
    return np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)


CUTS = st.lists(st.integers(0, 12), max_size=4)
