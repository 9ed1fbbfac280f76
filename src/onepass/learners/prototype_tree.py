"""Prototypes with the axes that they are compared along, in one or several levels.

With one level this is Algorithm 1 of [1]. With several levels, the axes and prototypes of an upper
level divide the rows into clusters, without their labels. Each cluster has its own axes and
prototypes, learned from the rows that it matched ([1] A.6): local axes retain more of the variance
of their rows than as many global ones ([2]). A row is compared at the root, and then within the
most similar cluster only. All prototypes are stored in the space of the rows, so that they follow
each change of the axes of their own level ([1] Proposition 1).

Cost: a level compares a row with the prototypes of one node. Each node stores axes.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
[2] K. Chakrabarti, S. Mehrotra, "Local dimensionality reduction: a new approach to indexing high
    dimensional spaces", VLDB 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onepass import linalg
from onepass.errors import NumericalError
from onepass.learners.discriminant_axes import DiscriminantAxes
from onepass.learners.prototypes import (
    PCA_MODES,
    Prototypes,
    Rules,
    Similarity,
    compares_rows,
    match_and_update,
    project,
)
from onepass.linalg.pca import IncrementalPCAState, rows_between
from onepass.types import Array, Floats

Axes: TypeAlias = IncrementalPCAState | DiscriminantAxes


class LevelRules(NamedTuple):
    """The rules of one level."""

    rules: Rules
    """Rules for matching."""
    mode: str
    """One of ``PCA_MODES``."""
    shrinkage: float | str | None
    """ε of discriminant axes; None for principal axes."""
    n_components: float
    """The number of axes, or the share of the variance that they retain."""
    block: int | None
    """Rows between two updates of the axes."""
    c: int
    """The number of classes."""
    who: str
    """The name of the learner, for messages."""

    def axes(self, d: int) -> Axes | None:
        """Axes before the first row, for d features."""
        if self.mode == "none":
            return None
        k = self.n_components
        block = rows_between(self.block, k, d)
        if self.shrinkage is None:
            return IncrementalPCAState.start(d, k, block)
        return DiscriminantAxes.start(d, self.c, k, block, self.shrinkage)


class TreeMatches(NamedTuple):
    """What rows matched: of the leaves, the label and indices from the root; −1 for none."""

    labels: Array
    """The label of the most similar prototype, (n,)."""
    nearest: Array
    """The indices of the most similar prototypes, (n, levels)."""
    assigned: Array
    """The indices of the prototypes that the row moved or became, (n, levels)."""
    scores: Floats
    """Similarities with the most similar prototype of each class, (n, c), of scored rows."""


@dataclass(frozen=True, eq=False, slots=True)
class PrototypeTree:
    """One node: axes, and the prototypes that are compared along them.

    Parameters
    ----------
    axes : IncrementalPCAState, DiscriminantAxes or None
    mode : str
        One of ``PCA_MODES``.
    store : Prototypes
    children : tuple of PrototypeTree
        The node of the next level of each prototype; empty in the last level.
    """

    axes: Axes | None
    mode: str
    store: Prototypes
    children: tuple[PrototypeTree, ...] = ()

    @classmethod
    def start(cls, level: LevelRules, d: int, axes: Axes | None = None) -> PrototypeTree:
        """The node before its first row, with axes learned before, if any."""
        return cls(None, level.mode, Prototypes.start(d)).with_axes(axes or level.axes(d))

    def joined(self, X: Floats, level: LevelRules) -> PrototypeTree:
        """The node with principal axes learned from rows without labels, as one batch."""
        n = len(X)
        rows = (X, np.ones(n), np.zeros(n, dtype=np.intp))
        return self.with_axes(self.updated_axes("joined", rows, np.arange(n), level))

    def with_axes(self, axes: Axes | None) -> PrototypeTree:
        """The node with other axes, and all prototypes projected on them."""
        view = None if axes is None else partial(project, axes, self.mode)
        return replace(self, axes=axes, store=self.store.with_coordinates(view))

    def project(self, X: Floats) -> Floats:
        """Coordinates of rows for comparison, (n, k) or (n, d)."""
        return X if self.axes is None else project(self.axes, self.mode, X)

    def learn(
        self, levels: Sequence[LevelRules], X: Floats, labels: Array, s: Floats, scored: Array
    ) -> tuple[PrototypeTree, TreeMatches]:
        """Learn rows one after the other.

        Parameters
        ----------
        levels : sequence of LevelRules
            The rules of this level and the following ones.
        X : ndarray of shape (n, d)
        labels : ndarray of int of shape (n,)
        s : ndarray of shape (n,)
            Weights. Rows of weight 0 are compared only.
        scored : ndarray of bool of shape (n,)
            The rows whose scores are returned.

        Returns
        -------
        tree : PrototypeTree
            After the rows.
        matches : TreeMatches
            Each row's matches just before it was learned.
        """
        level, last = levels[0], len(levels) == 1
        node, places, n = self, np.flatnonzero(s), len(X)
        own, ends = labels if last else np.zeros_like(labels), [n]
        if self.axes is not None and len(places) and self._joins:
            node = node.with_axes(node.updated_axes("joined", (X, s, labels), places, level))
        elif self.axes is not None and len(places) and self.mode == "incremental":
            ends = [int(places[k - 1]) + 1 for k in self.axes.checkpoints(len(places))]
            ends += [n] if ends[-1] < n else []
        matches, scores = np.full((n, 3), -1), np.zeros((n, level.c))
        for begin, end in pairwise((0, *ends)):
            rows = slice(begin, end)
            store, matches[rows] = match_and_update(
                node.store, level.rules, X[rows], node.project(X[rows]), own[rows], s[rows],
                scored[rows] & last, scores[rows],
            )  # fmt: skip
            node = replace(node, store=store)
            learned = places[(begin <= places) & (places < end)]
            if node.axes is not None and self.mode == "incremental" and len(learned):
                axes = node.updated_axes("taken", (X, s, labels), learned, level)
                same = axes.view is node.axes.view
                node = replace(node, axes=axes) if same else node.with_axes(axes)
        found = TreeMatches(matches[:, 0], matches[:, 1:2], matches[:, 2:], scores)
        return (node, found) if last else node.learn_children(levels, X, labels, s, scored, found)

    def learn_children(
        self,
        levels: Sequence[LevelRules],
        X: Floats,
        labels: Array,
        s: Floats,
        scored: Array,
        own: TreeMatches,
    ) -> tuple[PrototypeTree, TreeMatches]:
        """Learn rows in the node of the prototype that they moved or became."""
        children, depth = self.all_children(levels), len(levels) - 1
        below = np.full((2, len(X), depth), -1)
        predicted = np.full(len(X), -1)
        nearest, assigned = own.nearest[:, 0], own.assigned[:, 0]
        for q in np.unique(np.concatenate((nearest, assigned))).tolist():
            here = (nearest == q) | (assigned == q)
            if q < 0:
                continue
            children[q], found = children[q].learn(
                levels[1:], X[here], labels[here], np.where(assigned == q, s, 0.0)[here],
                (scored & (nearest == q))[here],
            )  # fmt: skip
            of_nearest = nearest == q
            predicted[of_nearest] = found.labels[of_nearest[here]]
            own.scores[of_nearest] = found.scores[of_nearest[here]]
            below[0, of_nearest] = found.nearest[of_nearest[here]]
            of_assigned = assigned == q
            below[1, of_assigned] = found.assigned[of_assigned[here]]
        paths = np.hstack((own.nearest, below[0])), np.hstack((own.assigned, below[1]))
        return replace(self, children=tuple(children)), TreeMatches(predicted, *paths, own.scores)

    def all_children(self, levels: Sequence[LevelRules]) -> list[PrototypeTree]:
        """The nodes of all prototypes; those of new prototypes are empty."""
        d, new = self.store.pages[0].rows.shape[1], len(self.store) - len(self.children)
        return [*self.children, *(PrototypeTree.start(levels[1], d) for _ in range(new))]

    def merged(self, other: PrototypeTree, levels: Sequence[LevelRules]) -> PrototypeTree:
        """Merge the axes, then learn the other node's prototypes as weighted rows.

        The nodes of prototypes that match are merged in turn.
        """
        node, store = self, other.store
        if self.axes is not None and (self.mode != "static" or not self.axes.mass):
            node = self.with_axes(self.axes.merged(other.axes))  # type: ignore[arg-type]
        rows, labels, weights = (store.all(name) for name in ("rows", "labels", "weights"))
        merged, matches = match_and_update(
            node.store, levels[0].rules, rows, node.project(rows), labels, weights
        )
        node = replace(node, store=merged)
        if len(levels) == 1:
            return node
        children = node.all_children(levels)
        for child, at in zip(other.children, matches[:, 2].tolist(), strict=True):
            children[at] = children[at].merged(child, levels[1:])
        return replace(node, children=tuple(children))

    def leaves(self, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
        """All nodes of the last level, with the indices of the prototypes above them."""
        if not self.children:
            yield path, self
        for q, child in enumerate(self.children):
            yield from child.leaves((*path, q))

    def routed(
        self, X: Floats, similarity: Similarity, path: tuple[int, ...] = ()
    ) -> Iterator[tuple[Array, tuple[int, ...], PrototypeTree]]:
        """The node of the last level that rows are compared in, with the indices of its rows."""
        if not self.children:
            yield np.arange(len(X)), path, self
            return
        nearest = self.store.similarities(self.project(X), similarity).argmax(axis=1)
        for q in np.unique(nearest).tolist():
            at = np.flatnonzero(nearest == q)
            for rows, places, leaf in self.children[q].routed(X[at], similarity, (*path, q)):
                yield at[rows], places, leaf

    def placed(self, at: Array, d: int, outputs: Array, c: int) -> PrototypeTree:
        """Extend to d features, which were zero so far, and c classes, at these indices."""
        axes, store = self.axes, self.store
        if isinstance(axes, DiscriminantAxes):
            axes = axes.placed(at, d, outputs, c)
        if not self.children:
            store = store.relabelled(outputs)
        children = tuple(child.placed(at, d, outputs, c) for child in self.children)
        node = replace(self, axes=axes, store=store, children=children)
        if np.array_equal(at, np.arange(d)):
            return node
        if isinstance(axes, IncrementalPCAState):
            axes = axes.placed(at, d)
        return replace(node, store=store.placed(at, d)).with_axes(axes)

    def compact(self) -> PrototypeTree:
        """The node for prediction only, without rows."""
        axes = None if self.axes is None else self.axes.fixed()
        children = tuple(child.compact() for child in self.children)
        return PrototypeTree(axes, self.mode, self.store.compact(), children)

    def is_sound(self, d: int, c: int, *, compact: bool) -> bool:
        """Whether the parts are consistent, for d features and c classes."""
        store, axes, children = self.store, self.axes, self.children
        if not (type(store) is Prototypes and store.all("labels").max(initial=-1) < c):
            return False
        if self.mode not in PCA_MODES or (axes is None) != (self.mode == "none"):
            return False
        if type(children) is not tuple or len(children) not in {0, len(store)}:
            return False
        kinds = {type(child) for child in children} | {PrototypeTree}
        if len(kinds) > 1 or not all(one.is_sound(d, c, compact=compact) for one in children):
            return False
        widths = {page.rows.shape[1] for page in store.pages} - ({0} if compact else set())
        width = d
        if axes is not None:
            if type(axes) not in {IncrementalPCAState, DiscriminantAxes}:
                return False
            width = d if compares_rows(axes, self.mode) else len(axes.view.lengths)
            widths |= {len(axes.view.center)}
        return widths <= {d} and store.pages[0].compared.shape[1] == width

    @property
    def _joins(self) -> bool:
        """Whether the axes are learned from all rows of a call before any prototype."""
        new = self.axes is not None and not self.axes.mass
        return self.mode == "task" or (self.mode == "static" and new)

    def updated_axes(
        self, verb: str, rows: tuple[Array, ...], learned: Array, level: LevelRules
    ) -> Axes:
        """The axes after those of the rows X, s, labels; raise an error if they are not finite."""
        X, s, labels = rows if len(learned) == len(rows[0]) else (part[learned] for part in rows)
        given = (X, s, labels) if isinstance(self.axes, DiscriminantAxes) else (X, s)
        axes: Axes | None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                axes = getattr(self.axes, verb)(*given)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not axes.finite:
            raise NumericalError(
                "rows and their weights must be small enough to square and sum, got values up to "
                f"{linalg.magnitude(X):.3g} and weights up to {s.max(initial=0.0):.3g}. Divide the "
                "features by a constant, and smaller weights.",
                level.who,
            )
        return axes
