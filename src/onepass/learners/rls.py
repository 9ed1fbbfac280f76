"""RLS: recursive least squares, the exact linear fit to all rows so far, at every row.

With weights s_k and a forgetting factor λ, after n rows the coefficients w and intercept b are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π              (1)

exactly: as a batch solver would find them from all rows, which are not stored. The intercept is
profiled out (:mod:`onepass.linalg.centering`), the rest is QRD-RLS
(:mod:`onepass.memory.square_root`): the state is the triangle of the centred rows and their means.
Where λ < 1 a floor under the information about each coefficient prevents windup while features
are unexcited (:class:`onepass.memory.forgetting.Bounded`). The other rules of
:mod:`onepass.memory.forgetting` are (1) without a floor, forget by time, forget only what is
excited, or retain the last rows alone. For a new row x the prediction is xᵀw + b, and its
standard deviation, with c outputs and ν = Σ_k λ^(n−k) s_k the effective number of rows,

    std(x) = σ √(1 + 1/ν + (x − x̄)ᵀ P (x − x̄)),     σ² = least value of (1) / (ν − d − 1)  (2)

(1/ν and the second 1 only with an intercept), infinite while ν ≤ d + 1.
Cost: O(d²) time a row, O(d²) memory; several outputs share the triangle.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (1)-(3).
[2] "Online least-squares", lecture notes; block updates by the matrix inversion lemma.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np

from onepass import linalg, validation
from onepass.errors import MergeError, NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Layout, Regressor
from onepass.learners.linear import NEAR, Linear, attributes, initial_weights
from onepass.learners.rls_merge import check_unstored, placed, pool
from onepass.learners.row_loop import learned, opened, serves, told
from onepass.linalg.centering import Centering
from onepass.memory.forgetting.exponential import LeastSquaresState, NewRows
from onepass.memory.forgetting.parse import rule
from onepass.memory.forgetting.protocols import ForgettingRule
from onepass.memory.square_root import Prior, SquareRoot, Triangle
from onepass.types import Array, ArrayLike, Floats, TimeLike
from onepass.validation.table import TableLike, mixed_zones

__all__ = ["LeastSquares", "RLSClassifier", "RLSRegressor"]


_FEW = 64  # rows that the loop learns or answers at once, or not at all
_NUMBERS = 1 << 16  # or more rows of so few numbers: it takes less than a millisecond
_SMALL = 64  # features for which one row is enough to open the loop; of more, two in a row are
_LARGEST = 1e150  # sums of squares of larger rows might have no room for another row


class LeastSquares(Linear):
    """What the regressor and the classifier share: learning rows into triangle and means."""

    _merge_parameters: ClassVar[tuple[str, ...]] = ("fit_intercept", "prior")
    held: ClassVar[tuple[str, ...]] = (
        "memory_", "centering_", "prior_", "forgetting_", "weights_", "middle_", "offset_",
        "rows_seen_",
    )  # fmt: skip
    _unneeded: ClassVar[tuple[str, ...]] = ("memory_", "centering_", "prior_")
    _square = True
    _scale_invariant = (
        True  # the answers do not depend on the features' units, but through the ridge
    )

    ridge: ArrayLike
    forgetting: float | str | ForgettingRule
    prior: float
    fit_intercept: bool
    memory_: Triangle
    centering_: Centering
    prior_: Prior
    forgetting_: Any
    start_: Floats
    middle_: Any = 0.0  # m of the outputs Wᵀ (x − m) + b; missing in files of former versions
    time_: Any
    time_aware_: bool
    rows_seen_: int

    @property
    def uses_time(self) -> bool:
        """Whether the verbs that learn need the time of each row: where the past fades by time."""
        return self._rule().clock is not None

    def _start(self, d: int, c: int) -> None:
        where, chosen = type(self).__name__, self._rule()
        self.start_ = initial_weights(getattr(self, "initial_coef", None), d, c, where)
        try:
            self.memory_ = SquareRoot(self.ridge).start(d, c, free=bool(self.fit_intercept))
        except ParameterError as wrong:  # in the words of who set it
            raise ParameterError(str(wrong).replace("SquareRoot", where, 1)) from wrong
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.prior_ = Prior.start(validation.in_range(self.prior, "prior", where, low=0.0), d)
        least = np.broadcast_to(_diagonal(self.ridge), d).copy()
        past = LeastSquaresState(self.memory_, self.centering_, self.prior_)
        self.forgetting_ = chosen.start(past, least)
        self.weights_ = self.start_
        self.middle_, self.offset_ = np.zeros(d), np.zeros(c)

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None
    ) -> Floats:
        return self._learn(X, Y, s, known, time)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None = None
    ) -> Floats:
        del known  # an output whose class is not known yet has seen zeros: that is exact
        if _largest(X, Y, s) > _LARGEST:  # even if they could be learned: no row could after them
            raise self._too_large(X, Y, s)
        past = LeastSquaresState(self.memory_, self.centering_, self.prior_)
        rows = NewRows(X, Y, s, self.start_, time, getattr(self, "time_", None))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                found = learned(self._rule(), self.forgetting_, past, rows)
            except np.linalg.LinAlgError as wrong:  # of infinity
                raise self._too_large(X, Y, s) from wrong
            memory = found.past.memory
            said: Floats = Y - found.errors
            weights, middle, offset = found.past.fitted(self.start_)
            good = found.state.finite and linalg.finite(
                weights, np.diagonal(memory.R), memory.squares, offset, said
            )
        if not good:
            raise self._too_large(X, Y, s)
        self.memory_, self.centering_, self.prior_ = found.past
        self.forgetting_ = found.state
        self.weights_, self.middle_, self.offset_ = weights, middle, offset
        if time is not None:
            self.time_ = time[-1] if time.dtype.kind == "M" else time[-1].item()
        return said

    def _too_large(self, X: Floats, Y: Floats, s: Floats | None) -> NumericalError:
        return NumericalError(
            f"{type(self).__name__}: rows, the weights that fit them, and their squares must stay "
            f"within float64, got values up to {_largest(X, Y, s):.3g}. Give features and "
            "targets in units that bring them nearer to 1. If they already are near 1, an earlier "
            "row was too large: restore the learner from before that row."
        )

    def _when(self, time: TimeLike | None, n: int, where: str) -> Any:
        chosen = self._rule()
        if self._changed():
            raise ParameterError(
                f"{where}: `forgetting` must keep the same of the past, and count time alike, as "
                f"it did so far, got {chosen} after another kind. Call fit to begin anew with it."
            )
        clock = chosen.clock
        if clock is None:
            return super()._when(time, n, where)  # type: ignore[misc]
        if time is None and n == 0:
            return None
        if time is None:
            raise ParameterError(
                f"{where}: `time` must say when each row happened, as the learner forgets by time, "
                f"{chosen}, got none. Give {clock}s, one for each row: time=..."
            )
        last = getattr(self, "time_", None)
        when = validation.times(time, n, where, dates=clock == "date", last=last)
        aware, before = validation.aware(time), getattr(self, "time_aware_", None)
        if aware is not None:
            if before not in {None, aware}:
                raise mixed_zones(f"{where}: `time`, with the rows before,")
            self.time_aware_ = aware
        return when

    def _rule(self) -> ForgettingRule:
        """The rule of forgetting that the parameter stands for."""
        return rule(self.forgetting, type(self).__name__)

    def _changed(self) -> bool:
        """Whether the parameter is of another kind than the rule by which was learned so far."""
        chosen, stored_rows = self._rule(), getattr(self, "forgetting_", None)
        if stored_rows is None or type(stored_rows) is not chosen.state:
            return stored_rows is not None
        time = getattr(self, "time_", None)
        clock = None if time is None else "date" if isinstance(time, np.datetime64) else "number"
        return bool(self.rows_seen_ and clock != chosen.clock)

    def _scores(self, X: Floats) -> Floats:
        """Outputs of rows, centred first so that large feature means cost no digits."""
        if not np.any(self.middle_):
            return super()._scores(X)
        scores = np.empty((len(X), self.weights_.shape[1]))
        width = max(1, NEAR // max(1, X.shape[1]))
        for i in range(0, len(X), width):
            rows = slice(i, i + width)
            scores[rows] = (X[rows] - self.middle_) @ self.weights_
        return scores + self.offset_

    def _intercepts(self) -> Floats:
        if not np.any(self.middle_):
            return self.offset_
        intercepts: Floats = self.offset_ - self.middle_ @ self.weights_
        return intercepts

    def _widen(self, d: int) -> None:
        extra = d - len(self.start_)
        super()._widen(d)
        self.middle_ = np.append(np.broadcast_to(self.middle_, len(self.start_)), np.zeros(extra))
        self.start_ = np.vstack((self.start_, np.zeros((extra, self.start_.shape[1]))))
        self.memory_ = self.memory_.grown(d, self.centering_)
        self.centering_ = self.centering_.grown(d)
        self.forgetting_ = self.forgetting_.grown(d, float(_diagonal(self.ridge)))
        self.prior_ = self.prior_.grown(d)

    # -- merging -----------------------------------------------------------------------------------

    @property
    def merging(self) -> Any:
        """``exact`` where the past is a faded sum over its rows, or is kept."""
        chosen = self._rule()
        return "exact" if chosen.additive or chosen.stores_rows else "refused"

    def _unmergeable(self) -> str:
        chosen = self._rule()
        if self._changed():
            return (
                f"got one whose `forgetting` is {chosen} after it learned with another kind. Set "
                "it as it was, or call fit to begin anew with it."
            )
        held = 0 if chosen.stores_rows else getattr(getattr(self, "forgetting_", None), "rows", 0)
        if self.merging == "exact" and not held:  # nor was a floor put under them before
            return ""
        return (
            f"got one whose forgetting, {chosen}, leaves more than a faded sum of them. Use plain "
            "forgetting, such as forgetting=op.forgetting.Exponential(0.99), or a Window."
        )

    def _merge(self, other: Self, layout: Layout) -> None:
        one, two = self._rule(), rule(other.forgetting, type(other).__name__)
        stored_rows = [getattr(each, "factor", None) for each in (one, two)]
        if one != two and stored_rows != [1.0, 1.0]:
            raise MergeError(
                f"{type(self).__name__}.merge: `forgetting` must be the same in both, {one} as in "
                f"the first, got {two}. Learn all parts with the same parameters."
            )
        if self._rule().stores_rows:
            self._learn_stored(other, layout)
        else:
            pool(self, other, layout)

    def _learn_stored(self, other: Self, layout: Layout) -> None:
        """Learn the rows of the other's window; by time, in the order of both."""
        chosen, where = self._rule(), f"{type(self).__name__}.merge"
        if layout.concurrent and chosen.clock is None:
            raise MergeError(
                f"{where}: `concurrent` must be False with {chosen}, which keeps the last rows of "
                "one stream, got True. Use a window of time, Window(span=...)."
            )
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        more = placed(other.forgetting_.stored_rows, other.start_, layout, self.start_.shape[1])
        fresh = not len(self.forgetting_)
        late = chosen.clock is not None and not fresh and more.time[0] < self.time_
        if late and self.prior_.level:
            raise MergeError(
                f"{where}: with a `prior` the second's rows must all have come after the first's, "
                "got some that came before. Merge in the order of time, or set prior=0."
            )
        if len(more) < other.rows_seen_:
            check_unstored(self, other, layout)
        if late:
            mine = self.forgetting_.stored_rows
            mine = replace(mine, b=mine.b + mine.X @ self.start_)
            self._start(layout.d, self.start_.shape[1])
            del self.time_
            more = mine.then(more)
            more = more.part(np.argsort(more.time, kind="stable"))
        self._learn(more.X, more.b, more.roots**2, None, more.time)
        if fresh:  # its very first row, which may be kept no more
            first = np.zeros(layout.d)
            first[layout.features] = other.prior_.first
            self.prior_ = replace(self.prior_, first=first)

    # -- single rows, and a few, learned by the compiled loop --------------------------------------

    def _few_learned(self, X: TableLike, y: ArrayLike | None, where: str) -> Floats | None:
        if not self._few(X) or type(y) is not np.ndarray:
            return None
        if y.dtype != np.float64 or y.shape != X.shape[:1]:
            return None
        loop, y, errors = self._loop, np.ascontiguousarray(y), np.empty(len(y))
        if loop is not None and loop.learn_few(len(y), X, y, errors):
            return y - errors
        single = self._single + 1
        with self._whole():
            said = self._learn_block(X, y, None, where, None)
            self._opened(single)
        return y if said is None else np.asarray(said)

    def _few_said(self, X: TableLike) -> Floats | None:
        if self._loop is None or not self._few(X) or len(X) > _FEW:
            return None
        said = np.empty(len(X))
        return said if self._loop.predict_few(len(X), X, said) else None

    def _few(self, X: object) -> TypeGuard[Floats]:
        """Whether X is a few rows of numbers, and answers are numbers too."""
        if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2:
            return False
        own = attributes(self)
        known = X.shape[1] == own.get("n_features_in_") and own.get("target_ndim_") == 1
        plain = "feature_names_in_" not in own and "classes_" not in own
        few = 0 < len(X) <= _FEW or 0 < X.size <= _NUMBERS
        return few and known and plain and X.flags.c_contiguous

    def _open(self, single: int) -> None:
        """Let the loop have what was learned, if so many rows that came one by one are enough."""
        own, chosen = attributes(self), self._rule()
        d = len(self.weights_)
        if not serves(chosen, d) or (reading := self._reading()) is None:
            return
        own["_single"] = single
        if d > _SMALL and single < 2:
            return
        past = LeastSquaresState(self.memory_, self.centering_, self.prior_)
        loop = opened(chosen, past, self.forgetting_, self.start_, reading)
        if loop is not None:
            self._hand_over(loop, single)

    def _close(self) -> None:
        """Take what was learned out of the loop."""
        loop, own = self._loop, attributes(self)
        if loop is not None:
            loop.release()  # whoever has it still learns no row by it
            own.update(_taken_out(loop, self._from, self.start_))
        for name in ("_loop", "_from", "_apart", "_single"):
            own.pop(name, None)

    def _told(self, loop: Any) -> Any:
        """What a loop, which goes on to learn, holds that answers rows."""
        return loop.numbers()[-1], loop.get("w"), loop.get("means"), loop.get("rest")

    def _needed(self, before: dict[str, object], held: Any) -> dict[str, Any]:
        """What a copy for answers keeps of what a loop was given: no memory that it left behind."""
        return {**before, **self._apart} if held[0] else before

    def _looked_at(self, before: dict[str, object], held: Any) -> dict[str, Any]:
        """What a loop was given, and what of it is otherwise by what it held."""
        rows, w, means, rest = held
        if not rows:
            return before
        start, d = self.start_, len(self.start_)
        weights = start + np.frombuffer(w, dtype=np.float64).reshape(start.shape)
        means, rest = (np.frombuffer(each, dtype=np.float64) for each in (means, rest))
        return {
            **before,
            "weights_": weights,
            "middle_": means[:d],
            "offset_": means[d:] + (rest[d:] - rest[:d] @ weights),
            "rows_seen_": before["rows_seen_"] + rows,
        }


