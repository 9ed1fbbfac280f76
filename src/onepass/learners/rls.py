"""RLS: recursive least squares, the exact linear fit to all rows so far.

With weights s_k and a forgetting factor λ, after n rows the coefficients w and intercept b are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π              (1)

exactly as a batch solver would compute them from all rows, which are not stored. The intercept is
eliminated by centring (:mod:`onepass.linalg.centering`), the rest is QRD-RLS
(:mod:`onepass.memory.square_root`): the state is the triangle of the centred rows and their means.
With λ < 1, a floor under the information about each coefficient prevents windup while features
are unexcited (:class:`onepass.memory.forgetting.Bounded`). The other rules of
:mod:`onepass.memory.forgetting` have no floor, forget by time, forget only excited directions, or
retain only the last rows. For a new row x the prediction is xᵀw + b, and its standard deviation,
with c outputs and ν = Σ_k λ^(n−k) s_k the effective number of rows,

    std(x) = σ √(1 + 1/ν + (x − x̄)ᵀ P (x − x̄)),     σ² = least value of (1) / (ν − d − 1)  (2)

(1/ν and the second 1 only with an intercept), infinite while ν ≤ d + 1. The covariance of the
coefficients is

    cov(w) = σ² P,     P = (Σ_k λ^(n−k) s_k (x_k − x̄)(x_k − x̄)ᵀ + λⁿ Π)⁻¹                  (3)

With ``forgetting="auto"`` these are those of a mixture (:mod:`onepass.memory.forgetting.auto`).
Cost: O(d²) time per row, O(d²) memory; several outputs share the triangle.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (1)-(3).
[2] "Online least-squares", lecture notes; block updates by the matrix inversion lemma.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np

from onepass import linalg, native, validation
from onepass.errors import MergeError, NotFittedError, NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Layout, Regressor
from onepass.learners.linear import CACHED_VALUES, Linear, check_fitted, initial_weights
from onepass.learners.rls_compiled import ArrayState, CompiledRows, learn_rows, read
from onepass.learners.rls_device import Device, DeviceRows
from onepass.learners.rls_merge import add_unstored_prior, align_rows, merge_sums
from onepass.linalg.centering import Centering
from onepass.memory.floor import Floor
from onepass.memory.forgetting.auto import AutoState
from onepass.memory.forgetting.exponential import LeastSquaresState, NewRows
from onepass.memory.forgetting.parse import rule
from onepass.memory.forgetting.protocols import ForgettingRule
from onepass.memory.square_root import Prior, SquareRoot
from onepass.serialization.state import CompiledState, StateAttribute
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.table import TableLike, mixed_zones

__all__ = ["LeastSquares", "RLSClassifier", "RLSRegressor"]


_NUMBERS = 1 << 16  # values of a block that is learned in one compiled call
_FITTED = ("weights_", "center_", "offset_")
_LARGEST = 1e150  # sums of squares of larger rows might overflow with the next row


class LeastSquares(Linear):
    """Base class of the RLS estimators: the state is a triangle and means."""

    _merge_parameters: ClassVar[tuple[str, ...]] = ("fit_intercept", "_prior")
    _square = True
    _scale_invariant = True  # predictions depend on the units of features only through the ridge

    ridge: ArrayLike
    forgetting: float | str | ForgettingRule
    prior: float | None
    fit_intercept: bool
    device: str | None
    _shape: Callable[[], dict[str, Any]]
    memory_: Any = StateAttribute()  # with automatic forgetting, that of all rows, not faded
    centering_: Any = StateAttribute()
    prior_: Any = StateAttribute()
    forgetting_: Any = StateAttribute()
    center_: Any = StateAttribute(0.0)  # m of the outputs Wᵀ (x − m) + b; not in former files
    compiled_ = CompiledState()
    initial_weights_: Floats
    time_: Any
    time_aware_: bool
    _frozen: int | None = None  # in frozen copies, the bytes of the state that they do not contain

    @property
    def _uses_time(self) -> bool:
        """Whether learning requires ``time``, because the forgetting rule decays by time."""
        return self._rule().clock is not None

    @property
    def _prior(self) -> float:
        return 0.0 if self.prior is None else self.prior

    def _start(self, d: int, c: int) -> None:
        where, chosen = type(self).__name__, self._rule()
        self.initial_weights_ = initial_weights(getattr(self, "initial_coef", None), d, c, where)
        try:
            self.memory_ = SquareRoot(self.ridge).start(d, c, free=bool(self.fit_intercept))
        except ParameterError as error:  # raise it with the name of the learner
            raise ParameterError(str(error).replace("SquareRoot", where, 1)) from error
        self.centering_ = Centering.start(d, c, free=bool(self.fit_intercept))
        self.prior_ = Prior.start(validation.in_range(self._prior, "prior", where, low=0.0), d)
        least = np.broadcast_to(_diagonal(self.ridge), d).copy()
        past = LeastSquaresState(self.memory_, self.centering_, self.prior_)
        self.forgetting_ = chosen.start(past, least)
        self.weights_ = self.initial_weights_
        self.center_, self.offset_ = np.zeros(d), np.zeros(c)

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None
    ) -> Floats:
        return self._learn(X, Y, s, known, time)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None = None
    ) -> Floats:
        del known  # the targets of an unknown class are zeros, which is exact
        if _largest(X, Y, s) > _LARGEST:  # even if these rows can be learned, later rows could not
            raise self._too_large(X, Y, s)
        rows = NewRows(X, Y, s, self.initial_weights_, time, getattr(self, "time_", None))
        compiled = self._compiled
        arrays = self._arrays() if compiled is None else None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                errors, compiled, arrays = learn_rows(
                    self._rule(), compiled, arrays, rows, self._row_format(), self._device()
                )
            except np.linalg.LinAlgError as error:  # infinite values
                raise self._too_large(X, Y, s) from error
            predictions: Floats = Y - errors
            if isinstance(compiled, DeviceRows):  # its weights were checked there
                good = linalg.finite(predictions)
            elif arrays is None:
                weights, _, offset = _fitted(compiled)
                good = linalg.finite(weights, offset, predictions)
            else:
                (memory, *_), state = arrays
                weights, _, offset = arrays.fitted(self.initial_weights_)
                good = state.finite and linalg.finite(
                    weights, np.diagonal(memory.R), memory.squares, offset, predictions
                )
        if not good:
            raise self._too_large(X, Y, s)
        if arrays is None:
            self._set_compiled(compiled)
        else:
            self._set_arrays(arrays)
        if time is not None:
            self.__dict__["time_"] = time[-1] if time.dtype.kind == "M" else time[-1].item()
        return predictions

    def _too_large(self, X: Floats, Y: Floats, s: Floats | None) -> NumericalError:
        return NumericalError(
            f"{type(self).__name__}: rows, the weights that fit them, and their squares must stay "
            f"within float64, got values up to {_largest(X, Y, s):.3g}. Use units in which "
            "features and targets are nearer to 1. If they are already near 1, an earlier row was "
            "too large: restore the state of the learner before that row."
        )

    def _check_times(self, time: TimeLike | None, n: int, where: str) -> Any:
        chosen = self._rule()
        if self._rule_changed():
            raise ParameterError(
                f"{where}: `forgetting` must have the same kind of state and of time as when "
                f"learning started, got {chosen} after another kind. Call fit to start again "
                "with the new rule."
            )
        clock = chosen.clock
        if clock is None:
            return super()._check_times(time, n, where)  # type: ignore[misc]
        if time is None and n == 0:
            return None
        if time is None:
            raise ParameterError(
                f"{where}: `time` must be given, as the learner forgets by time, {chosen}, got "
                f"none. Pass {clock}s, one for each row: time=..."
            )
        last = getattr(self, "time_", None)
        when = validation.times(time, n, where, dates=clock == "date", last=last)
        aware, before = validation.aware(time), getattr(self, "time_aware_", None)
        if aware is not None:
            if before not in {None, aware}:
                raise mixed_zones(f"{where}: `time`, with the earlier rows,")
            self.__dict__["time_aware_"] = aware
        return when

    def _rule(self) -> ForgettingRule:
        """The forgetting rule that the parameter specifies."""
        return rule(self.forgetting, type(self).__name__)

    def _device(self) -> Device | None:
        """The device that the parameter specifies."""
        if isinstance(self._compiled, DeviceRows):
            return self._compiled.device
        if self.device is None:
            return None
        return Device(self.device, self._rule(), type(self).__name__)

    def _rule_changed(self) -> bool:
        """Whether the kind of rule differs from that of the rule used so far."""
        chosen = self._rule()
        if self._compiled is not None:
            kind = self._compiled.constants[0].state
        else:
            kind = type(getattr(self, "forgetting_", None))
        if kind is not chosen.state:
            return kind is not type(None)
        time = getattr(self, "time_", None)
        clock = None if time is None else "date" if isinstance(time, np.datetime64) else "number"
        return bool(self.rows_seen_ and clock != chosen.clock)

    def _scores(self, X: Floats) -> Floats:
        """Outputs of rows, centred first so that large feature means do not reduce precision."""
        weights, middle, offset = self._fitted()
        if X.size <= CACHED_VALUES:
            return np.asarray((X - middle) @ weights + offset)
        scores = np.empty((len(X), weights.shape[1]))
        width = max(1, CACHED_VALUES // max(1, X.shape[1]))
        for i in range(0, len(X), width):
            rows = slice(i, i + width)
            scores[rows] = (X[rows] - middle) @ weights
        return scores + offset

    def _intercepts(self) -> Floats:
        weights, middle, offset = self._fitted()
        intercepts: Floats = offset - middle @ weights if np.any(middle) else offset
        return intercepts

    def _arrays(self) -> ArrayState:
        """The state in NumPy's form."""
        if self._compiled is not None:
            return read(self._compiled)
        past = LeastSquaresState(self.memory_, self.centering_, self.prior_)
        return ArrayState(past, self.forgetting_)

    @property
    def forgetting_factor_(self) -> Any:
        """The forgetting factor that leads: a float, or (c,) for several outputs."""
        if not isinstance(self.forgetting_, AutoState):
            raise self._missing("forgetting_factor_")  # as without automatic forgetting
        factors = self.forgetting_.factors
        return float(factors[0]) if len(factors) == 1 else factors

    def _fitted(self) -> tuple[Floats, Any, Floats]:
        """Weights W (d, c), centre m (d,), offset b (c,): outputs are Wᵀ (x − m) + b."""
        if self._compiled is not None:
            return _fitted(self._compiled)
        return self.weights_, self.center_, self.offset_

    def _widen(self, d: int) -> None:
        extra = d - len(self.initial_weights_)
        super()._widen(d)
        self.center_ = np.append(
            np.broadcast_to(self.center_, len(self.initial_weights_)), np.zeros(extra)
        )
        self.initial_weights_ = np.vstack(
            (self.initial_weights_, np.zeros((extra, self.initial_weights_.shape[1])))
        )
        state = self.forgetting_
        share = state.share_of_new(self.prior_) if isinstance(state, Floor) else self.prior_.remains
        self.memory_ = self.memory_.grown(d, self.centering_, share)
        self.centering_ = self.centering_.grown(d)
        self.forgetting_ = self.forgetting_.grown(d, float(_diagonal(self.ridge)))
        self.prior_ = self.prior_.grown(d)

    # -- merging -----------------------------------------------------------------------------------

    @property
    def _merging(self) -> Any:
        """``exact`` if the state is a decayed sum over rows or stores rows, else ``refused``.

        ``approximate`` with automatic forgetting, since the floors depend on the order of all rows.
        """
        chosen = self._rule()
        if chosen.state is AutoState:
            return "approximate"
        return "exact" if chosen.additive or chosen.stores_rows else "refused"

    @property
    def _stored_rows(self) -> str:
        """What the state contains of single rows, with a remedy; empty if it has only sums."""
        if not hasattr(self, "rows_seen_"):
            return "which has not learned any rows; let each site learn first"
        if self._merging != "exact" or self._rule().stores_rows:
            return f"whose forgetting is {self._rule()}; use forgetting=1.0"
        if self._prior:
            return "whose prior stores its first row; use prior=0 and a ridge"
        if self.memory_.span is not None:
            return "which stores a reference row until its rows determine all weights; use a ridge"
        return ""

    def _unmergeable(self) -> str:
        chosen = self._rule()
        if self._rule_changed():
            return (
                f"got one whose `forgetting` is {chosen} after it learned with another kind. "
                "Restore the former value, or call fit to start again with the new one."
            )
        floored = (
            0 if chosen.stores_rows else getattr(getattr(self, "forgetting_", None), "rows", 0)
        )
        if self._merging != "refused" and not floored:  # and no floor was active before
            return ""
        return (
            f"got one whose state with forgetting {chosen} is not a decayed sum over rows. "
            "Use plain forgetting, such as forgetting=op.forgetting.Exponential(0.99), or a Window."
        )

    def _merge(self, other: Self, layout: Layout) -> None:
        one, two = self._rule(), rule(other.forgetting, type(other).__name__)
        factors = [getattr(chosen, "factor", None) for chosen in (one, two)]
        if one != two and factors != [1.0, 1.0]:
            raise MergeError(
                f"{type(self).__name__}.merge: `forgetting` must be the same in both, {one} as in "
                f"the first, got {two}. Learn all parts with the same parameters."
            )
        if self._rule().stores_rows:
            self._merge_window(other, layout)
        else:
            merge_sums(self, other, layout)

    def _merge_window(self, other: Self, layout: Layout) -> None:
        """Learn the rows of another learner's window; for windows of time, in order of time."""
        chosen, where = self._rule(), f"{type(self).__name__}.merge"
        if layout.concurrent and chosen.clock is None:
            raise MergeError(
                f"{where}: `concurrent` must be False with {chosen}, which stores the last rows of "
                "one stream, got True. Use a window of time, Window(span=...)."
            )
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        more = align_rows(
            other.forgetting_.stored_rows,
            other.initial_weights_,
            layout,
            self.initial_weights_.shape[1],
        )
        empty = not len(self.forgetting_)
        overlap = chosen.clock is not None and not empty and more.time[0] < self.time_
        if overlap and self.prior_.level:
            raise MergeError(
                f"{where}: with a `prior` all rows of the second must be later than those of the "
                "first, got some that are earlier. Merge in order of time, or set prior=0."
            )
        if len(more) < other.rows_seen_:
            add_unstored_prior(self, other, layout)
        if overlap:
            own = self.forgetting_.stored_rows
            own = replace(own, b=own.b + own.X @ self.initial_weights_)
            self._start(layout.d, self.initial_weights_.shape[1])
            del self.time_
            more = own.then(more)
            more = more.part(np.argsort(more.time, kind="stable"))
        self._learn(more.X, more.b, more.roots**2, None, more.time)
        if empty:  # the other learner's first row may have left the window
            first = np.zeros(layout.d)
            first[layout.features] = other.prior_.first
            self.prior_ = replace(self.prior_, first=first)

    # -- the compiled state ------------------------------------------------------------------------

    def _learn_few(self, X: TableLike, y: ArrayLike | None, where: str) -> Floats | None:
        if self._compiled is None or "classes_" in self.__dict__:
            return None
        if validation.is_small_table(X, _NUMBERS):
            X = validation.matrix(X, f"{type(self).__name__}.{where}", **self._shape())[0]
            y = validation.series_array(y)
        if not (_is_plain(X, 2) and _is_plain(y, self.target_ndim_)):
            return None
        same_features = X.shape[1] == self._compiled.d
        same_outputs = len(y) == len(X) and y.size == len(X) * self._compiled.c
        if not (0 < X.size <= _NUMBERS and same_features and same_outputs):
            return None
        X, y, errors = np.ascontiguousarray(X), np.ascontiguousarray(y), np.empty(y.shape)
        return y - errors if self._compiled.learn_few(len(y), X, y, errors) else None

    def _learn_at_time(
        self, compiled: Any, x: RowLike, y: ArrayLike | None, weight: float, time: TimeLike
    ) -> bool:
        chosen, own = self._rule(), self.__dict__
        now = None if chosen.clock is None else validation.time_like(own["time_"], time)
        if now is None or own.get("time_aware_"):
            return False
        passed: Any = now - own["time_"]
        if isinstance(passed, np.timedelta64):
            passed = passed / np.timedelta64(1, "s")
        if not compiled.learn_one(x, y, weight, passed / chosen.unit):  # type: ignore[attr-defined]
            return False
        own["time_"] = now
        return True

    def _set_arrays(self, arrays: ArrayState) -> None:
        """Set the learned attributes."""
        (self.memory_, self.centering_, self.prior_), self.forgetting_ = arrays
        self.weights_, self.center_, self.offset_ = arrays.fitted(self.initial_weights_)

    def _compile(self) -> None:
        """Do nothing: the state is compiled when a row is learned."""

    def _read_all(self, compiled: Any) -> dict[str, Any]:
        (memory, centering, prior), state = read(compiled)
        return {
            "memory_": memory,
            "centering_": centering,
            "prior_": prior,
            "forgetting_": state,
            **dict(zip(_FITTED, _fitted(compiled), strict=True)),
        }

    def _read(self, compiled: Any, name: str) -> Any:
        if name == "weights_":  # also without copies of the means
            weights = np.empty((compiled.d, compiled.c))
            if compiled.fitted(weights, None, None) is not False:
                return weights
        return self._read_all(compiled)[name]

    def _for_prediction(self, compiled: Any) -> dict[str, Any]:
        fitted = _fitted(compiled)
        left_out = compiled.nbytes - sum(part.nbytes for part in fitted)
        return {**dict(zip(_FITTED, fitted, strict=True)), "_frozen": left_out}

    def _import(self, state: CompiledRows) -> None:
        """Continue from the content of a compiled state."""
        if native.loops is not None:
            self._set_compiled(
                state.compiled(self._rule(), self.initial_weights_, self._row_format())
            )
            return
        self._set_arrays(state.arrays())

    def _exported(self, compiled: Any) -> dict[str, Any]:
        exact: dict[str, Any] = compiled.constants[0].exported(compiled)
        return exact or self._read_all(compiled)

    def __setstate__(self, state: dict[str, Any]) -> None:
        attributes = dict(state)
        compiled = attributes.pop("compiled_", None)
        super().__setstate__(attributes)  # type: ignore[misc]
        if compiled is not None:
            self.compiled_ = compiled

    def _missing(self, name: str) -> AttributeError:
        if self._frozen is None:
            return super()._missing(name)
        return NotFittedError(
            "onepass: learning, saving and `return_std` must be used with a whole learner, got its "
            "`frozen_copy()`, which only predicts. Use `model()` of a durable learner, or "
            "copy.deepcopy of another learner."
        )


