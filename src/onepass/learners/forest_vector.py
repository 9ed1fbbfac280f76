"""The vector of a forest: its parts, and other sizes of them.

native/core/forest.h describes the parts, which are the same.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from onepass import native
from onepass.memory import least_squares
from onepass.memory.vector import Fading, aligned
from onepass.memory.vector import Slot as LeastSquaresSlot
from onepass.types import Array, Floats

HEAD, CUTS, BLOCKS, BLOCK_ROWS = 16, 8, 64, 32
FADE = 0.999
_MOST_FITTED = 1000  # numbers of classes times features up to which leaves have naive Bayes
_MOST_LINEAR = 32  # features up to which leaves have least squares
_LARGEST_NUMBER = 1e15  # of a count, which is whole
_MOST_DRAWN = 64  # features that a leaf of a regression tests


class Slot(IntEnum):
    """The numbers at the head of the vector."""

    FEATURES = 0
    CLASSES = 1
    OUTPUTS = 2
    TREES = 3
    SEED = 4
    DRAWN = 5
    BAYES = 6
    LINEAR = 7
    LEAVES = 8
    LIMIT = 9
    ROWS = 10


class _Layout(NamedTuple):
    """The types of the parts of a vector."""

    common: np.dtype[Any]
    tree: np.dtype[Any]
    leaf: np.dtype[Any]
    least_squares: int


@lru_cache(maxsize=256)
def _layout(d: int, C: int, c: int, K: int, leaves: int, *, bayes: bool, linear: bool) -> _Layout:
    """The parts of a vector with these numbers in its head."""
    S, size = 1 + 2 * c if c else C, len(_empty_least_squares(d, c)) if c else 0
    number = np.float64
    cell = np.dtype(
        [("feature", number), ("count", number), ("cuts", number, (CUTS,)),
         ("bins", number, (CUTS + 2, S))]
    )  # fmt: skip
    model = (C, d, 3) if bayes else (size if linear else 0,)
    leaf = np.dtype(
        [("rows", number), ("plain", number), ("fitted", number), ("spare", number),
         ("sums", number, (S,)), ("cells", cell, (K,)), ("model", number, model)]
    )  # fmt: skip
    tree = np.dtype(
        [("leaves", number), ("draws", number), ("error", number), ("sum", number),
         ("count", number), ("blocks", number), ("spare", number, (2,)),
         ("errors", number, (BLOCKS,)), ("nodes", number, (2 * leaves - 1, 4)),
         ("leaf", leaf, (leaves,))]
    )  # fmt: skip
    common = np.dtype(
        [("head", number, (HEAD,)), ("values", number, (d,)), ("means", number, (d,)),
         ("squares", number, (d,)), ("importance", number, (d,)), ("centre", number, (c,)),
         ("variance", number, (c,)), ("base", number, (size,))]
    )  # fmt: skip
    return _Layout(common, tree, leaf, size)


class Parts:
    """Named views of the parts of a vector.

    Parameters
    ----------
    vector : ndarray
    """

    def __init__(self, vector: Floats) -> None:
        d, C, c, _, _, K, bayes, linear, leaves = map(int, vector[: Slot.LIMIT])
        layout = _layout(d, C, c, K, leaves, bayes=bool(bayes), linear=bool(linear))
        end = layout.common.itemsize // 8
        self.d, self.C, self.c, self.K = d, C, c, K
        self.bayes, self.linear = bool(bayes), bool(linear)
        self.common = vector[:end].view(layout.common)[0]
        self.head: Floats = vector[:HEAD]
        self.trees = vector[end:].view(layout.tree)

    @property
    def leaves(self) -> Array:
        """The number of leaves of each tree, (T,)."""
        leaves: Array = self.trees["leaves"].astype(np.intp)
        return leaves

    @property
    def least_squares(self) -> list[Floats]:
        """The vectors of least squares, of all rows and in leaves."""
        if not self.c:
            return []
        vectors = [self.common["base"]]
        for tree in self.trees if self.linear else ():
            vectors += list(tree["leaf"]["model"][: int(tree["leaves"])])
        return vectors


def _empty_least_squares(d: int, c: int) -> Floats:
    """The vector of least squares before the first row, with a prior of the weight of one row."""
    return least_squares.start(Fading(), 0.0, np.zeros((d, c)), free=True, prior=1.0)


def start(d: int, C: int, c: int, *, trees: int, seed: int, max_bytes: float) -> Floats:
    """The vector before the first row.

    Parameters
    ----------
    d, C, c : int
        The numbers of features and classes, or of outputs of a regression.
    trees, seed : int
    max_bytes : float
        Bound of the bytes, from which the limit of leaves follows.
    """
    head = np.zeros(HEAD)
    head[:5] = d, C, c, trees, seed
    head[Slot.LEAVES] = 1.0
    return _made(head, max_bytes)


def _made(head: Floats, max_bytes: float) -> Floats:
    """The vector before the first row, whose head has the sizes of features, classes and trees."""
    d, C, c, trees = map(int, head[:4])
    tested = min(math.ceil(0.6 * d), _MOST_DRAWN) if c else round(math.sqrt(d)) + 1
    K, bayes, linear = (
        min(max(tested, 2), d),
        0 < C * d <= _MOST_FITTED,
        c > 0 and d <= _MOST_LINEAR,
    )
    layout = _layout(d, C, c, K, int(head[Slot.LEAVES]), bayes=bayes, linear=linear)
    bytes_of_leaf = layout.leaf.itemsize + 2 * 4 * 8  # with two nodes
    limit = max(1, (max_bytes - layout.common.itemsize) // trees // bytes_of_leaf)
    leaves = min(int(head[Slot.LEAVES]), int(limit))
    head[Slot.DRAWN : Slot.ROWS] = K, bayes, linear, leaves, limit
    layout = _layout(d, C, c, K, leaves, bayes=bayes, linear=linear)
    vector = aligned(np.zeros((layout.common.itemsize + trees * layout.tree.itemsize) // 8))
    vector[:HEAD] = head
    _start_trees(vector)
    return vector


def _start_trees(vector: Floats) -> None:
    """Make each tree a single leaf, in a vector that is 0 after its head."""
    if native.loops is not None:
        native.loops.forest_start(vector)
        return
    parts = Parts(vector)
    if parts.c:
        parts.common["base"][:] = _empty_least_squares(parts.d, parts.c)
    parts.trees["error"] = 0.5
    for tree in parts.trees:
        start_tree(parts, tree)


def start_tree(parts: Parts, tree: Any) -> None:
    """Make a tree a single leaf."""
    tree["leaves"], root, leaf = 1.0, tree["nodes"][0], tree["leaf"][0]
    tree["sum"] = tree["count"] = tree["blocks"] = 0.0
    root[0], root[3] = -1.0, 0.0
    for name in ("rows", "sums", "model"):
        leaf[name] = 0.0
    leaf["plain"] = leaf["fitted"] = 0.5 if not parts.c else 1.0
    leaf["cells"] = np.zeros(1, leaf["cells"].dtype)
    leaf["cells"]["feature"] = -1.0
    if parts.linear:
        leaf["model"][:] = _empty_least_squares(parts.d, parts.c)
        leaf["model"][LeastSquaresSlot.FACTOR] = math.log2(FADE)


def resized(vector: Floats, *, d: int = 0, C: int = 0, leaves: int = 0, max_bytes: float) -> Floats:
    """The vector with more features, classes, or room for leaves.

    Trees that have more leaves than the new limit begin anew.
    """
    old, head = Parts(vector), vector[:HEAD].copy()
    sizes = d or old.d, C or old.C, leaves or old.head[Slot.LEAVES]
    head[[Slot.FEATURES, Slot.CLASSES, Slot.LEAVES]] = sizes
    grown = _made(head, max_bytes)
    new = Parts(grown)
    for name in ("values", "means", "squares", "importance"):
        new.common[name][: old.d] = old.common[name]
    if old.c:  # least squares had 0 in all rows so far; trees had no value
        new.common["values"][old.d :] = old.head[Slot.ROWS]
    for name in ("centre", "variance"):
        new.common[name] = old.common[name]
    if old.c:
        new.common["base"][:] = least_squares.grown(old.common["base"], new.d)
    for was, now in zip(old.trees, new.trees, strict=True):
        _copy_tree(old, was, new, now)
    return grown


def _copy_tree(old: Parts, was: Any, new: Parts, now: Any) -> None:
    """Copy a tree to a vector of other sizes, if it has no more leaves than that allows."""
    for name in ("draws", "error"):
        now[name] = was[name]
    n = int(was["leaves"])
    if n > new.head[Slot.LIMIT]:
        return
    for name in ("leaves", "sum", "count", "blocks", "errors"):
        now[name] = was[name]
    now["nodes"][: 2 * n - 1] = was["nodes"][: 2 * n - 1]
    before, after = was["leaf"][:n], now["leaf"][:n]
    for name in ("rows", "plain", "fitted"):
        after[name] = before[name]
    S, K = before["sums"].shape[1], old.K
    after["sums"][:, :S] = before["sums"]
    after["cells"]["feature"] = -1.0
    for name in ("feature", "count", "cuts"):
        after["cells"][name][:, :K] = before["cells"][name]
    after["cells"]["bins"][:, :K, :, :S] = before["cells"]["bins"]
    if new.bayes and old.bayes:
        after["model"][:, : old.C, : old.d] = before["model"]
    if new.linear and new.d == old.d:
        after["model"] = before["model"]
    elif new.linear:
        for one, other in zip(before["model"], after["model"], strict=True):
            other[:] = least_squares.grown(one, new.d)


def moved(vector: Floats, origins: Floats) -> Floats:
    """The vector after features that were 0 in all rows so far were at these values instead."""
    vector = aligned(vector)
    parts = Parts(vector)
    parts.common["means"][:] += origins
    for state in parts.least_squares:
        state[:] = least_squares.moved(state, origins)
    return vector


def is_sound(vector: object, d: int, C: int, c: int) -> bool:
    """Whether an array of a file is the vector of a forest with these sizes."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float64 or vector.ndim != 1:
        return False
    if len(vector) < HEAD or not np.isfinite(vector).all() or not _is_sound_head(vector, d, C, c):
        return False
    parts = Parts(vector)
    if not all(_is_sound_tree(parts, tree) for tree in parts.trees):
        return False
    return all(least_squares.is_sound(state, d, c) for state in parts.least_squares)


