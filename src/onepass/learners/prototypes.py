"""Prototypes: means of rows that matched each other.

Prototypes are stored in the space of the rows and compared by their coordinates along principal
axes, z = V (x − m), which may change. They are stored in pages, so that learning a row copies one
page and not all prototypes.

The similarity of two vectors a and b is one of

=========== ===================================================== ==========
cosine      aᵀb / (‖a‖ ‖b‖); 1 if both are zero, 0 if only one is [−1, 1]
euclidean   1 / (1 + ‖a − b‖)                                     (0, 1]
=========== ===================================================== ==========

or a function of rows A (n, k) and B (m, k) that returns (n, m), of any range, which is called for
one row at a time. A matrix product rounds differently from a product of two vectors. So that the
number of vectors compared at once makes no difference, similarities are rounded to a grid far
coarser than rounding errors: the oldest of equal prototypes is matched, and a row has the highest
similarity to itself.

A row x is matched with the most similar of the current prototypes. If the similarity is at least ρ
(vigilance) and the label is the same, the prototype moves towards the row,

    w ← w + η (x − w),    η = s / Σ s of all rows averaged in it, or a fixed β                  (1)

and otherwise the row becomes a prototype ([1] Algorithm 1, lines 6 to 14). As (1) is linear, it
also updates the coordinates z = V (w − m), which are recomputed only when the axes change ([1]
Proposition 1).

One matrix product compares the rows of a block with all prototypes before the block; only
prototypes that were moved or added within the block are compared again, row by row. The result is
that of the row-by-row loop. Cost per row, with W prototypes: O(Wk + d) time.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import ParameterError
from onepass.types import Array, Floats

_GRID = 2.0**40  # steps of 1
_CANCELS = 1e-3  # share of a² + b²; smaller squared distances lose their digits by cancellation
_PIECE = 1 << 18  # values of differences that are computed at once


def lengths_of(rows: Floats) -> Floats:
    """Euclidean lengths of rows."""
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return lengths


def _cosine(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """Cosines (n, m) of rows A (n, k) with rows B (m, k), whose lengths are a and b."""
    scale = a[:, None] * b
    zero = scale == 0.0
    similarities = A @ B.T
    if zero.any():
        similarities[zero] = ((a == 0.0)[:, None] & (b == 0.0))[zero]
        scale[zero] = 1.0
    similarities /= scale
    return _on_grid(similarities)


def _cosine_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """Cosines (m,) of one row (k,) with rows B (m, k), in fewer calls."""
    scale = length * b
    if not scale.all():
        whole: Floats = _cosine(z[None], B, np.array([length]), b)[0]
        return whole
    similarities = B @ z
    similarities /= scale
    return _on_grid(similarities)


def _nearness_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """1 / (1 + distance) of one row (k,) from rows B (m, k), (m,)."""
    similarities: Floats = _nearness(z[None], B, np.array([length]), b)[0]
    return similarities


def _nearness(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """1 / (1 + distance) of rows A (n, k) from rows B (m, k), (n, m)."""
    whole = (a * a)[:, None] + b * b
    squares = A @ B.T
    squares *= -2.0
    squares += whole
    near, others = np.nonzero(squares < _CANCELS * whole)
    step = max(_PIECE // max(A.shape[1], 1), 1)
    for i in range(0, len(near), step):
        pair = near[i : i + step], others[i : i + step]
        apart = A[pair[0]] - B[pair[1]]
        squares[pair] = np.einsum("ij,ij->i", apart, apart)
    return _on_grid(1.0 / (1.0 + np.sqrt(np.maximum(squares, 0.0))))


def _on_grid(similarities: Floats) -> Floats:
    similarities *= _GRID
    np.rint(similarities, out=similarities)
    similarities /= _GRID
    return similarities


Similarity = str | Callable[[Floats, Floats], Floats]
"""A name of ``SIMILARITIES``, or a function."""

SIMILARITIES: dict[str, tuple[Callable[[Any, Any, Any, Any], Floats], float]] = {
    "cosine": (_cosine, -1.0),
    "euclidean": (_nearness, 0.0),
}
"""For each name, a function of two sets of rows and their lengths, and its minimum."""

ROW_SIMILARITIES: dict[str, Callable[[Any, Any, float, Any], Floats]] = {
    "cosine": _cosine_of_one,
    "euclidean": _nearness_of_one,
}
"""For each name, the function for one row (k,) and other rows (m, k), which returns (m,)."""

PAGE = 128  # prototypes in a page
BLOCK = 128  # rows that are compared at once


@dataclass(frozen=True, eq=False, slots=True)
class Page:
    """At most ``PAGE`` prototypes.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Prototypes in the space of the rows; (n, 0) in a compact learner.
    coordinates : ndarray of shape (n, k)
        Coordinates along the axes; (n, 0) if rows are compared without axes.
    labels : ndarray of int of shape (n,)
        The index of the class of each prototype.
    weights : ndarray of shape (n,)
        The total weight of the rows averaged in each prototype.
    """

    rows: Floats
    coordinates: Floats
    labels: Array
    weights: Floats

    @property
    def compared(self) -> Floats:
        """The vectors that rows are compared with, (n, k) or (n, d)."""
        return self.coordinates if self.coordinates.shape[1] else self.rows


@dataclass(frozen=True, eq=False, slots=True)
class Prototypes:
    """All prototypes, in the order in which they were added.

    Parameters
    ----------
    pages : tuple of Page
        All pages but the last are full.
    """

    pages: tuple[Page, ...]

    @classmethod
    def start(cls, d: int) -> Prototypes:
        """An empty set of prototypes with d features, compared without axes."""
        return cls((Page(np.zeros((0, d)), np.zeros((0, 0)), np.zeros(0, np.intp), np.zeros(0)),))

    @property
    def _sound(self) -> bool:
        """Whether shapes, types and values are consistent."""
        pages, shapes = self.pages, set()
        if not (type(pages) is tuple and pages and all(type(page) is Page for page in pages)):
            return False
        for page in pages:
            arrays = (page.rows, page.coordinates, page.labels, page.weights)
            n = len(page.labels)
            fits = [array.shape[:1] == (n,) for array in arrays]
            flat = (
                page.labels.ndim == page.weights.ndim == 1
                and page.rows.ndim == page.coordinates.ndim == 2
            )
            if not (all(fits) and flat and page.labels.dtype.kind == "i" and n <= PAGE):
                return False
            if not all(np.isfinite(array).all() for array in arrays):
                return False
            if (page.labels < 0).any() or (page.weights < 0).any():
                return False
            shapes.add((page.rows.shape[1], page.coordinates.shape[1]))
        return len(shapes) == 1 and all(len(page.labels) == PAGE for page in pages[:-1])

    def __len__(self) -> int:
        return (len(self.pages) - 1) * PAGE + len(self.pages[-1].labels)

    def all(self, name: str) -> Array:
        """``rows``, ``coordinates``, ``labels`` or ``weights`` of all prototypes."""
        return np.concatenate([getattr(page, name) for page in self.pages])

    def compared(self) -> Floats:
        """The vectors that rows are compared with, (W, k) or (W, d)."""
        return np.concatenate([page.compared for page in self.pages])

    def place(self, number: int) -> tuple[Page, int]:
        """The page of a prototype, and the index of the prototype on that page."""
        return self.pages[number // PAGE], number % PAGE

    def rows(self, numbers: Array) -> Floats:
        """The prototypes with these indices, (m, d)."""
        places = [self.place(number) for number in numbers.tolist()]
        if not places:
            return self.pages[0].rows[:0]
        return np.stack([page.rows[at] for page, at in places])

    def with_coordinates(self, view: Callable[[Floats], Floats] | None) -> Prototypes:
        """The prototypes with coordinates along other axes, or without axes."""
        new = (lambda rows: np.zeros((len(rows), 0))) if view is None else view
        return Prototypes(tuple(replace(page, coordinates=new(page.rows)) for page in self.pages))

    def replaced(
        self, numbers: Array, rows: Floats, coordinates: Floats, weights: Floats
    ) -> Prototypes:
        """Replace the prototypes with these indices."""
        pages = list(self.pages)
        for at in np.unique(numbers // PAGE):
            here, page = numbers // PAGE == at, pages[at]
            places = numbers[here] % PAGE
            new = Page(page.rows.copy(), page.coordinates.copy(), page.labels, page.weights.copy())
            new.rows[places], new.weights[places] = rows[here], weights[here]
            if new.coordinates.shape[1]:
                new.coordinates[places] = coordinates[here]
            pages[at] = new
        return Prototypes(tuple(pages))

    def added(
        self, rows: Floats, coordinates: Floats, labels: Array, weights: Floats
    ) -> Prototypes:
        """Append prototypes."""
        if not len(labels):
            return self
        last = self.pages[-1]
        appended = Prototypes.of(
            np.concatenate((last.rows, rows)),
            np.concatenate((last.coordinates, coordinates[:, : last.coordinates.shape[1]])),
            np.concatenate((last.labels, labels)),
            np.concatenate((last.weights, weights)),
        )
        return Prototypes((*self.pages[:-1], *appended.pages))

    def compact(self) -> Prototypes:
        """The prototypes with their coordinates only, without rows."""
        pages = (
            replace(page, rows=np.zeros((len(page.labels), 0)), coordinates=page.compared.copy())
            for page in self.pages
        )
        return Prototypes(tuple(pages))

    def placed(self, at: Array, d: int) -> Prototypes:
        """Move the features to the columns ``at`` of d; coordinates do not change."""

        def wide(rows: Floats) -> Floats:
            new = np.zeros((len(rows), d))
            new[:, at] = rows
            return new

        return Prototypes(tuple(replace(page, rows=wide(page.rows)) for page in self.pages))

    def relabelled(self, places: Array) -> Prototypes:
        """The prototypes with class i renumbered to ``places[i]``."""
        pages = (replace(page, labels=places[page.labels]) for page in self.pages)
        return Prototypes(tuple(pages))

    def selected(self, numbers: Array) -> Prototypes:
        """The prototypes with these indices, in this order."""
        names = ("rows", "coordinates", "labels", "weights")
        return Prototypes.of(**{name: self.all(name)[numbers] for name in names})

    @classmethod
    def of(cls, rows: Floats, coordinates: Floats, labels: Array, weights: Floats) -> Prototypes:
        """Prototypes from arrays, divided into pages."""
        cuts = range(0, max(len(labels), 1), PAGE)
        spans = [slice(i, i + PAGE) for i in cuts]
        return cls(tuple(Page(rows[a], coordinates[a], labels[a], weights[a]) for a in spans))

    def similarities(self, Z: Floats, similarity: Similarity) -> Floats:
        """Similarities (n, W) of rows (n, k), along the axes, with all prototypes."""
        if callable(similarity):
            one, others = row_similarity(similarity), self.compared()
            rows = [one(z, others, 0.0, 0.0) for z in Z]
            return np.reshape(rows, (len(Z), len(others)))
        compare, _ = SIMILARITIES[similarity]
        lengths = lengths_of(Z)
        parts = [
            compare(Z, page.compared, lengths, lengths_of(page.compared)) for page in self.pages
        ]
        return np.concatenate(parts, axis=1)

    def best(self, Z: Floats, similarity: Similarity, c: int) -> Floats:
        """Similarities (n, c) of rows with the most similar prototype of each of c classes.

        If classes tie, the score of the class with the oldest prototype is unchanged; those of the
        others are lowered by one unit in the last place. A class without prototypes has the lowest
        score.
        """
        scores, labels = np.empty((len(Z), c)), self.all("labels")
        for rows in _spans(len(Z)):
            scores[rows] = _best(self.similarities(Z[rows], similarity), labels, c, similarity)
        return scores


def _best(S: Floats, labels: Array, c: int, similarity: Similarity) -> Floats:
    """The scores of :meth:`Prototypes.best` from similarities (n, W), oldest prototype first."""
    scores = np.full((len(S), c), _least(similarity) - 1.0)
    if not S.shape[1]:
        return scores
    for label in np.unique(labels):
        scores[:, label] = S[:, labels == label].max(axis=1)
    ahead, each = labels[S.argmax(axis=1)], np.arange(len(S))
    tied = scores == scores[each, ahead][:, None]
    tied[each, ahead] = False
    scores[tied] = np.nextafter(scores[tied], -np.inf)
    return scores


def row_similarity(similarity: Similarity) -> Callable[[Any, Any, float, Any], Floats]:
    """The function for one row (k,) and other rows (m, k), with their lengths; it returns (m,)."""
    if not callable(similarity):
        return ROW_SIMILARITIES[similarity]

    def compare(z: Any, B: Any, length: float, lengths: Any) -> Floats:
        del length, lengths
        if not len(B):
            return np.empty(0)
        found: Floats = np.asarray(similarity(z[None], B), dtype=np.float64)
        if found.shape != (1, len(B)) or not np.isfinite(found).all():
            raise ParameterError(
                f"`similarity` must return finite numbers of shape (1, {len(B)}) for one row and "
                f"{len(B)} others, got {found!r}",
                remedy="Correct the function.",
            )
        row: Floats = found[0]
        return row

    return compare


def _least(similarity: Similarity) -> float:
    """The minimum of a similarity."""
    return -np.inf if callable(similarity) else SIMILARITIES[similarity][1]


def _spans(n: int) -> Iterator[slice]:
    return (slice(i, i + BLOCK) for i in range(0, n, BLOCK))


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for matching and moving prototypes.

    Parameters
    ----------
    vigilance : float
        ρ.
    similarity : str or callable
        One of ``SIMILARITIES``, or a function.
    step : float or None
        β, or None for means.
    max_prototypes : int or None
        The maximum number of prototypes. When it is reached, a row that would become a prototype
        moves the most similar prototype of its class instead. If its class has none, the two most
        similar prototypes of the largest class are merged into their mean to make room.
    """

    vigilance: float
    similarity: Similarity
    step: float | None
    max_prototypes: int | None


