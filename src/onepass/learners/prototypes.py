"""Prototypes: means of rows that matched each other.

They stand in the space of the rows, and are compared along axes, z = V (x − m), which may turn. How
rows find theirs stands in :mod:`onepass.learners.contest`. They lie in pages, so that learning a
row writes a copy of one page and not of them all.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import Array, Floats
from onepass.learners.similarity import SIMILARITIES, lengths_of

__all__ = ["BLOCK", "PAGE", "Page", "Prototypes"]

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