def _largest(X: Floats, Y: Floats, s: Floats | None) -> float:
    """The largest size of a number of the rows, also as their weights make it."""
    largest = max(linalg.magnitude(X), linalg.magnitude(Y))
    if s is None or max(largest, 1.0) * math.sqrt(s.max()) <= _LARGEST:
        return largest
    sizes = np.maximum(np.abs(X).max(axis=1, initial=1.0), np.abs(Y).max(axis=1, initial=1.0))
    with np.errstate(over="ignore"):
        return max(largest, float((sizes * np.sqrt(s)).max()))


def _taken_out(loop: Any, before: dict[str, Any], start: Floats) -> dict[str, Any]:
    """What the loop has learned, on top of what it was given."""
    rows = loop.numbers()[-1]
    if not rows:
        return before
    memory, centering, prior, floor, *_ = before.values()
    past, floor = told(loop, LeastSquaresState(memory, centering, prior), floor)
    found = (*past, floor, *past.fitted(start), before["rows_seen_"] + rows)
    return dict(zip(before, found, strict=True))


def _diagonal(ridge: ArrayLike) -> Floats:
    """The ridge of each weight by itself."""
    array = np.asarray(ridge, dtype=np.float64)
    return np.asarray(np.diagonal(array) if array.ndim == 2 else array)


