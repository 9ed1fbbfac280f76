"""Prototypes: means of rows that matched each other.

They stand in the space of the rows, and are compared along axes, z = V (x − m), which may turn.
They lie in pages, so that learning a row writes a copy of one page and not of them all.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.

Similarity of vectors is one of

=========== ============================================ ==========
cosine      aᵀb / (‖a‖ ‖b‖); 1 of two zeros, 0 of one    [−1, 1]
euclidean   1 / (1 + ‖a − b‖)                            (0, 1]
=========== ============================================ ==========

A product of many vectors at once is rounded in another way than that of two. So that it makes no
difference how many are compared, similarities are rounded to a grid that is far coarser than their
rounding: of equal prototypes the older one wins, and a row is as like itself as can be.

A row x is matched with the most similar prototype, of those that stand when its turn comes. If it
is similar enough, at least ρ (vigilance), and of the same label, the prototype moves towards it,

    w ← w + η (x − w),    η = s / Σ s of all rows that it took in, or a fixed β                 (1)

and else the row becomes a prototype ([1] Algorithm 1, lines 6 to 14). As (1) is linear, what a
prototype is along the axes, z = V (w − m), moves by (1) too, and need not be worked out anew ([1]
Proposition 1): only when the axes turn, all are.

One matrix product compares the rows of a block with all prototypes as they were before it; row by
row only those that moved, or came, within the block are compared anew. The answer is that of the
row-by-row loop.

Cost of a row, with W prototypes: O(Wk + d) time.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import ParameterError
from onepass.linalg.pca import IncrementalPCAState
from onepass.types import Array, Floats

__all__ = [
    "BLOCK",
    "OF_ONE",
    "PAGE",
    "SIMILARITIES",
    "WAYS",
    "Page",
    "Prototypes",
    "Rules",
    "along",
    "as_rows",
    "checked_rules",
    "lengths_of",
    "met",
]


_GRID = 2.0**40  # steps of 1
_CANCELS = 1e-3  # share of a² + b²; of smaller squares of distances the digits have cancelled
_PIECE = 1 << 18  # numbers of differences that are taken at once


def lengths_of(rows: Floats) -> Floats:
    """Euclidean lengths of rows."""
    lengths: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return lengths


def _cosine(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """Of rows (n, k) with rows (m, k) and their lengths, (n, m)."""
    scale = a[:, None] * b
    zero = scale == 0.0
    said = A @ B.T
    if zero.any():
        said[zero] = ((a == 0.0)[:, None] & (b == 0.0))[zero]
        scale[zero] = 1.0
    said /= scale
    return _on_grid(said)


def _cosine_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """Of a row (k,) with rows (m, k) and their lengths, (m,), in fewer calls."""
    scale = length * b
    if not scale.all():
        whole: Floats = _cosine(z[None], B, np.array([length]), b)[0]
        return whole
    said = B @ z
    said /= scale
    return _on_grid(said)


def _nearness_of_one(z: Floats, B: Floats, length: float, b: Floats) -> Floats:
    """The same."""
    said: Floats = _nearness(z[None], B, np.array([length]), b)[0]
    return said


def _nearness(A: Floats, B: Floats, a: Floats, b: Floats) -> Floats:
    """The same."""
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


def _on_grid(said: Floats) -> Floats:
    said *= _GRID
    np.rint(said, out=said)
    said /= _GRID
    return said


SIMILARITIES: dict[str, tuple[Callable[[Any, Any, Any, Any], Floats], float]] = {
    "cosine": (_cosine, -1.0),
    "euclidean": (_nearness, 0.0),
}
"""Name to function of rows, rows, and the lengths of both, and the least value that it has."""

OF_ONE: dict[str, Callable[[Any, Any, float, Any], Floats]] = {
    "cosine": _cosine_of_one,
    "euclidean": _nearness_of_one,
}
"""Name to the same of one row (k,) with others, (m,)."""

PAGE = 128  # prototypes of a page
BLOCK = 128  # rows that are compared at once


@dataclass(frozen=True, eq=False, slots=True)
class Page:
    """Some prototypes.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Where they are; (n, 0) of those that learn no more.
    seen : ndarray of shape (n, k)
        What they are along the axes; (n, 0) of rows that are compared as they are.
    labels : ndarray of int of shape (n,)
        Of which class each is, by its place among all.
    taken : ndarray of shape (n,)
        Weights of the rows that each took in.
    """

    rows: Floats
    seen: Floats
    labels: Array
    taken: Floats

    @property
    def along(self) -> Floats:
        """What rows are compared with, (n, k) or (n, d)."""
        return self.seen if self.seen.shape[1] else self.rows


@dataclass(frozen=True, eq=False, slots=True)
class Prototypes:
    """All prototypes, in the order in which they came.

    Parameters
    ----------
    pages : tuple of Page
        All but the last are full.
    """

    pages: tuple[Page, ...]

    @classmethod
    def start(cls, d: int) -> "Prototypes":
        """None yet, of d numbers each, compared as they are."""
        return cls((Page(np.zeros((0, d)), np.zeros((0, 0)), np.zeros(0, np.intp), np.zeros(0)),))

    @property
    def _sound(self) -> bool:
        """Whether the parts fit together."""
        pages, shapes = self.pages, set()
        if not (type(pages) is tuple and pages and all(type(page) is Page for page in pages)):
            return False
        for page in pages:
            arrays = (page.rows, page.seen, page.labels, page.taken)
            n = len(page.labels)
            fits = [array.shape[:1] == (n,) for array in arrays]
            flat = (
                page.labels.ndim == page.taken.ndim == 1 and page.rows.ndim == page.seen.ndim == 2
            )
            if not (all(fits) and flat and page.labels.dtype.kind == "i" and n <= PAGE):
                return False
            if not all(np.isfinite(array).all() for array in arrays):
                return False
            if (page.labels < 0).any() or (page.taken < 0).any():
                return False
            shapes.add((page.rows.shape[1], page.seen.shape[1]))
        return len(shapes) == 1 and all(len(page.labels) == PAGE for page in pages[:-1])

    def __len__(self) -> int:
        return (len(self.pages) - 1) * PAGE + len(self.pages[-1].labels)

    def all(self, name: str) -> Array:
        """``rows``, ``seen``, ``labels`` or ``taken`` of all."""
        return np.concatenate([getattr(page, name) for page in self.pages])

    def along(self) -> Floats:
        """What rows are compared with, (W, k) or (W, d)."""
        return np.concatenate([page.along for page in self.pages])

    def place(self, number: int) -> tuple[Page, int]:
        """The page of a prototype, and where it stands on it."""
        return self.pages[number // PAGE], number % PAGE

    def rows(self, numbers: Array) -> Floats:
        """Where those of these numbers are, (m, d)."""
        places = [self.place(number) for number in numbers.tolist()]
        if not places:
            return self.pages[0].rows[:0]
        return np.stack([page.rows[at] for page, at in places])

    def viewed(self, view: Callable[[Floats], Floats] | None) -> "Prototypes":
        """The same along other axes, or along none."""
        seen = (lambda rows: np.zeros((len(rows), 0))) if view is None else view
        return Prototypes(tuple(replace(page, seen=seen(page.rows)) for page in self.pages))

    def replaced(self, numbers: Array, rows: Floats, seen: Floats, taken: Floats) -> "Prototypes":
        """The same with those of these numbers moved, along axes too if they are seen along any."""
        pages = list(self.pages)
        for at in np.unique(numbers // PAGE):
            here, page = numbers // PAGE == at, pages[at]
            places = numbers[here] % PAGE
            new = Page(page.rows.copy(), page.seen.copy(), page.labels, page.taken.copy())
            new.rows[places], new.taken[places] = rows[here], taken[here]
            if new.seen.shape[1]:
                new.seen[places] = seen[here]
            pages[at] = new
        return Prototypes(tuple(pages))

    def more(self, rows: Floats, seen: Floats, labels: Array, taken: Floats) -> "Prototypes":
        """The same with others behind them, seen along axes if these are."""
        if not len(labels):
            return self
        last = self.pages[-1]
        behind = Prototypes.of(
            np.concatenate((last.rows, rows)),
            np.concatenate((last.seen, seen[:, : last.seen.shape[1]])),
            np.concatenate((last.labels, labels)),
            np.concatenate((last.taken, taken)),
        )
        return Prototypes((*self.pages[:-1], *behind.pages))

    def compact(self) -> "Prototypes":
        """The same, known along the axes alone."""
        pages = (
            replace(page, rows=np.zeros((len(page.labels), 0)), seen=page.along.copy())
            for page in self.pages
        )
        return Prototypes(tuple(pages))

    def grown(self, d: int) -> "Prototypes":
        """With new columns at the end, zero in every row so far; not yet seen along any axes."""
        return Prototypes(
            tuple(
                replace(page, rows=np.pad(page.rows, ((0, 0), (0, d - page.rows.shape[1]))))
                for page in self.pages
            )
        )

    def renamed(self, places: Array) -> "Prototypes":
        """The same, class i being the one at ``places[i]`` now."""
        pages = (replace(page, labels=places[page.labels]) for page in self.pages)
        return Prototypes(tuple(pages))

    def chosen(self, which: Array) -> "Prototypes":
        """Those of these numbers, in this order."""
        parts = {name: self.all(name)[which] for name in ("rows", "seen", "labels", "taken")}
        return Prototypes.of(**parts)

    @classmethod
    def of(cls, rows: Floats, seen: Floats, labels: Array, taken: Floats) -> "Prototypes":
        """These."""
        cuts = range(0, max(len(labels), 1), PAGE)
        spans = [slice(i, i + PAGE) for i in cuts]
        return cls(tuple(Page(rows[a], seen[a], labels[a], taken[a]) for a in spans))

    def similarities(self, Z: Floats, similarity: str) -> Floats:
        """Of rows (n, k) along the axes with all prototypes, (n, W)."""
        compare, _ = SIMILARITIES[similarity]
        lengths = lengths_of(Z)
        parts = [compare(Z, page.along, lengths, lengths_of(page.along)) for page in self.pages]
        return np.concatenate(parts, axis=1)

    def best(self, Z: Floats, similarity: str, c: int) -> Floats:
        """Of rows with the most similar prototype of each of c classes, (n, c).

        Of classes that tie, the one whose prototype is older is ahead by the least there is. A
        class without prototypes is behind all others.
        """
        _, least = SIMILARITIES[similarity]
        said = np.full((len(Z), c), least - 1.0)
        labels = self.all("labels")
        for rows in _spans(len(Z)):
            S = self.similarities(Z[rows], similarity)
            if not S.shape[1]:
                continue
            for label in np.unique(labels):
                said[rows, label] = S[:, labels == label].max(axis=1)
            ahead = labels[S.argmax(axis=1)]
            each = np.arange(len(S))
            block = said[rows]
            tied = block == block[each, ahead][:, None]
            tied[each, ahead] = False
            block[tied] = np.nextafter(block[tied], -np.inf)
        return said


def _spans(n: int) -> Iterator[slice]:
    return (slice(i, i + BLOCK) for i in range(0, n, BLOCK))


@dataclass(frozen=True, slots=True)
class Rules:
    """How prototypes are matched and moved.

    Parameters
    ----------
    vigilance : float
        ρ.
    similarity : str
        One of ``SIMILARITIES``.
    step : float or None
        β, or None for means.
    most : int or None
        A ceiling on their number. At it a row that would become a prototype moves the most
        similar one of its class instead. A class that has none gets one: the two most similar
        prototypes of the class that has most become one, their mean.
    """

    vigilance: float
    similarity: str
    step: float | None
    most: int | None


def checked_rules(
    vigilance: object, similarity: str, step: object, most: object, who: str
) -> Rules:
    """Rules as a user gives them, checked.

    Parameters
    ----------
    vigilance, similarity, step, most
        As :class:`onepass.ARTIPCAClassifier` has them.
    who : str
        The learner, for messages.

    Raises
    ------
    ParameterError
        If one of them is unknown or out of range.
    """
    if similarity not in SIMILARITIES:
        raise ParameterError(
            f"{who}: `similarity` must be one of {', '.join(SIMILARITIES)}, got {similarity!r}. "
            "Choose one of these."
        )
    least = SIMILARITIES[similarity][1]
    vigilance = validation.in_range(vigilance, "vigilance", who, low=least, high=1.0)
    share = None
    if not (isinstance(step, str) and step == "mean"):
        share = validation.in_range(step, "step", who, above=0.0, high=1.0)
    if most is not None:
        most = validation.whole(most, "max_prototypes", who, low=1)
    return Rules(vigilance, similarity, share, most)


def met(
    prototypes: Prototypes, rules: Rules, X: Floats, Z: Floats, labels: Array, s: Floats
) -> tuple[Prototypes, Array]:
    """The prototypes after rows, and label and number of the one that each row met, (n, 2).

    Both are −1 where none stood.

    Parameters
    ----------
    prototypes : Prototypes
        As they are before; they stay so.
    rules : Rules
    X : ndarray of shape (n, d)
    Z : ndarray of shape (n, k)
        The same along the axes.
    labels : ndarray of int of shape (n,)
    s : ndarray of shape (n,)
        Weights of the rows.
    """
    said, begin = np.full((len(X), 2), -1), 0
    while begin < len(X):
        rows = slice(begin, begin + BLOCK)
        block = _Block(prototypes, rules, Z[rows])
        done = block.learned(labels[rows], s[rows], said[rows])
        prototypes = block.after(X[rows][:done])
        if done < len(X[rows]):  # the next row is of a class that has no place yet
            prototypes = _with_room(prototypes, rules)
        begin += done
    return prototypes, said


class _Block:
    """Rows that are compared at once with prototypes; those that move or come are kept apart."""

    def __init__(self, prototypes: Prototypes, rules: Rules, Z: Floats) -> None:
        self._before, self._rules, self._Z = prototypes, rules, Z
        self._compare = OF_ONE[rules.similarity]
        self._lengths = lengths_of(Z)
        self._S = prototypes.similarities(Z, rules.similarity)
        self._labels = prototypes.all("labels")
        block, k = Z.shape
        self._slots: dict[int, int] = {}  # number of a prototype that moved or came -> its place
        self._numbers = np.empty(block, dtype=np.intp)  # and back
        self._apart = Prototypes.of(
            np.empty((block, 0)),
            np.empty((block, k)),
            np.empty(block, dtype=np.intp),
            np.empty(block),
        ).pages[0]
        self._apart_lengths = np.empty(block)
        self._steps: list[tuple[int, float]] = []  # of each row: a place, and η

    def learned(self, labels: Array, s: Floats, said: Array) -> int:
        """Learn rows, as many as find a place; say label and number of what each met."""
        vigilance, most = self._rules.vigilance, self._rules.most
        for j, label in enumerate(labels.tolist()):
            number, similarity = self._nearest(j)
            found = self._label(number) if number >= 0 else -1
            if said[j, 0] < 0:  # else it was said before room was made for it
                said[j] = found, number
            if number < 0 or similarity < vigilance or found != label:
                number = -1
                if most is not None and self._count >= most:
                    number = self._nearest_of(j, label)
                    if number < 0 and self._crowded():
                        return j
            self._move(number, j, label, float(s[j]))
        return len(labels)

    def after(self, X: Floats) -> Prototypes:
        """The prototypes after the rows that were learned, these."""
        before, m = self._before, len(self._slots)
        numbers, apart = self._numbers[:m], self._apart
        moved = numbers < len(before)
        rows = np.zeros((m, X.shape[1]))
        rows[moved] = before.rows(numbers[moved])
        for x, (slot, share) in zip(X, self._steps, strict=True):
            rows[slot] += share * (x - rows[slot])
        seen, labels, taken = apart.seen[:m], apart.labels[:m], apart.taken[:m]
        new = ~moved
        return before.replaced(numbers[moved], rows[moved], seen[moved], taken[moved]).more(
            rows[new], seen[new], labels[new], taken[new]
        )

    @property
    def _count(self) -> int:
        m = len(self._slots)
        return len(self._before) + int((self._numbers[:m] >= len(self._before)).sum())

    def _label(self, number: int) -> int:
        if number < len(self._labels):
            return int(self._labels[number])
        return int(self._apart.labels[self._slots[number]])

    def _nearest(self, j: int) -> tuple[int, float]:
        """The most similar prototype of a row, the oldest of those that tie; −1 of none."""
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
        """The same among those of a label."""
        m = len(self._slots)
        here = np.where(self._labels == label, self._S[j], -np.inf)
        near = np.where(self._apart.labels[:m] == label, self._similar(j, m), -np.inf)
        one = int(here.argmax()) if len(here) else -1
        two = int(near.argmax()) if m else -1
        best = (here[one] if one >= 0 else -np.inf, near[two] if two >= 0 else -np.inf)
        if max(best) == -np.inf:
            return -1
        return one if best[0] >= best[1] else int(self._numbers[two])

    def _similar(self, j: int, m: int) -> Floats:
        """Of a row with those kept apart."""
        near, lengths = self._apart.seen[:m], self._apart_lengths[:m]
        return self._compare(self._Z[j], near, float(self._lengths[j]), lengths)

    def _crowded(self) -> bool:
        """Whether any class has more than one prototype."""
        m = len(self._slots)
        came = self._apart.labels[:m][self._numbers[:m] >= len(self._labels)]
        return bool((np.bincount(np.concatenate((self._labels, came))) > 1).any())

    def _move(self, number: int, j: int, label: int, s: float) -> None:
        """Let a prototype move towards a row by (1), or a row become one."""
        m, apart, z = len(self._slots), self._apart, self._Z[j]
        slot = self._slots.get(number, m)
        if number < 0:
            number = self._count
            apart.seen[m], apart.labels[m], apart.taken[m] = z, label, 0.0
        elif slot == m:
            page, at = self._before.place(number)
            apart.seen[m], apart.labels[m], apart.taken[m] = page.along[at], label, page.taken[at]
            self._S[j + 1 :, number] = -np.inf
        if slot == m:
            self._slots[number], self._numbers[m] = m, number
        apart.taken[slot] += s
        share = s / float(apart.taken[slot])
        if self._rules.step is not None and share < 1.0:
            share = 1.0 - (1.0 - self._rules.step) ** s
        seen = apart.seen[slot]
        seen += share * (z - seen)
        self._apart_lengths[slot] = math.sqrt(seen @ seen)
        self._steps.append((slot, share))


def _with_room(prototypes: Prototypes, rules: Rules) -> Prototypes:
    """The same with the two most similar prototypes of the class that has most as one."""
    labels = prototypes.all("labels")
    most = np.flatnonzero(labels == np.bincount(labels).argmax())
    few = prototypes.chosen(most)
    i, j = (int(most[k]) for k in _nearest_pair(few, rules.similarity))
    pair = prototypes.chosen(np.array([min(i, j), max(i, j)])).pages[0]
    share = pair.taken[1] / pair.taken.sum()
    rows, seen = (a[:1] + share * (a[1:] - a[:1]) for a in (pair.rows, pair.along))
    merged = prototypes.replaced(np.array([min(i, j)]), rows, seen, pair.taken.sum(keepdims=True))
    return merged.chosen(np.delete(np.arange(len(prototypes)), max(i, j)))


def _nearest_pair(few: Prototypes, similarity: str) -> tuple[int, int]:
    """The two prototypes that are most similar, the oldest of those that tie."""
    along, best, pair = few.along(), -np.inf, (0, 1)
    for i in range(0, len(few), BLOCK):
        S = few.similarities(along[i : i + BLOCK], similarity)
        S[
            np.tri(S.shape[0], S.shape[1], i, dtype=bool)
        ] = -np.inf  # each pair once, and none with itself
        at = int(S.argmax())
        if S.flat[at] > best:
            best = float(S.flat[at])
            pair = (i + at // S.shape[1], at % S.shape[1])
    return pair


WAYS = ("incremental", "task", "static", "none")
"""How axes are learned."""


def as_rows(axes: IncrementalPCAState, way: str) -> bool:
    """Whether rows are compared in their own space: no axis, or none that is settled yet.

    Parameters
    ----------
    axes : Axes
    way : str
        One of ``WAYS``.
    """
    return not len(axes.view.lengths) or (way == "incremental" and axes.rows < axes.block)


def along(axes: IncrementalPCAState, way: str, X: Floats) -> Floats:
    """Rows as they are compared, (n, k) or (n, d).

    Parameters
    ----------
    axes : Axes
    way : str
        One of ``WAYS``.
    X : ndarray of shape (n, d)
    """
    seen: Floats = X - axes.view.center if as_rows(axes, way) else axes.view.of(X)
    return seen