def _fitted(compiled: Any) -> tuple[Floats, Floats, Floats]:
    """Weights W (d, c), centre m (d,), offset b (c,) of a compiled state."""
    weights, middle = np.empty((compiled.d, compiled.c)), np.empty(compiled.d)
    offset = np.empty(compiled.c)
    if compiled.fitted(weights, middle, offset) is False:  # a window that is not accurate
        return read(compiled).past.fitted(compiled.constants[-1])
    return weights, middle, offset


def _is_plain(values: object, ndim: int) -> TypeGuard[Floats]:
    """Whether values are an aligned float64 array of this number of dimensions."""
    if type(values) is not np.ndarray or values.dtype != np.float64:
        return False
    return values.ndim == ndim and bool(values.flags.aligned)


def _largest(X: Floats, Y: Floats, s: Floats | None) -> float:
    """The largest magnitude in the rows, with and without their weights."""
    largest = max(linalg.magnitude(X), linalg.magnitude(Y))
    if s is None or max(largest, 1.0) * math.sqrt(s.max()) <= _LARGEST:
        return largest
    sizes = np.maximum(np.abs(X).max(axis=1, initial=1.0), np.abs(Y).max(axis=1, initial=1.0))
    with np.errstate(over="ignore"):
        return max(largest, float((sizes * np.sqrt(s)).max()))


