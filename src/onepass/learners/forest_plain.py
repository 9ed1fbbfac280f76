"""The trees of a forest, row by row in Python.

The algorithm of native/core/forest.c on the same vector: it runs without a compiler, and tests
compare the compiled functions with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onepass.learners.forest_vector import BLOCK_ROWS, BLOCKS, CUTS, FADE, Parts, Slot, start_tree
from onepass.memory import plain
from onepass.memory.vector import Parts as LeastSquares
from onepass.memory.vector import Slot as LeastSquaresSlot
from onepass.types import Floats

# Equal to the constants of native/core/forest.c
GRACE, WAIT, KNOWN, FADES, OF_PARENT, INHERITED, LEAST, FARTHEST, LOGS = (
    20,
    60,
    64,
    64,
    30,
    8,
    5,
    4.0,
    8,
)
RATE, NONE = 6.0, 0.0024787521766663585
OF_LEAF, OF_TREE, OF_TARGETS = 0.02, 0.005, 0.002
SURE, TIE, USEFUL, CHANGED, FLOOR, SMALL = 0.01, 0.05, 0.005, 0.001, 0.02, 1e-12
EQUAL, TINIEST = 1e-9, 1e-290
LARGEST = 1e100
_BITS = 2**64 - 1


@np.errstate(all="ignore")
def learn(vector: Floats, X: Floats, Y: Floats, weights: Floats, found: Floats) -> int:
    """Learn rows; return their number, which is smaller if the next one needs more room.

    Raises
    ------
    OverflowError
        If a number is too large to be squared. No row is then learned.
    """
    if max(np.fmax.reduce(np.abs(a), axis=None, initial=0.0) for a in (X, Y, weights)) > LARGEST:
        raise OverflowError("expected smaller numbers")
    forest = _Forest(vector)
    for i, (x, y, weight) in enumerate(zip(X, Y.reshape(len(X), -1), weights, strict=True)):
        if not forest.has_room(y):
            return i
        found[i] = forest.process(x, y, float(weight))
    return len(X)


@np.errstate(all="ignore")
def predict(vector: Floats, X: Floats, found: Floats) -> None:
    """Predict rows."""
    forest = _Forest(vector)
    for i, x in enumerate(X):
        found[i] = forest.process(x, None, 0.0)


def _poisson(u: float) -> float:
    """A Poisson number, by inversion."""
    k, p = 0.0, NONE
    while u >= p and k < 40.0:
        u -= p
        k += 1.0
        p *= RATE / k
    return k


def _best(p: Floats) -> int:
    """The last of the largest numbers."""
    return len(p) - 1 - int(np.argmax(p[::-1]))


class _Forest(Parts):
    """A forest that learns and predicts."""

    full: Floats
    inverse: Floats
    rest: Floats

    def has_room(self, y: Floats) -> bool:
        """Whether a row can be learned without more room."""
        room, limit = self.head[Slot.LEAVES], self.head[Slot.LIMIT]
        full = room < limit and bool((self.trees["leaves"] == room).any())
        return not full and bool(self.c or y[0] < self.C)

    def process(self, x: Floats, y: Floats | None, weight: float) -> Floats:
        """Predict a row and, with y, learn it."""
        units, total, found = self.common, 0.0, np.zeros(self.C + self.c)
        first = (units["values"] == 0.0) & (self.head[Slot.ROWS] > 0.0)
        begun = first & ~np.isnan(x)
        if y is not None:
            for one in self.least_squares if begun.any() else ():  # all rows so far had 0 there
                LeastSquares(one).means[: self.d] += np.where(begun, x, 0.0)
        self.full = np.where(np.isnan(x) | (first & (y is None)), units["means"], x)
        spread = units["squares"] > TINIEST
        self.inverse = np.where(spread, units["values"] / units["squares"], 0.0)
        own: Any = self._process_base(y, weight, begun=begun.any()) if self.c else 0.0
        for t, tree in enumerate(self.trees):
            if self.c:
                vote, p = self._targets(t, tree, x, None if y is None else self.rest, weight)
            else:
                vote, p = self._classes(t, tree, x, y, weight)
            found += vote * p
            total += vote
        if y is not None:
            self._update_units(x)
        predicted: Floats = found / total + own
        return predicted

    def _process_base(self, y: Floats | None, weight: float, *, begun: bool) -> Floats:
        """What the base predicts; with y, learn, and store what it leaves.

        If a feature has ``begun`` with this row, earlier rows keep little weight.
        """
        base = self.common["base"]
        first = base[LeastSquaresSlot.MASS] == 0.0
        own = _predicted(base, self.full, self.c)
        if y is not None:
            _learn(base, self.full, y, weight, _fade_to(base, OF_PARENT) if begun else 0.0)
            self.rest = y - own if not first else 0.0 * y
        return own if not first else 0.0 * own

    def _update_units(self, x: Floats) -> None:
        """Update the means and variances of the features, and of what the base leaves."""
        units = self.common
        self.head[Slot.ROWS] += 1.0
        if self.c:
            share = max(1.0 / self.head[Slot.ROWS], OF_TARGETS)
            by = self.rest - units["centre"]
            units["centre"] += share * by
            units["variance"] += share * (by * (self.rest - units["centre"]) - units["variance"])
        known = ~np.isnan(x)
        by = (x - units["means"])[known]
        units["values"][known] += 1.0
        units["means"][known] += by / units["values"][known]
        units["squares"][known] += by * (x - units["means"])[known]

    # -- trees -------------------------------------------------------------------------------------

    def _reach(self, tree: Any, x: Floats) -> Floats:
        """The node of the leaf that a row reaches."""
        nodes = tree["nodes"]
        node: Floats = nodes[0]
        while node[0] >= 0.0:
            value = x[int(node[0])]
            right = node[2] if math.isnan(value) else value > node[1]
            node = nodes[int(node[3] + right)]
        return node

    def _drawn(self, t: int, tree: Any) -> float:
        """A number in [0, 1): the hash of the seed, the tree and the number of draws before."""
        z = int(self.head[Slot.SEED]) * 0x9E3779B97F4A7C15 + (t + 1) * 0xBF58476D1CE4E5B9
        z = (z + int(tree["draws"]) * 0x94D049BB133111EB) & _BITS
        tree["draws"] += 1.0
        for _ in range(2):
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _BITS
            z = (z ^ z >> 27) * 0x94D049BB133111EB & _BITS
            z ^= z >> 31
        return (z >> 11) * 2.0**-53

    def _draw_feature(self, t: int, tree: Any, cells: Any, k: int) -> None:
        """Let a cell test a feature that no other cell of its leaf tests."""
        every = self.d == self.K
        cells[k] = np.zeros((), cells.dtype)
        cells["feature"][k] = k if every else -1.0
        while cells["feature"][k] < 0.0:
            feature = math.floor(self._drawn(t, tree) * self.d)
            if feature not in cells["feature"]:
                cells["feature"][k] = feature

    def _classes(
        self, t: int, tree: Any, x: Floats, y: Floats | None, weight: float
    ) -> tuple[float, Floats]:
        """The vote of a tree and its weight; with y, also learn."""
        node = self._reach(tree, x)
        leaf, good = tree["leaf"][int(node[3])], 1.0 - tree["error"]
        sums, vote = leaf["sums"], good * good * good + 1e-3
        used = shares = (sums + 1.0 / self.C) / (1.0 + np.add.accumulate(sums)[-1])
        if self.bayes:
            fitted = self._bayes(x, leaf["model"], shares)
            used = fitted if leaf["fitted"] < leaf["plain"] else shares
        if y is None:
            return vote, used
        label, error = int(y[0]), float(_best(used) != y[0])
        if self.bayes:
            leaf["plain"] += OF_LEAF * ((_best(shares) != label) - leaf["plain"])
            leaf["fitted"] += OF_LEAF * ((_best(fitted) != label) - leaf["fitted"])
        self._add(t, tree, node, x, y, weight * _poisson(self._drawn(t, tree)), error)
        return vote, used

    def _targets(
        self, t: int, tree: Any, x: Floats, y: Floats | None, weight: float
    ) -> tuple[float, Floats]:
        """The same for what the base leaves of the targets."""
        node, units = self._reach(tree, x), self.common
        leaf, vote = tree["leaf"][int(node[3])], 1.0 / (tree["error"] + 1e-9)
        sums, c = leaf["sums"], self.c
        weight *= 0.0 if y is None else _poisson(self._drawn(t, tree))
        used = means = sums[1 : 1 + c] / sums[0] if sums[0] > 0.0 else units["centre"].copy()
        if self.linear:
            model, far = leaf["model"], FARTHEST * np.sqrt(units["variance"])
            mass = model[LeastSquaresSlot.MASS]
            fitted = _predicted(model, self.full, c) if mass > 0.0 else means
            fitted = units["centre"] + np.clip(fitted - units["centre"], -far, far)
            used = fitted if leaf["fitted"] < leaf["plain"] else means
            if weight > 0.0:
                first = leaf["rows"] == 0.0
                fade = _fade_to(model, INHERITED) if first else model[LeastSquaresSlot.FACTOR]
                _learn(model, self.full, y, weight, fade)
        if y is None:
            return vote, used
        units_of_errors = FARTHEST * np.sqrt(units["variance"]) + 1e-300
        error = float(np.minimum(np.abs(used - y) / units_of_errors, 1.0).sum() / c)
        for k, v in enumerate(units["variance"]):
            if self.linear and self.head[Slot.ROWS] >= KNOWN and v > 0.0:
                leaf["plain"] += OF_LEAF / c * ((means[k] - y[k]) ** 2 / v - leaf["plain"])
                leaf["fitted"] += OF_LEAF / c * ((fitted[k] - y[k]) ** 2 / v - leaf["fitted"])
        self._add(t, tree, node, x, y, weight, error)
        return vote, used

    def _bayes(self, x: Floats, model: Floats, shares: Floats) -> Floats:
        """The probabilities of naive Bayes."""
        p = np.empty(self.C)
        for k in range(self.C):
            log_p, total, product = math.log(shares[k]), 0.0, 1.0
            for j in range(self.d):
                n, mean, squares = model[k, j]
                if n > 1.0 and not math.isnan(x[j]) and self.inverse[j] > 0.0:
                    by, over = x[j] - mean, (n + 1.0) / (squares * self.inverse[j] + 1.0)
                    total += by * by * self.inverse[j] * over
                    product *= over
                if j % LOGS == LOGS - 1 or j == self.d - 1:
                    log_p += 0.5 * math.log(product)
                    product = 1.0
            p[k] = log_p - 0.5 * min(total, 1e300)
        p = np.array([math.exp(one) for one in p - p.max()]) + FLOOR
        p /= np.add.accumulate(p)[-1]
        return p

    # -- learning ----------------------------------------------------------------------------------

    def _add(
        self, t: int, tree: Any, node: Floats, x: Floats, y: Floats, weight: float, error: float
    ) -> None:
        """Add a row to a leaf, and its error to the tree."""
        if weight > 0.0:
            self._add_to_leaf(t, tree, node, x, y, weight)
        if self._has_changed(tree, error):
            start_tree(self, tree)

    def _add_to_leaf(
        self, t: int, tree: Any, node: Floats, x: Floats, y: Floats, weight: float
    ) -> None:
        """Learn a row in the leaf of a node, all but its least squares."""
        leaf = tree["leaf"][int(node[3])]
        leaf["rows"] += 1.0
        if leaf["rows"] % FADES == 0.0:
            by = math.pow(FADE, FADES)
            leaf["sums"] *= by
            if self.bayes:
                leaf["model"][..., ::2] *= by
        self._add_to_sums(leaf["sums"], y, weight)
        if self.bayes:
            model, known = leaf["model"][int(y[0])], ~np.isnan(x)
            model[known, 0] += weight
            by = x - model[:, 1]
            model[known, 1] += (weight / model[:, 0] * by)[known]
            model[known, 2] += (weight * by * (x - model[:, 1]))[known]
        for k in range(self.K):
            if leaf["cells"]["feature"][k] < 0.0:
                self._draw_feature(t, tree, leaf["cells"], k)
            self._add_to_cell(leaf["cells"][k], x, y, weight)
        if leaf["rows"] % GRACE == 0.0:
            self._try_split(t, tree, node)

    def _add_to_sums(self, sums: Floats, y: Floats, weight: float) -> None:
        if not self.c:
            sums[int(y[0])] += weight
            return
        sums[0] += weight
        sums[1 : 1 + self.c] += weight * y
        sums[1 + self.c :] += weight * y * y

    def _add_to_cell(self, cell: Any, x: Floats, y: Floats, weight: float) -> None:
        """Add a row to a cell. The first values become the cuts, and are not counted."""
        value, have, cuts = x[int(cell["feature"])], int(cell["count"]), cell["cuts"]
        if math.isnan(value):
            self._add_to_sums(cell["bins"][-1], y, weight)
            return
        at = int((value > cuts[:have]).sum())
        if have == CUTS:
            self._add_to_sums(cell["bins"][at], y, weight)
            return
        cuts[at + 1 : have + 1] = cuts[at:have].copy()
        cuts[at] = value
        cell["count"] += 1.0

    def _has_changed(self, tree: Any, error: float) -> bool:
        """Add an error of a tree; return whether the errors have become larger."""
        tree["error"] += OF_TREE * (error - tree["error"])
        tree["sum"] += error
        tree["count"] += 1.0
        if tree["count"] < BLOCK_ROWS:
            return False
        errors = tree["errors"]
        if tree["blocks"] == BLOCKS:
            errors[:-1] = errors[1:].copy()
            tree["blocks"] -= 1.0
        n = int(tree["blocks"]) + 1
        errors[n - 1], tree["blocks"] = tree["sum"], n
        tree["sum"] = tree["count"] = 0.0
        total, before = np.add.accumulate(errors[:n])[-1], 0.0
        mean, likely = total / (n * BLOCK_ROWS), math.log(2.0 * n / CHANGED)
        spread = max(mean * mean, 1e-6) if self.c else max(mean * (1.0 - mean), 1e-4)
        for i in range(1, n):
            before += errors[i - 1]
            past, since = i * BLOCK_ROWS, (n - i) * BLOCK_ROWS
            rows = 1.0 / (1.0 / past + 1.0 / since)
            bound = math.sqrt(2.0 / rows * spread * likely) + 2.0 / (3.0 * rows) * likely
            if (total - before) / since - before / past > bound:
                return True
        return False

    # -- growing -----------------------------------------------------------------------------------

    def _weight(self, sums: Floats) -> float:
        """The weight of sums, or of several, (n, S)."""
        weights = sums[..., :1] if self.c else sums
        return float(np.add.accumulate(weights.ravel())[-1])

    def _impurity(self, sums: Floats, k: int) -> tuple[float, float]:
        """The impurity of sums: the entropy in bits, or the variance of output k; their weight."""
        total = self._weight(sums)
        if not total > 0.0:
            return 0.0, total
        if self.c:
            mean = sums[1 + k] / total
            return max(sums[1 + self.c + k] / total - mean * mean, 0.0), total
        found = 0.0
        for one in sums[sums > 0.0].tolist():
            found -= one / total * math.log2(one / total)
        return found, total

    def _gain(self, left: Floats, right: Floats, both: Floats) -> float:
        """The share of the impurity removed by dividing sums; -1 if a part has too few rows."""
        gain, units = 0.0, self.common["variance"] if self.c else np.ones(1)
        for k in range(self.c or 1):
            (one, of_left), (two, of_right) = self._impurity(left, k), self._impurity(right, k)
            before, total = self._impurity(both, k)
            if of_left < LEAST or of_right < LEAST:
                return -1.0
            if before > SMALL * units[k]:
                gain += 1.0 - (of_left * one + of_right * two) / (total * before)
        return gain / self.c if self.c else gain

    def _best_split(self, cell: Any) -> tuple[float, int, int]:
        """The gain of the best split by a cell, its cut, and the side of missing values."""
        bins, found = cell["bins"], (-1.0, 0, 0)
        both = np.add.accumulate(bins)[-1]
        for missing in range(2 if self._weight(bins[-1]) > 0.0 else 1):
            for cut in range(int(cell["count"]) + missing):  # the last is above all values
                first = np.zeros_like(both) if missing else bins[-1]
                left = np.add.accumulate(np.vstack((first, bins[: cut + 1])))[-1]
                gain = self._gain(left, both - left, both)
                if gain > found[0] + EQUAL:
                    found = gain, cut, missing
        return found

    def _try_split(self, t: int, tree: Any, node: Floats) -> None:
        """Divide the leaf of a node if one of its cuts is clearly the best."""
        if tree["leaves"] == self.head[Slot.LIMIT]:
            return
        at, second, first, chosen = int(node[3]), 0.0, (-1.0, 0, 0), -1
        cells, waited = tree["leaf"][at]["cells"], tree["leaf"]["rows"][at] >= WAIT
        full = cells["count"] == CUTS
        for k in range(self.K):
            split = self._best_split(cells[k])
            if split[0] > first[0] + EQUAL:
                second, first, chosen = max(second, first[0]), split, k
            else:
                second = max(second, split[0])
            if split[0] <= 0.0 and (full[k] or (waited and self.d > self.K)):
                self._draw_feature(t, tree, cells, k)
        if not first[0] > USEFUL or not (full.all() or waited):
            return
        cell = cells[chosen]
        weight = self._weight(cell["bins"])
        bound = math.sqrt(-math.log(SURE) / (2.0 * weight))
        if first[0] - second > bound or bound < TIE:
            self.common["importance"][int(cell["feature"])] += weight * first[0]
            self._divide(tree, node, cell, first)

    def _divide(self, tree: Any, node: Floats, cell: Any, split: tuple[float, int, int]) -> None:
        """Divide the leaf of a node by a cell. Both children keep what the leaf has learned."""
        _, cut, missing = split
        n, leaf = int(tree["leaves"]), tree["leaf"][int(node[3])]
        bins, sums = cell["bins"], np.zeros((2, len(leaf["sums"])))
        for b, one in enumerate(bins):
            sums[missing if b == len(bins) - 1 else int(b > cut)] += one
        for side in range(2):
            total = self._weight(sums[side])
            if total > OF_PARENT:
                sums[side] *= OF_PARENT / total
        children = tree["nodes"][2 * n - 1 : 2 * n + 1]
        children[:, 0], children[:, 3] = -1.0, (node[3], n)
        at = cell["cuts"][cut] if cut < cell["count"] else LARGEST
        node[:] = cell["feature"], at, missing, 2 * n - 1
        if self.bayes:
            largest = np.add.accumulate(leaf["model"][:, :, 0])[-1].max()
            if largest > OF_PARENT:
                leaf["model"][..., ::2] *= OF_PARENT / largest
        leaf["rows"] = 0.0
        if not self.c:
            leaf["plain"] = leaf["fitted"] = 0.5
        leaf["cells"]["feature"] = -1.0
        tree["leaf"][n] = leaf
        leaf["sums"], tree["leaf"][n]["sums"] = sums
        tree["leaves"] += 1.0


def _fade_to(vector: Floats, weight: float) -> float:
    """The fade, in log2, that leaves this weight of the rows of least squares."""
    mass = float(vector[LeastSquaresSlot.MASS])
    return math.log2(weight / mass) if mass > weight else 0.0


def _learn(vector: Floats, x: Floats, y: Any, weight: float, fade: float) -> None:
    """Learn a row in a vector of least squares."""
    plain.learn(vector, x[None], y[None], np.array([weight]), np.array([fade]), None)


def _predicted(vector: Floats, x: Floats, c: int) -> Floats:
    """A prediction of least squares, which changes nothing."""
    parts = LeastSquares(vector)
    away, d = np.zeros(parts.stride), parts.d
    away[:d] = (x - parts.means[:d]) - parts.rests[:d]
    for j, u in enumerate(parts.T):
        away[j + 1 :] -= away[j] * u[j + 1 :]
    predicted: Floats = (parts.means[d : d + c] - away[d : d + c]) + parts.rests[d : d + c]
    return predicted
