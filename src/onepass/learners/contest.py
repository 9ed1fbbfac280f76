"""Contest: rows find their prototypes, one after the other.

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
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import Array, Floats, ParameterError
from onepass.learners.prototypes import BLOCK, Prototypes
from onepass.learners.similarity import OF_ONE, SIMILARITIES, lengths_of

__all__ = ["Rules", "checked_rules", "met"]


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


def checked_rules(vigilance: Any, similarity: Any, step: Any, most: Any, who: str) -> Rules:
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
        room, k = Z.shape
        self._slots: dict[int, int] = {}  # number of a prototype that moved or came -> its place
        self._numbers = np.empty(room, dtype=np.intp)  # and back
        self._apart = Prototypes.of(
            np.empty((room, 0)), np.empty((room, k)), np.empty(room, dtype=np.intp), np.empty(room)
        ).pages[0]
        self._apart_lengths = np.empty(room)
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