def _diagonal(ridge: ArrayLike) -> Floats:
    """The diagonal of the ridge matrix."""
    array = np.asarray(ridge, dtype=np.float64)
    return np.asarray(np.diagonal(array) if array.ndim == 2 else array)


class RLSRegressor(LeastSquares, Regressor):
    """Recursive least squares: linear regression fitted exactly to all rows so far.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        Penalty Π >= 0 in ``ridge`` · ‖w − w₀‖² on the coefficients, in units of a squared feature;
        or a symmetric positive semidefinite matrix. 0 is ordinary least squares; while the rows do
        not determine the solution, it has least norm in units of each feature's first value. The
        intercept is not penalised. Features much smaller than 1 require a smaller ridge, or 0 with
        a ``prior``.
    forgetting : float, forgetting rule or str, default=1.0
        A float is the forgetting factor λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no
        forgetting. λ is short for ``op.forgetting.Bounded(λ)``, which retains the information of
        one row about features that are unexcited. ``"auto"`` mixes eight factors, weighted by
        their errors, for streams whose rate of change is unknown
        (:class:`~onepass.memory.forgetting.Auto`). Other rules of
        :mod:`onepass.memory.forgetting`, such as forgetting by time, can be given as objects or
        strings, such as ``"window:1000"``.
    prior : float, optional
        Strength >= 0 of the prior that each coefficient is near its initial value, in rows, in
        units of the first value of its feature (:mod:`onepass.memory.square_root`). With 1,
        predictions on wide categorical tables are stable from the first rows, whatever the units.
        The prior is added to the ridge. None is 0, or 10 in a Pipeline after random features, since
        accuracy would otherwise fall while there are about as many rows as features.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    initial_coef : array-like of shape (d,) or (c, d), optional
        Initial coefficients w₀, towards which the ridge shrinks. By default zeros.
    device : str, optional
        Device of PyTorch on which blocks are learned, such as ``"cuda"``, for thousands of
        features (extra ``torch``). The state remains there between blocks, in float64. It requires
        forgetting 1.0 or ``op.forgetting.Exponential(factor)``. Rows that the device cannot add
        accurately, such as the first ones with ridge 0, are learned in NumPy. None learns all rows
        in NumPy or compiled code.

    Attributes
    ----------
    coef_ : ndarray of shape (d,) or (c, d)
        Coefficients.
    intercept_ : float or ndarray of shape (c,)
        Intercept.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.
    covariance_ : ndarray of shape (d, d) or (c, d, d)
        Covariance (3) of the coefficients; infinite until the rows determine it.
    coef_std_ : ndarray of shape (d,) or (c, d)
        Standard errors of the coefficients.
    forgetting_factor_ : float or ndarray of shape (c,)
        The factor that leads at present; only with automatic forgetting.
    time_ : int, float or datetime64
        Time of the last row; only with forgetting by time.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = X @ [1.0, 2.0, 3.0] + 4.0
    >>> model = op.RLSRegressor()
    >>> predictions = model.test_then_train(X, y)
    >>> float(abs(predictions[10:] - y[10:]).max()) < 1e-4
    True
    >>> model.coef_.round(6)
    array([1., 2., 3.])
    """

    def __init__(
        self,
        ridge: ArrayLike = 1e-6,
        forgetting: float | str | ForgettingRule = 1.0,
        *,
        prior: float | None = None,
        fit_intercept: bool = True,
        initial_coef: ArrayLike | None = None,
        device: str | None = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.initial_coef: Any = initial_coef
        self.device = device

    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict targets for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to also return the standard deviation (2) of a new target, with automatic
            forgetting that of the mixture.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
            Predictions.
        std : ndarray of the same shape
            Only with ``return_std``. Infinite until the total weight of the rows exceeds the number
            of coefficients and the rows determine all of them. Residuals below 1e-154 count as 0.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X, "predict")
        predictions = self._to_predictions(self._scores(array), None)
        std = np.sqrt(self._arrays().variance(array, self.initial_weights_))
        return predictions, self._to_predictions(std, None)

    @property
    def covariance_(self) -> Floats:
        """Covariance of the coefficients (3): (d, d), or (c, d, d) for several outputs."""
        check_fitted(self, "covariance_")
        covariance = self._arrays().covariance(self.initial_weights_)
        return covariance[0] if self.target_ndim_ == 1 else covariance

    @property
    def coef_std_(self) -> Floats:
        """Standard errors of the coefficients, the roots of the diagonal of ``covariance_``."""
        return np.sqrt(np.diagonal(self.covariance_, axis1=-2, axis2=-1))

    def predict_one(self, x: RowLike, *, return_std: bool = False) -> Any:
        """Predict the target of one row, from the initial weights if no row was learned.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        return_std : bool, default=False
            Whether to also return the standard deviation (2) of a new target.

        Returns
        -------
        y : float or ndarray of shape (c,)
            The prediction.
        std : float or ndarray of shape (c,)
            Only with ``return_std``, as in ``predict``. Infinite before the first row.
        """
        if not return_std:
            return super().predict_one(x)
        found = None if self._compiled is None else self._compiled.predict_std(x)
        if found is not None:
            return found
        row = self._row(x, f"{type(self).__name__}.predict_one")
        if self._started:
            predictions, std = self.predict(row[None], return_std=True)
            return predictions[0], std[0]
        prediction = self._initial_prediction(row)
        return prediction, prediction * 0.0 + np.inf

    def _initial_prediction(self, row: Floats) -> Any:
        c = 1 if np.ndim(self.initial_coef) < 2 else len(self.initial_coef)
        prediction = row @ initial_weights(self.initial_coef, len(row), c, type(self).__name__)
        return float(prediction[0]) if np.ndim(self.initial_coef) < 2 else prediction