def checked_rules(
    vigilance: object, similarity: Similarity, step: object, max_prototypes: object
) -> Rules:
    """Validate the parameters of a learner and return its rules.

    Parameters
    ----------
    vigilance, similarity, step, max_prototypes
        As in :class:`onepass.ARTIPCAClassifier`.

    Raises
    ------
    ParameterError
        If a parameter is unknown or out of range.
    """
    if not callable(similarity) and similarity not in SIMILARITIES:
        raise ParameterError(
            f"`similarity` must be one of {', '.join(SIMILARITIES)} or a function, got "
            f"{similarity!r}",
            remedy="Choose one of these.",
        )
    most = np.inf if callable(similarity) else 1.0
    vigilance = validation.in_range(vigilance, "vigilance", low=_least(similarity), high=most)
    share = None
    if not (isinstance(step, str) and step == "mean"):
        share = validation.in_range(step, "step", above=0.0, high=1.0)
    if max_prototypes is not None:
        max_prototypes = validation.whole(max_prototypes, "max_prototypes", low=1)
    return Rules(vigilance, similarity, share, max_prototypes)


def match_and_update(
    prototypes: Prototypes,
    rules: Rules,
    X: Floats,
    Z: Floats,
    labels: Array,
    s: Floats,
    scored: Array | None = None,
    scores: Floats | None = None,
) -> tuple[Prototypes, Array]:
    """Match rows with prototypes, one after the other, and update the prototypes.

    Parameters
    ----------
    prototypes : Prototypes
        Not modified.
    rules : Rules
    X : ndarray of shape (n, d)
    Z : ndarray of shape (n, k)
        The coordinates of X along the axes.
    labels : ndarray of int of shape (n,)
    s : ndarray of shape (n,)
        Weights of the rows. A row of weight 0 is compared, but moves nothing.
    scored : ndarray of bool of shape (n,), optional
        The rows for which the scores of :meth:`Prototypes.best` are written, before each is
        learned. By default none.
    scores : ndarray of shape (n, c), optional

    Returns
    -------
    prototypes : Prototypes
        After the rows.
    matches : ndarray of int of shape (n, 3)
        The label and the index of the prototype that each row matched, −1 if there was none; and
        the index, when the row was learned, of the prototype that it moved or became.
    """
    matches, begin = np.full((len(X), 3), -1), 0
    scored = np.zeros(len(X), dtype=bool) if scored is None else scored
    scores = np.zeros((len(X), 1)) if scores is None else scores
    while begin < len(X):
        rows = slice(begin, begin + BLOCK)
        block = _Block(prototypes, rules, Z[rows])
        done = block.learn(labels[rows], s[rows], matches[rows], scored[rows], scores[rows])
        prototypes = block.after(X[rows][:done])
        if done < len(X[rows]):  # the next row needs room for the first prototype of its class
            prototypes = _with_room(prototypes, rules)
        begin += done
    return prototypes, matches