def _is_sound_head(vector: Floats, d: int, C: int, c: int) -> bool:
    """Whether the numbers of the head are possible, and the vector has their size."""
    head = vector[:HEAD]
    trees, _, K, bayes, linear, leaves, limit = head[Slot.TREES : Slot.ROWS].tolist()
    if (head[:3] != (d, C, c)).any() or (head < 0.0).any() or (head % 1.0 != 0.0).any():
        return False
    possible = (
        head.max() <= _LARGEST_NUMBER
        and 1.0 <= leaves <= min(limit, len(vector))
        and 1.0 <= trees <= len(vector)
        and min(d, 1) <= K <= d
        and bayes <= (C > 0)
        and linear <= (c > 0)
    )
    if not possible:
        return False
    layout = _layout(d, C, c, int(K), int(leaves), bayes=bool(bayes), linear=bool(linear))
    size = layout.common.itemsize + int(trees) * layout.tree.itemsize
    return bool(8 * len(vector) == size)


def _is_sound_tree(parts: Parts, tree: Any) -> bool:
    """Whether all indices in a tree are within it."""
    n, leaves, blocks = tree["leaves"], tree["leaf"], tree["blocks"]
    if n not in range(1, len(leaves) + 1) or blocks not in range(BLOCKS + 1):
        return False
    n = int(n)
    feature, _, missing, child = tree["nodes"][: 2 * n - 1].T
    inner = feature >= 0.0
    cells = leaves["cells"][:n]
    at = np.arange(2 * n - 1)
    return bool(
        (feature < parts.d).all()
        and (feature % 1.0 == 0.0).all()
        and (child % 1.0 == 0.0).all()
        and np.isin(missing[inner], (0.0, 1.0)).all()
        and (child[inner] > at[inner]).all()  # so that each path ends
        and (child[inner] < 2 * n - 2).all()
        and (child[~inner] >= 0.0).all()
        and (child[~inner] < n).all()
        and (cells["feature"] >= -1.0).all()
        and (cells["feature"] < parts.d).all()
        and (cells["feature"] % 1.0 == 0.0).all()
        and np.isin(cells["count"], np.arange(CUTS + 1)).all()
        and 0.0 <= tree["draws"] <= _LARGEST_NUMBER
        and tree["draws"] % 1.0 == 0.0
        and sorted(child[~inner]) == list(range(n))  # each leaf has one node
        and min(tree["error"], tree["sum"]) >= 0.0
        and tree["count"] in range(BLOCK_ROWS)
    )