class RLSClassifier(LeastSquares, Classifier):
    """Least-squares classification by recursive least squares on class indicators.

    The target of a class is 1 for its rows and 0 for all others; the class with the largest output
    is predicted. The targets of a class before its first row are 0, so that a class that occurs
    late is learned exactly as if it had been known from the start.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-6
        As in :class:`RLSRegressor`.
    forgetting : float, forgetting rule or str, default=1.0
        As in :class:`RLSRegressor`.
    prior : float, optional
        As in :class:`RLSRegressor`.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.
    device : str, optional
        As in :class:`RLSRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    coef_ : ndarray of shape (c, d), or (1, d) for two classes
        Coefficients.
    intercept_ : ndarray of shape (c,), or (1,) for two classes
        Intercepts.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import onepass as op
    >>> X, y = load_iris(return_X_y=True)
    >>> predictions = op.RLSClassifier().test_then_train(X[::-1], y[::-1])
    >>> int((predictions == y[::-1]).sum())  # of 150 rows, one class after the other
    134
    """

    def __init__(
        self,
        ridge: ArrayLike = 1e-6,
        forgetting: float | str | ForgettingRule = 1.0,
        *,
        prior: float | None = None,
        fit_intercept: bool = True,
        classes: Collection[object] | None = None,
        device: str | None = None,
    ) -> None:
        self.ridge = ridge
        self.forgetting = forgetting
        self.prior = prior
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.device = device

    def _add_outputs(self, at: Array, c: int) -> None:
        super()._add_outputs(at, c)
        self.initial_weights_ = np.zeros((len(self.initial_weights_), c))
        self.centering_ = self.centering_.with_outputs(at, c)
        self.memory_ = self.memory_.with_outputs(at, c)
        self.forgetting_ = self.forgetting_.with_outputs(at, c)

    def _start(self, d: int, c: int) -> None:
        super()._start(d, c)
        if isinstance(self.forgetting_, AutoState):
            self.forgetting_ = replace(self.forgetting_, indicators=True)