class _Block:
    """Rows compared at once with all prototypes; moved and new prototypes are stored separately."""

    def __init__(self, prototypes: Prototypes, rules: Rules, Z: Floats) -> None:
        self._before, self._rules, self._Z = prototypes, rules, Z
        self._compare = row_similarity(rules.similarity)
        self._lengths = lengths_of(Z)
        self._S = prototypes.similarities(Z, rules.similarity)
        self._labels = prototypes.all("labels")
        block, k = Z.shape
        self._slots: dict[int, int] = {}  # index of a moved or new prototype -> its slot
        self._numbers = np.empty(block, dtype=np.intp)  # slot -> index
        self._updated = Prototypes.of(
            np.empty((block, 0)),
            np.empty((block, k)),
            np.empty(block, dtype=np.intp),
            np.empty(block),
        ).pages[0]
        self._updated_lengths = np.empty(block)
        self._steps: list[tuple[int, float]] = []  # slot and η of each row

    def learn(self, labels: Array, s: Floats, matches: Array, scored: Array, scores: Floats) -> int:
        """Learn rows until there is no room; write matches and scores; return how many."""
        vigilance, max_prototypes = self._rules.vigilance, self._rules.max_prototypes
        for j, label in enumerate(labels.tolist()):
            number, similarity = self._nearest(j)
            found = self._label(number) if number >= 0 else -1
            if matches[j, 0] < 0:  # otherwise the row was matched before room was made for it
                matches[j, :2] = found, number
                if scored[j]:
                    scores[j] = self._best(j, scores.shape[1])
            if not s[j]:
                self._steps.append((0, 0.0))
                continue
            if number < 0 or similarity < vigilance or found != label:
                number = -1
                if max_prototypes is not None and self._count >= max_prototypes:
                    number = self._nearest_of(j, label)
                    if number < 0 and self._crowded():
                        return j
            matches[j, 2] = self._move(number, j, label, float(s[j]))
        return len(labels)

    def after(self, X: Floats) -> Prototypes:
        """The prototypes after the rows that were learned."""
        before, m = self._before, len(self._slots)
        numbers, updated = self._numbers[:m], self._updated
        moved = numbers < len(before)
        rows = np.zeros((m, X.shape[1]))
        rows[moved] = before.rows(numbers[moved])
        for x, (slot, share) in zip(X, self._steps, strict=True):
            if share:  # of a row with a weight
                rows[slot] += share * (x - rows[slot])
        coordinates, labels, weights = (
            updated.coordinates[:m],
            updated.labels[:m],
            updated.weights[:m],
        )
        new = ~moved
        return before.replaced(
            numbers[moved], rows[moved], coordinates[moved], weights[moved]
        ).added(rows[new], coordinates[new], labels[new], weights[new])

    @property
    def _count(self) -> int:
        m = len(self._slots)
        return len(self._before) + int((self._numbers[:m] >= len(self._before)).sum())

    def _label(self, number: int) -> int:
        if number < len(self._labels):
            return int(self._labels[number])
        return int(self._updated.labels[self._slots[number]])

    def _nearest(self, j: int) -> tuple[int, float]:
        """The most similar prototype to a row, the oldest one of a tie; −1 if there is none."""
        number, best, m = -1, -np.inf, len(self._slots)
        if self._S.shape[1]:
            number = int(self._S[j].argmax())
            best = float(self._S[j, number])
        if m:
            near = self._similar(j, m)
            highest = float(near[near.argmax()])
            if highest >= best:
                oldest = int(self._numbers[:m][near == highest].min())
                number = oldest if highest > best else min(oldest, number)
                best = highest
        return (number, best) if best > -np.inf else (-1, best)

    def _nearest_of(self, j: int, label: int) -> int:
        """The most similar prototype with a label; −1 if there is none."""
        m = len(self._slots)
        here = np.where(self._labels == label, self._S[j], -np.inf)
        near = np.where(self._updated.labels[:m] == label, self._similar(j, m), -np.inf)
        one = int(here.argmax()) if len(here) else -1
        two = int(near.argmax()) if m else -1
        best = (here[one] if one >= 0 else -np.inf, near[two] if two >= 0 else -np.inf)
        if max(best) == -np.inf:
            return -1
        return one if best[0] >= best[1] else int(self._numbers[two])

    def _best(self, j: int, c: int) -> Floats:
        """Similarities (c,) of a row with the most similar prototype of each class."""
        m = len(self._slots)
        order = np.argsort(np.concatenate((np.arange(len(self._labels)), self._numbers[:m])))
        S = np.concatenate((self._S[j], self._similar(j, m)))[order]
        labels = np.concatenate((self._labels, self._updated.labels[:m]))[order]
        scores: Floats = _best(S[None], labels, c, self._rules.similarity)[0]
        return scores

    def _similar(self, j: int, m: int) -> Floats:
        """Similarities of a row with the moved and new prototypes."""
        near, lengths = self._updated.coordinates[:m], self._updated_lengths[:m]
        return self._compare(self._Z[j], near, float(self._lengths[j]), lengths)

    def _crowded(self) -> bool:
        """Whether any class has more than one prototype."""
        m = len(self._slots)
        came = self._updated.labels[:m][self._numbers[:m] >= len(self._labels)]
        return bool((np.bincount(np.concatenate((self._labels, came))) > 1).any())

    def _move(self, number: int, j: int, label: int, s: float) -> int:
        """Move a prototype towards a row by (1), or add the row as one (−1); return its index."""
        m, updated, z = len(self._slots), self._updated, self._Z[j]
        slot = self._slots.get(number, m)
        if number < 0:
            number = self._count
            updated.coordinates[m], updated.labels[m], updated.weights[m] = z, label, 0.0
        elif slot == m:
            page, at = self._before.place(number)
            updated.coordinates[m], updated.labels[m], updated.weights[m] = (
                page.compared[at],
                label,
                page.weights[at],
            )
            self._S[j + 1 :, number] = -np.inf
        if slot == m:
            self._slots[number], self._numbers[m] = m, number
        updated.weights[slot] += s
        share = s / float(updated.weights[slot])
        if self._rules.step is not None and share < 1.0:
            share = 1.0 - (1.0 - self._rules.step) ** s
        coordinates = updated.coordinates[slot]
        coordinates += share * (z - coordinates)
        self._updated_lengths[slot] = math.sqrt(coordinates @ coordinates)
        self._steps.append((slot, share))
        return number