class RLSRegressor(LeastSquares, Regressor):
    """Recursive least squares: the exact linear fit to all rows so far, at every row.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        Π: the penalty ``ridge`` · ‖w − w₀‖² on the coefficients, >= 0, in units of a squared
        feature; or a symmetric positive semidefinite matrix. 0 is plain least squares; while the
        rows do not determine it, the solution has least norm in units of each feature's first
        value. The intercept is not penalised. Features much smaller than 1 need a smaller ridge,
        or 0 with a ``prior``.
    forgetting : float, rule of forgetting or str, default=1.0
        A number is λ in (0, 1]: a row k rows ago weighs λᵏ, and 1 forgets nothing. It stands for
        ``op.forgetting.Bounded(λ)``, which keeps one row's worth of what falls silent. Other rules
        of :mod:`onepass.memory.forgetting`, also by time; or their text, such as ``"window:1000"``.
    prior : float, default=0.0
        Rows' worth of belief, >= 0, that each coefficient is near where it began, in the units
        that its feature shows first (:mod:`onepass.memory.square_root`). With 1, wide tables of
        categories are calm from the first rows, whatever their units; it adds to the ridge.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    initial_coef : array-like of shape (d,) or (c, d), optional
        w₀, towards which the ridge pulls; zeros if not given.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
    intercept_ : float or ndarray of shape (c,)
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.
    time_ : int, float or datetime64
        The time of the last row, where the past fades by time.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + 4.0
    >>> model = op.RLSRegressor()
    >>> said = model.test_then_train(X, y)
    >>> float(abs(said[10:] - y[10:]).max()) < 1e-4
    True
    >>> model.coef_.round(6)
    array([1., 2., 3.])
    """

    def __init__(
        self,
        ridge: ArrayLike = 1e-6,
        forgetting: float | str | ForgettingRule = 1.0,
        *,
        prior: float = 0.0,
        fit_intercept: bool = True,
        initial_coef: ArrayLike | None = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.initial_coef: Any = initial_coef

    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Answers for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to return the standard deviation (2) of a new answer too.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
        std : ndarray of the same shape
            Only with ``return_std``. Infinite until there are more rows, by weight, than
            coefficients, and until they determine all of them. Residuals below 1e-154 count as 0.

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X, "predict")
        said = self._answers(self._scores(array), None)
        d, center = array.shape[1], self.centering_
        spare = center.mass - d - center.free
        if spare <= 0.0:  # not determined yet
            return said, np.full(said.shape, np.inf)
        variance = self.memory_.least / spare
        spread = 1.0 + LeastSquaresState(self.memory_, center, self.prior_).leverage(array)
        with np.errstate(invalid="ignore"):  # infinity times 0, if the rows fit exactly
            std = np.sqrt(spread[:, None] * variance)
        return said, self._answers(np.where(np.isinf(spread)[:, None], np.inf, std), None)

    def _initial_prediction(self, row: Floats) -> Any:
        c = 1 if np.ndim(self.initial_coef) < 2 else len(self.initial_coef)
        said = row @ initial_weights(self.initial_coef, len(row), c, type(self).__name__)
        return float(said[0]) if np.ndim(self.initial_coef) < 2 else said


