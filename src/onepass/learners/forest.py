"""Forests of trees that grow row by row, with naive Bayes or least squares in their leaves.

Each of T trees learns a row with a Poisson weight of mean 6 [1, 2]. A leaf tests K features, drawn
from the seed: the first 8 values of a feature are cuts, between which the rows are summed, and
rows without a value are summed apart. K is √d + 1 with classes, and 0.6 d, at most 64, in a
regression. Every 20 rows of a leaf, the cut with the largest gain g₁, the share of the entropy or
variance that it removes, splits the leaf if at least 0.005 is gained and [3]

    g₁ − g₂ > ε  or  ε < 0.05,      ε = √(ln 100 / 2w),                                    (1)

with g₂ the largest gain of another feature and w the weight of the rows; missing values go where
the gain is larger, or have a side of their own. Features without gain are replaced by others. Sums
fade by 0.999 per row, and the children of a leaf keep what it has learned, with a small weight. A
leaf of classes predicts their shares or naive Bayes [4], whichever has had fewer errors in about
the last 50 rows. In a regression, least squares is fitted to all rows, and the trees learn its
residuals; a leaf predicts their mean or, with at most 32 features, by least squares of its own
rows, started from that of its parent [5], whichever has had smaller errors.

The weight of a tree in a prediction is (1 − e)³ with classes, and 1/e in a regression, with e the
faded mean of its errors. A tree is reset if e has become larger, by Bernstein's inequality for the
means before and after each of the last 64 blocks of 32 rows [6].

Random numbers are hashes of the seed, the tree, and their number. The state is one vector, in which
rows are learned in place; so blocks equal single rows, bit for bit.

Cost of a row: O(T (depth + K)), and O(T d C) for naive Bayes, O(d² + T d²) for least squares.

[1] N. Oza, S. Russell, "Online bagging and boosting", AISTATS 2001.
[2] A. Bifet, G. Holmes, B. Pfahringer, "Leveraging bagging for evolving data streams", ECML 2010.
[3] P. Domingos, G. Hulten, "Mining high-speed data streams", KDD 2000.
[4] J. Gama, R. Rocha, P. Medas, "Accurate decision trees for mining high-speed data streams",
    KDD 2003.
[5] E. Ikonomovska, J. Gama, S. Džeroski, "Learning model trees from evolving data streams", Data
    Mining and Knowledge Discovery 23, 2011.
[6] A. Bifet, R. Gavaldà, "Learning from time-changing data with adaptive windowing", SDM 2007.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from onepass import native
from onepass.declared import State, param
from onepass.errors import NumericalError
from onepass.learners import forest_plain, forest_vector
from onepass.learners.class_means import UNSEEN
from onepass.learners.compiled import InPlace, PlainRows
from onepass.learners.estimator import Classifier, Learner, Regressor
from onepass.learners.forest_vector import Parts, Slot
from onepass.types import Array, Floats

_LARGEST = forest_plain.LARGEST


@dataclass(eq=False, repr=False)
class Forest(InPlace, Learner):
    """Base class of the forests: the state is one vector, ``forest_``."""

    _accepts_missing: ClassVar[bool] = True
    _scale_invariant: ClassVar[bool] = True

    forest_ = State[Floats]()

    trees: int = param(10, whole=True, low=1, high=1000)
    _: KW_ONLY
    seed: int = param(0, whole=True, low=0, high=2**32 - 1)
    max_bytes: float = param(16e6, above=0.0, high=8e9)

    @property
    def feature_importances_(self) -> Floats:
        """The shares of the features in the gains of all splits, (d,)."""
        gains = np.array(Parts(self.forest_).common["importance"])
        total = gains.sum()
        return np.asarray(gains / total if total > 0.0 else gains)

    @property
    def n_leaves_(self) -> Array:
        """The number of leaves of each tree, (trees,)."""
        return Parts(self.forest_).leaves

    @property
    def _started(self) -> bool:
        return "forest_" in self.__dict__

    def _rows_learned(self) -> int:
        return int(self.forest_.item(Slot.ROWS))

    def _vector_of(self, own: Mapping[str, Any]) -> Floats | None:
        return own.get("forest_")

    def _begin(self, d: int, C: int, c: int) -> None:
        self.forest_ = forest_vector.start(
            d, C, c, trees=self.trees, seed=self.seed, max_bytes=self.max_bytes
        )

    def _learn_rows(
        self, X: Floats, targets: Floats, s: Floats, room: Callable[[Floats, int], Floats]
    ) -> tuple[Floats, Floats]:
        """Learn rows in a copy; return the vector, and what was predicted before each row.

        ``room(vector, i)`` returns a vector with room for row i.
        """
        vector, done, parts = self.forest_.copy(), 0, []
        while True:
            p = np.empty((len(X) - done, int(vector[Slot.CLASSES] + vector[Slot.OUTPUTS])))
            arrays = X[done:], targets[done:], s[done:], p
            try:
                if native.loops is None:
                    n = forest_plain.learn(vector, *arrays)
                else:
                    n = native.loops.forest_learn(vector, len(p), *arrays)
            except OverflowError:
                raise _too_large(X, targets, s) from None
            parts.append(p[:n])
            done += n
            if done == len(X):
                break
            vector = room(vector, done)
        c = parts[-1].shape[1]
        return vector, np.concatenate([np.pad(p, ((0, 0), (0, c - p.shape[1]))) for p in parts])

    def _learned_in_place(self, row: Floats, d: int, found: Floats) -> int:
        """Learn a row, its target and its weight; 0 if a block must learn it."""
        vector = self.__dict__["forest_"]
        if not vector.flags.writeable:
            return 0
        try:
            n: int = native.loops.forest_learn(  # type: ignore[union-attr]
                vector, 1, row[:d], row[d:-1], row[-1:], found
            )
        except OverflowError:
            return 0
        return n

    def _more_leaves(self, vector: Floats) -> Floats:
        """The vector with room for more leaves."""
        leaves = min(2 * vector[Slot.LEAVES] + 7, vector[Slot.LIMIT])
        return forest_vector.resized(vector, leaves=int(leaves), max_bytes=self.max_bytes)

    def _prepare_single_rows(self) -> None:
        PlainRows.prepare(self)

    def _widen(self, d: int) -> None:
        self.forest_ = forest_vector.resized(self.forest_, d=d, max_bytes=self.max_bytes)

    @property
    def _moves(self) -> bool:
        return True

    def _move(self, origins: Floats) -> None:
        self.forest_ = forest_vector.moved(self.forest_, origins)

    def _unmergeable(self) -> str:
        return (
            "got a forest, whose trees do not retain the rows that a merge needs. Learn all rows "
            "with one learner and partial_fit, or average the predictions of several forests."
        )


def _predicted(vector: Floats, X: Floats) -> Floats:
    """Probabilities (n, C) of the classes of a vector, or predictions (n, c)."""
    predictions = np.empty((len(X), int(vector[Slot.CLASSES] + vector[Slot.OUTPUTS])))
    X = np.ascontiguousarray(X, dtype=np.float64)
    if not predictions.size:  # no class yet
        return predictions
    if native.loops is None:
        forest_plain.predict(vector, X, predictions)
    else:
        native.loops.forest_predict(vector, len(X), X, predictions)
    return predictions


def _log(p: Floats, order: Array, c: int) -> Floats:
    """Scores (n, c) from the probabilities of the classes of the state."""
    scores = np.full((len(p), c), UNSEEN)
    with np.errstate(divide="ignore"):
        scores[:, order[: p.shape[1]]] = np.fmax(np.log(p), UNSEEN)
    return scores


def _too_large(X: Floats, targets: Floats, s: Floats) -> NumericalError:
    largest = max(float(np.fmax.reduce(np.abs(a), axis=None)) for a in (X, targets, s))
    return NumericalError(
        f"rows, targets and weights must be small enough to square and sum, below {_LARGEST:g}, "
        f"got values up to {largest:.3g}. Divide the columns by a constant."
    )


@dataclass(eq=False, repr=False)
class ForestRegressor(Forest, Regressor):
    """Forest of regression trees on the residuals of least squares.

    The features may be in any units, and missing (NaN). Trees need no scaled features; least
    squares, of all rows and in the leaves, replaces missing values by means.

    Parameters
    ----------
    trees : int, default=10
        Number of trees, >= 1. Time and memory are proportional to it.
    seed : int, default=0
        Seed of the features that leaves test, and of the weights of the rows in the trees.
    max_bytes : float, default=16e6
        Bound of the size of the state in bytes, in (0, 8e9]. A tree that has reached its share
        grows no more; its leaves still learn. Each tree has at least one leaf, and least squares of
        d features has about d² numbers, also beyond the bound.

    Attributes
    ----------
    forest_ : ndarray
        The state.
    feature_importances_ : ndarray of shape (d,)
        The shares of the features in the gains of all splits.
    n_leaves_ : ndarray of shape (trees,)
        The number of leaves of each tree.
    n_features_in_, n_outputs_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If values are too large to be squared. The learner is then unchanged.

    Notes
    -----
    Weights of rows count as numbers of rows: a leaf needs weight to be split.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 2))
    >>> y = np.where(X[:, 0] > 0, 3 * X[:, 1], -X[:, 1])
    >>> error = y - op.ForestRegressor().test_then_train(X, y)
    >>> bool(np.abs(error[-500:]).mean() < 0.3)
    True
    """

    _square: ClassVar[bool] = True

    def _start(self, d: int, c: int) -> None:
        self._begin(d, 0, c)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask
        X, Y = (np.ascontiguousarray(a, dtype=np.float64) for a in (X, Y))
        self.forest_, predictions = self._learn_rows(
            X, Y, _weights(s, len(X)), lambda vector, _: self._more_leaves(vector)
        )
        return predictions

    def _learn_plain_row(self, row: Floats, d: int) -> bool:
        """Learn a row, its target and weight in place; return whether that was possible."""
        return bool(self._learned_in_place(row, d, np.empty(1)))

    def _scores(self, X: Floats) -> Floats:
        return _predicted(self.forest_, X)

    def _initial_prediction(self, row: Floats) -> float:
        del row
        return 0.0

    @property
    def _sound(self) -> bool:
        """Whether the vector of a loaded file has the sizes of its features and outputs."""
        if not self._started:
            return super()._sound
        sizes = self.n_features_in_, 0, self.n_outputs_
        return forest_vector.is_sound(self.forest_, *sizes) and super()._sound


@dataclass(eq=False, repr=False)
class ForestClassifier(Forest, Classifier):
    """Forest of classification trees with naive Bayes in their leaves.

    The features may be in any units, and missing (NaN). New classes may occur at any time.

    Parameters
    ----------
    trees : int, default=10
        Number of trees, >= 1. Time and memory are proportional to it.
    seed : int, default=0
        Seed of the features that leaves test, and of the weights of the rows in the trees.
    max_bytes : float, default=16e6
        Bound of the size of the state in bytes, in (0, 8e9]. A tree that has reached its share
        grows no more; its leaves still learn. A new class makes leaves larger: trees that no longer
        fit are reset. Each tree has at least one leaf, also beyond the bound.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    forest_ : ndarray
        The state.
    order_ : ndarray
        The index in ``classes_`` of each class of the state, in order of appearance.
    feature_importances_ : ndarray of shape (d,)
        The shares of the features in the gains of all splits.
    n_leaves_ : ndarray of shape (trees,)
        The number of leaves of each tree.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If values are too large to be squared. The learner is then unchanged.

    Notes
    -----
    Weights of rows count as numbers of rows: a leaf needs weight to be split.
    ``decision_function`` is the logarithm of the weighted mean of the trees' probabilities. Naive
    Bayes is used while there are at most 1,000 products of a class and a feature.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 2))
    >>> y = X[:, 0] * X[:, 1] > 0  # no line separates the classes
    >>> correct = op.ForestClassifier().test_then_train(X, y.astype(int)) == y
    >>> bool(correct[-500:].mean() > 0.9)
    True
    """

    _: KW_ONLY
    classes: Collection[object] | None = None

    order_ = State[Array]()

    def _start(self, d: int, c: int) -> None:
        del c
        self._begin(d, 0, 0)
        self.order_ = np.zeros(0, dtype=np.intp)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del class_mask  # a class without rows scores below all others
        X, labels = np.ascontiguousarray(X, dtype=np.float64), Y.argmax(axis=1)
        order = self.order_.tolist()
        at = {label: k for k, label in enumerate(order)}
        absent = Y.shape[1]  # no less than the number of classes of the state
        targets = np.array([at.get(label, absent) for label in labels.tolist()], dtype=np.float64)
        first: dict[int, Floats] = {}  # predictions of the first row of each class

        def room(vector: Floats, i: int) -> Floats:
            if targets[i] < len(order):
                return self._more_leaves(vector)
            first[i] = _predicted(vector, X[i : i + 1])[0]
            targets[labels == labels[i]] = len(order)
            order.append(int(labels[i]))
            return forest_vector.resized(vector, C=len(order), max_bytes=self.max_bytes)

        vector, p = self._learn_rows(X, targets, _weights(s, len(X)), room)
        for i, before in first.items():
            p[i] = np.pad(before, (0, p.shape[1] - len(before)))
        self.__dict__.update(forest_=vector, order_=np.array(order, dtype=np.intp))
        return _log(p, self.order_, absent)

    def _learn_plain_row(self, row: Floats, d: int) -> bool:
        """Learn a row, its label and weight in place; return whether that was possible."""
        label, order = int(row[d]), self.order_.tolist()
        if label not in order:
            return False
        row[d], found = order.index(label), np.empty((1, len(order)))
        if not self._learned_in_place(row, d, found):
            return False
        self._calibrate_row(_log(found, self.order_, len(self.classes_)), label, row[-1:])
        return True

    def _scores(self, X: Floats) -> Floats:
        own = dict(self.__dict__)  # at once: another thread may learn a new class
        return _log(_predicted(own["forest_"], X), own["order_"], len(own["classes_"]))

    @property
    def _remembered_rows(self) -> Floats:
        """The faded rows of each class in leaves where it has at least half of the largest sum."""
        rows = np.zeros(len(self.classes_))
        for tree in Parts(self.forest_).trees:
            sums = tree["leaf"]["sums"][: int(tree["leaves"])]
            large = sums >= 0.5 * sums.max(axis=1, keepdims=True, initial=0.0)
            rows[self.order_] += (sums * large).sum(axis=0)
        return rows / (6.0 * self.trees)  # a row has a mean weight of 6

    def _add_outputs(self, at: Array, c: int) -> None:
        places = np.setdiff1d(np.arange(c), at)
        self.order_ = places[self.order_]

    @property
    def _sound(self) -> bool:
        """Whether the vector of a loaded file has the sizes of its features and classes."""
        if not self._started:
            return super()._sound
        order, c = vars(self).get("order_"), len(self.classes_)
        if type(order) is not np.ndarray or order.dtype.kind != "i" or order.ndim != 1:
            return False
        if len(set(order.tolist())) < len(order) or not set(order.tolist()) <= set(range(c)):
            return False
        sizes = self.n_features_in_, len(order), 0
        return forest_vector.is_sound(self.forest_, *sizes) and super()._sound


def _weights(s: Floats | None, n: int) -> Floats:
    return np.ones(n) if s is None else np.ascontiguousarray(s, dtype=np.float64)