def _with_room(prototypes: Prototypes, rules: Rules) -> Prototypes:
    """Merge the two most similar prototypes of the largest class."""
    labels = prototypes.all("labels")
    members = np.flatnonzero(labels == np.bincount(labels).argmax())
    few = prototypes.selected(members)
    i, j = (int(members[k]) for k in _nearest_pair(few, rules.similarity))
    pair = prototypes.selected(np.array([min(i, j), max(i, j)])).pages[0]
    share = pair.weights[1] / pair.weights.sum()
    rows, coordinates = (a[:1] + share * (a[1:] - a[:1]) for a in (pair.rows, pair.compared))
    merged = prototypes.replaced(
        np.array([min(i, j)]), rows, coordinates, pair.weights.sum(keepdims=True)
    )
    return merged.selected(np.delete(np.arange(len(prototypes)), max(i, j)))


def _nearest_pair(few: Prototypes, similarity: Similarity) -> tuple[int, int]:
    """The indices of the two most similar prototypes, the oldest ones of a tie."""
    rows, best, pair = few.compared(), -np.inf, (0, 1)
    for i in range(0, len(few), BLOCK):
        S = few.similarities(rows[i : i + BLOCK], similarity)
        S[
            np.tri(S.shape[0], S.shape[1], i, dtype=bool)
        ] = -np.inf  # each pair once, and no prototype with itself
        at = int(S.argmax())
        if S.flat[at] > best:
            best = float(S.flat[at])
            pair = (i + at // S.shape[1], at % S.shape[1])
    return pair


PCA_MODES = ("incremental", "task", "static", "none")
"""The values of the parameter ``pca``."""


def compares_rows(axes: Any, mode: str) -> bool:
    """Whether rows are compared without axes, because there are no axes or too few rows for them.

    Parameters
    ----------
    axes : IncrementalPCAState or DiscriminantAxes
    mode : str
        One of ``PCA_MODES``.
    """
    return not len(axes.view.lengths) or (mode == "incremental" and axes.rows < axes.block)


def project(axes: Any, mode: str, X: Floats) -> Floats:
    """Coordinates of rows for comparison, (n, k) or (n, d).

    Parameters
    ----------
    axes : IncrementalPCAState or DiscriminantAxes
    mode : str
        One of ``PCA_MODES``.
    X : ndarray of shape (n, d)
    """
    coordinates: Floats = X - axes.view.center if compares_rows(axes, mode) else axes.view.of(X)
    return coordinates