class RLSClassifier(LeastSquares, Classifier):
    """Least-squares classification: one RLS output a class, the largest is the answer.

    The answers learned are 1 for a row's class and 0 for the others. A class that comes late has
    been 0 in every row so far, so that it is learned exactly as if it had been known all along.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        As in :class:`RLSRegressor`.
    forgetting : float, rule of forgetting or str, default=1.0
        As in :class:`RLSRegressor`.
    prior : float, default=0.0
        As in :class:`RLSRegressor`.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
    intercept_ : ndarray of shape (c,), or (1,) for two classes
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import onepass as op
    >>> X, y = load_iris(return_X_y=True)
    >>> said = op.RLSClassifier().test_then_train(X[::-1], y[::-1])
    >>> int((said == y[::-1]).sum())  # of 150, one class after the other
    134
    """

    def __init__(
        self,
        ridge: ArrayLike = 1e-6,
        forgetting: float | str | ForgettingRule = 1.0,
        *,
        prior: float = 0.0,
        fit_intercept: bool = True,
        classes: Collection[object] | None = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.classes = classes

    def _add_outputs(self, at: Array, c: int) -> None:
        super()._add_outputs(at, c)
        self.start_ = np.zeros((len(self.start_), c))
        self.centering_ = self.centering_.with_outputs(at, c)
        self.memory_ = self.memory_.with_outputs(at, c)
        self.forgetting_ = self.forgetting_.with_outputs(at, c)
