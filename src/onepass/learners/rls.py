"""RLS: recursive least squares, the exact linear fit to all rows so far.

With weights s_k and a forgetting factor λ, after n rows the coefficients w and intercept b are

    argmin over w, b of  Σ_k λ^(n−k) s_k (y_k − b − x_kᵀ w)² + λⁿ ‖w − w₀‖²_Π              (1)

exactly as a batch solver would compute them from all rows, which are not stored. The state is one
vector (:mod:`onepass.memory.least_squares`): the triangle of the rows, centred at their running
means, and the means. Forgetting rules (:mod:`onepass.forgetting`) determine how the
past fades. The variance of predictions and the covariance of coefficients are (3) and (4) of
:mod:`onepass.memory.least_squares`, with ``forgetting="auto"`` those of a mixture.
Cost: O(d²) time per row, O(d²) memory; several outputs share the triangle.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", CDC 2022; (1)-(3).
[2] "Online least-squares", lecture notes; block updates by the matrix inversion lemma.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np

from onepass import linalg, native, validation
from onepass.declared import State
from onepass.errors import (
    MergeError,
    NotFittedError,
    NumericalError,
    ParameterError,
    WindupWarning,
    calling,
    public,
)
from onepass.forgetting import Auto, Directional, Exponential
from onepass.forgetting.parse import rule
from onepass.forgetting.protocols import ForgettingRule
from onepass.learners.compiled import row_format
from onepass.learners.estimator import Classifier, Layout, Learner, Regressor
from onepass.learners.linear import (
    CACHED_VALUES,
    coefficients,
    float64_blocks,
    initial_weights,
    intercepts,
    predicted_initially,
)
from onepass.learners.rls_device import Device, DeviceState
from onepass.learners.rls_merge import merge_learners
from onepass.memory import least_squares
from onepass.memory.vector import Flag, Parts, Slot, aligned, shares
from onepass.serialization.state import StateAttribute, nbytes, not_fitted
from onepass.types import Array, ArrayLike, Floats, RowLike, TimeLike
from onepass.validation.table import TableLike, mixed_zones

_CHECKED = 1 << 14  # single rows between two checks of windup
_WOUND = 1e-6  # information about a coefficient, relative to a row with its feature, in windup
_LARGEST = 1e150  # sums of squares of larger rows might overflow with the next row
_SPANNED = 1 << 10  # rows for which a window of a time span has room at once
_BRIEF = 1 << 20  # multiplications of rows that are learned in place, without releasing the GIL


class _State(StateAttribute):
    """The attribute ``state_``: copied from a device when it is read, absent in a frozen copy."""

    saved = True

    def in_file(self, owner: Any) -> Floats:
        """The vector without the weights, which are computed when they are read."""
        return least_squares.without_weights(owner.state_)

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is None:
            return self
        own = owner.__dict__
        if "state_" in own:
            return own["state_"]
        if "_on_device" in own:
            own["state_"] = own["_on_device"].vector()
            return own["state_"]
        if "_frozen" in own:
            raise NotFittedError(
                "learning, saving and `return_std` must be used with a whole learner, "
                "got its `frozen_copy()`, which only predicts. Use `model()` of a "
                "durable learner, or copy.deepcopy of another learner.",
                "onepass",
            )
        raise not_fitted(owner)

    def __set__(self, owner: Any, value: object) -> None:
        for derived in ("_on_device", "_fit"):
            owner.__dict__.pop(derived, None)
        owner.__dict__.update(state_=value, _single=None)


@dataclass(eq=False, repr=False)
class LeastSquares(Learner):
    """Base class of the RLS estimators: the state is one vector, ``state_``.

    It precedes :class:`~onepass.learners.estimator.Regressor` or
    :class:`~onepass.learners.estimator.Classifier` in the bases of a class.
    """

    _merge_parameters: ClassVar[tuple[str, ...]] = ("fit_intercept", "_prior")
    _derived: ClassVar[tuple[str, ...]] = ("_single", "_on_device", "_fit", "_excited", "_warned")
    _square = True
    _scale_invariant = True  # predictions depend on the units of features only through the ridge

    ridge: ArrayLike = 1e-12
    forgetting: float | str | ForgettingRule = 1.0
    _: KW_ONLY
    prior: float | None = None
    fit_intercept: bool = True
    device: str | None = None

    state_ = _State()
    time_ = State[Any]()  # of the last row, with forgetting by time
    time_aware_ = State[bool]()
    times_ = State[Array]()  # of the stored rows, with windows of a time span

    # -- parameters --------------------------------------------------------------------------------

    @property
    def _uses_time(self) -> bool:
        """Whether learning requires ``time``, because the forgetting rule decays by time."""
        return self._rule().clock is not None

    @property
    def _prior(self) -> float:
        return 0.0 if self.prior is None else self.prior

    def _rule(self) -> ForgettingRule:
        """The forgetting rule that the parameter specifies."""
        return rule(self.forgetting)

    def _device(self) -> Device | None:
        """The device that the parameter specifies."""
        if "_on_device" in self.__dict__:
            return self.__dict__["_on_device"].device  # type: ignore[no-any-return]
        if self.device is None:
            return None
        return Device(self.device, self._rule(), type(self).__name__)

    def _penalty(self, d: int) -> float | Floats:
        """The ridge: a number, or rows L with LᵀL = Π."""
        return penalty(self.ridge, d)

    def _start(self, d: int, c: int) -> None:
        chosen = self._rule()
        initial = initial_weights(getattr(self, "initial_coef", None), d, c)
        prior = validation.in_range(self._prior, "prior", low=0.0)
        ridge, fading = self._penalty(d), chosen.fading
        if fading.held and not fading.level and not isinstance(ridge, float):
            raise ParameterError(
                f"`ridge` must be a number with {chosen}, which holds it, got a matrix. "
                "Pass a number, or op.forgetting.Exponential, whose ridge fades."
            )
        state = least_squares.start(
            fading,
            ridge,
            initial,
            free=bool(self.fit_intercept),
            prior=prior,
            indicators=isinstance(self, Classifier),
        )
        self.state_ = chosen.start(state) if isinstance(chosen, Directional) else state

    def _synchronised(self) -> Floats:
        """A copy of the state that fades as the parameter ``forgetting`` specifies."""
        state: Floats = self.state_
        chosen = self._rule()
        if isinstance(chosen, Directional):
            return chosen.resized(state)
        fading, flags = chosen.fading, int(state[Slot.FLAGS])
        if flags & (Flag.WINDOW | Flag.MIXTURE):
            state = aligned(state)
            least_squares.set_fading(state, fading)
            return least_squares.with_length(state, fading.window) if fading.window else state
        if (state[Slot.LEVEL] > 0.0) == (fading.level > 0.0) and fading.held == bool(
            flags & Flag.HELD
        ):
            state = aligned(state)
            least_squares.set_fading(state, fading)
            return state
        return least_squares.converted(state, fading)

    def _rule_changed(self) -> bool:
        """Whether the kind of rule differs from that of the rule used so far."""
        own = self.__dict__
        if "state_" not in own and "_on_device" not in own:
            return False
        head = own["_on_device"].head if "_on_device" in own else own["state_"]
        chosen, flags = self._rule(), int(head[Slot.FLAGS])
        kinds = Flag.WINDOW | Flag.MIXTURE | Flag.DIRECTIONAL
        fading = chosen.fading
        now = Flag.WINDOW * (fading.window is not None) | Flag.MIXTURE * bool(fading.mixture)
        now |= Flag.DIRECTIONAL * isinstance(chosen, Directional)
        if now != flags & kinds:
            return True
        time = self.__dict__.get("time_")
        clock = None if time is None else "date" if isinstance(time, np.datetime64) else "number"
        return bool(self.rows_seen_ and clock != chosen.clock)

    def _check_times(self, time: TimeLike | None, n: int) -> Any:
        chosen = self._rule()
        if self._rule_changed():
            raise ParameterError(
                "`forgetting` must have the same kind of state and of time as when "
                f"learning started, got {chosen} after another kind. Call fit to start "
                "again with the new rule."
            )
        clock = chosen.clock
        if clock is None:
            return super()._check_times(time, n)
        if time is None and n == 0:
            return None
        if time is None:
            raise ParameterError(
                f"`time` must be given, as the learner forgets by time, {chosen}, got "
                f"none. Pass {clock}s, one for each row: time=..."
            )
        last = getattr(self, "time_", None)
        when = validation.times(time, n, dates=clock == "date", last=last)
        aware, before = validation.aware(time), getattr(self, "time_aware_", None)
        if aware is not None:
            if before not in {None, aware}:
                raise mixed_zones("`time`, with the earlier rows,")
            self.__dict__["time_aware_"] = aware
        return when

    # -- learning ----------------------------------------------------------------------------------

    def _learn_in_place(
        self, x: RowLike, y: ArrayLike | None, sample_weight: float, time: TimeLike | None
    ) -> bool:
        single = self._single
        if single is None:
            return False
        learned = (
            single.learn_one(x, y, sample_weight)
            if time is None
            else self._learn_at_time(single, x, y, sample_weight, time)
        )
        if learned:
            self.__dict__["rows_seen_"] += 1
        return bool(learned)

    def _learn_at_time(self, single: Any, x: Any, y: Any, weight: Any, time: Any) -> bool:
        """Learn a row in place; return False if Python must validate it first."""
        own = self.__dict__
        if "time_" not in own:
            return False
        now = validation.time_like(own["time_"], time, own.get("time_aware_"))
        if now is None:
            return False
        last = own["time_"]
        if isinstance(last, np.datetime64):  # in microseconds
            passed = (now.item() - last.item()).total_seconds()
        else:
            passed = now - last
        rule: Any = self._rule()
        learned = single.learn_one(x, y, weight, -passed / rule.unit)
        if learned:
            own["time_"] = now
        return bool(learned)

    def _prepare_single_rows(self) -> None:
        """Let single rows be learned in place from now on, if compiled code supports the rule."""
        own, chosen = self.__dict__, self._rule()
        own["_single"] = None
        plain = isinstance(chosen, Exponential) and not own.get("_warned")
        if (
            native.loops is None
            or "state_" not in own
            or isinstance(chosen, Directional)
            or (chosen.clock is not None and chosen.stores_rows)
            or self.device is not None
        ):
            return
        described = row_format(self)
        if described is not None:
            if own["state_"].ctypes.data % 64:
                own["state_"] = aligned(own["state_"])
            if isinstance(self, Classifier):
                own["calibration_"] = np.array(self.calibration_)
            sizes = own["state_"][: Slot.FLAGS].astype(int).tolist()
            own["_single"] = native.loops.Single(
                own["state_"], native.loops.Format(*sizes, described), own.get("calibration_"),
                _CHECKED if plain else 0, chosen.clock is not None,
            )  # fmt: skip

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None,
        time: Array | None, *, prequential: bool,
    ) -> Floats:  # fmt: skip
        del prequential
        return self._learn(X, Y, s, known, time)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, known: Array | None, time: Array | None = None
    ) -> Floats:
        del known  # the targets of an unknown class are zeros, which is exact
        if _largest(X, Y, s) > _LARGEST:  # even if these rows can be learned, later rows could not
            raise self._too_large(X, Y, s)
        chosen, own, device = self._rule(), self.__dict__, self._device()
        errors, done = np.empty(Y.shape), 0
        if device is not None:
            done = self._learn_on(device, X, Y, s, errors)
        if done < len(X):
            state = self._synchronised()
            rest = slice(done, None)
            weights = None if s is None else s[rest]
            state, finite = self._learned(
                chosen, state, X[rest], Y[rest], weights, time, errors[rest]
            )
            if not finite:
                raise self._too_large(X, Y, s)
            self.state_ = state
            self._warn_of_windup(chosen)
        if time is not None:
            own["time_"] = time[-1] if time.dtype.kind == "M" else time[-1].item()
        predictions: Floats = Y - errors
        return predictions

    def _learned(
        self,
        chosen: Any,
        state: Floats,
        X: Floats,
        Y: Floats,
        s: Floats | None,
        time: Array | None,
        errors: Floats,
    ) -> tuple[Floats, bool]:
        """Learn rows in a copy of the state; return the state, and whether it is finite."""
        fades = chosen.fades(time, getattr(self, "time_", None))
        leaving, finite = None, True
        if isinstance(chosen, Directional):
            plain = X.astype(np.float64, copy=False)
            errors[:], finite = chosen.learn(state, plain, Y, s, fades)
            return state, finite
        if getattr(chosen, "span", None) is not None and time is not None:
            stored = self.__dict__.get("times_", time[:0])
            leaving = chosen.leaving(stored, time).astype(np.float64)
            times = np.concatenate((stored, time))
            self.times_ = times[int(leaving.sum()) :].copy()
        for part, rows in float64_blocks(X, _SPANNED if leaving is not None else None):
            if leaving is not None:
                state = least_squares.reserve(state, len(rows))
            u, f, k = (None if a is None else a[part] for a in (s, fades, leaving))
            _, good = least_squares.learn(state, rows, Y[part], u, f, k, errors[part])
            finite &= good
        return state, finite

    def _learn_on(
        self, device: Device, X: Floats, Y: Floats, s: Floats | None, errors: Floats
    ) -> int:
        """Learn rows on a device; return the number of rows learned."""
        own = self.__dict__
        on = own.get("_on_device") or DeviceState.of(device, self.state_)
        if on is None:
            return 0
        on = copy.copy(on)
        done = on.learn(X, Y, s, errors)
        if done:
            own.pop("state_", None)
            own["_on_device"] = on
        return int(done)

    def _too_large(self, X: Floats, Y: Floats, s: Floats | None) -> NumericalError:
        return NumericalError(
            "rows, the weights that fit them, and their squares must stay within float64, got "
            f"values up to {_largest(X, Y, s):.3g}. Use units in which features and targets are "
            "nearer to 1. If they are already near 1, an earlier row was too large: restore the "
            "state of the learner before that row."
        )

    def _warn_of_windup(self, chosen: Any) -> None:
        """Warn once if plain forgetting has lost the information about a coefficient."""
        own = self.__dict__
        state = own["state_"]
        if own.get("_warned") or not state[Slot.FADED] or int(state[Slot.FLAGS]) & Flag.WINDOW:
            return
        parts = Parts(state)
        if len(parts.visited):
            return
        mean = parts.sums[: parts.d] / max(float(parts.head[Slot.MASS]), 1e-300)
        before = own.get("_excited", mean)
        mean[: len(before)] = np.maximum(mean[: len(before)], before)
        own["_excited"] = mean
        information = np.diagonal(parts.T[:, : parts.d])
        started = parts.head[Slot.FADED] < math.log2(_WOUND)  # the ridge is not what is left
        enough = parts.head[Slot.MASS] > parts.d  # also after a gap
        if started and enough and (information < _WOUND * mean).any():
            own["_warned"] = True
            warnings.warn(
                f"{type(self).__name__}: the recent rows should excite all features, got "
                f"coefficients about which {chosen} has forgotten nearly everything; their next "
                "changes may be large. Use op.forgetting.Exponential(..., ridge='held'), or "
                "op.forgetting.Bounded.",
                WindupWarning,
                stacklevel=2,
            )

    # -- reading -----------------------------------------------------------------------------------

    @property
    def weights_(self) -> Floats:
        """The weights, (d, c)."""
        return self._fitted()[0]

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs; (1, d) for two classes."""
        return coefficients(self)

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        return intercepts(self, self._intercepts)

    def _intercepts(self) -> Floats:
        weights, middle, offset = self._fitted()
        return np.asarray(offset - middle @ weights if np.any(middle) else offset)

    @property
    def center_(self) -> Floats:
        """The centre m of the outputs Wᵀ (x − m) + b, (d,)."""
        return self._fitted()[1]

    @property
    def offset_(self) -> Floats:
        """The offset b of the outputs Wᵀ (x − m) + b, (c,)."""
        return self._fitted()[2]

    @property
    @public
    def forgetting_factor_(self) -> Any:
        """The forgetting factor that leads: a float, or (c,) for several outputs."""
        chosen = self._rule()
        if not isinstance(chosen, Auto):
            raise AttributeError(  # noqa: TRY004  as for an attribute that does not exist
                f"{type(self).__name__!r} object has no attribute 'forgetting_factor_'"
            )
        leading = shares(self.state_).argmax(axis=0)
        factors = np.array(chosen.fading.mixture)[leading]
        return float(factors[0]) if len(factors) == 1 else factors

    @property
    @public
    def effective_rows_(self) -> float:
        """How many rows the model remembers: their total weight after forgetting.

        A row of weight 2 counts as two rows, as in the standard errors.
        """
        return least_squares.mass(self.state_)

    def _fitted(self) -> tuple[Floats, Floats, Floats]:
        """Weights W (d, c), centre m (d,), offset b (c,): outputs are Wᵀ (x − m) + b."""
        own = self.__dict__
        if "_fit" in own:
            return own["_fit"]  # type: ignore[no-any-return]
        return least_squares.fitted(self.state_)

    def _scores(self, X: Floats) -> Floats:
        """Outputs of rows, centred first so that large feature means do not reduce precision."""
        fit = self._fitted()
        if X.size <= CACHED_VALUES:
            return least_squares.scores(fit, X)
        scores = np.empty((len(X), fit[0].shape[1]))
        width = max(1, CACHED_VALUES // max(1, X.shape[1]))
        for i in range(0, len(X), width):
            rows = slice(i, i + width)
            scores[rows] = least_squares.scores(fit, X[rows])
        return scores

    @property
    def _is_exact(self) -> bool:  # type: ignore[override]
        chosen = self._rule()
        return isinstance(chosen, Auto) or getattr(chosen, "factor", None) == 1.0

    def _exact_scores(self, X: Floats) -> Floats:
        return least_squares.scores(least_squares.exact_fit(self.state_), X)

    def _familiarity(self, X: Floats) -> Floats | None:
        return least_squares.familiarity(self.state_, X) if self._is_exact else None

    @property
    def _mean_weight(self) -> float:
        return float(least_squares.first_mass(self.state_) / max(self.rows_seen_, 1))

    @property
    def _remembered_rows(self) -> Floats:
        return least_squares.rows_of_outputs(self.state_)

    def frozen_copy(self) -> Any:
        """Return a copy for prediction that later learning does not change."""
        frozen = object.__new__(type(self))
        out = ("state_", "_on_device", "_single", "times_")
        own = dict(self.__dict__)  # at once: another thread may learn
        frozen.__dict__ = {key: value for key, value in own.items() if key not in out}
        if "rows_seen_" in own and "_frozen" not in own:
            size = sum(nbytes(own.get(name)) for name in out)
            frozen.__dict__ |= {"_frozen": size, "_fit": self._fitted()}
            if "calibration_" in frozen.__dict__:
                frozen.__dict__["calibration_"] = frozen.__dict__["calibration_"].copy()
        return frozen

    # -- growing, merging and copying --------------------------------------------------------------

    def _widen(self, d: int) -> None:
        chosen = self._rule()
        grown = Directional.grown if isinstance(chosen, Directional) else least_squares.grown
        self.state_ = grown(self.state_, d)

    @property
    def _moves(self) -> bool:
        return bool(getattr(self, "fit_intercept", True))

    def _move(self, origins: Floats) -> None:
        moved = Directional.moved if isinstance(self._rule(), Directional) else least_squares.moved
        self.state_ = moved(self.state_, origins)

    def _add_outputs(self, at: Array, c: int) -> None:
        """Extend to c outputs; those in columns ``at`` are new."""
        chosen = self._rule()
        directional = isinstance(chosen, Directional)
        extended = Directional.with_outputs if directional else least_squares.with_outputs
        self.state_ = extended(self.state_, at, c)

    @property
    def _merging(self) -> Any:
        """``exact`` if the state is a decayed sum over rows or stores rows, else ``refused``.

        ``approximate`` with automatic forgetting, since the bounds depend on the order of all rows,
        with a prior, whose unit is that of the learner whose rows excite a feature first, and with
        a held ridge, which is put back in turns.
        """
        chosen = self._rule()
        if isinstance(chosen, Auto):
            return "approximate"
        if not (chosen.additive or chosen.stores_rows):
            return "refused"
        held = chosen.fading.held and not chosen.stores_rows
        return "approximate" if self._prior or held else "exact"

    @property
    def _stored_rows(self) -> str:
        """What the state contains of single rows, with a remedy; empty if it has only sums."""
        if not hasattr(self, "rows_seen_"):
            return "which has not learned any rows; let each site learn first"
        chosen = self._rule()
        if chosen.stores_rows or not chosen.additive:
            return f"whose forgetting is {chosen}; use forgetting=1.0"
        if self._prior:
            return "whose prior stores the size of its first row; use prior=0 and a ridge"
        parts = Parts(self.state_)
        if parts.flags & Flag.UNITS and (parts.prior[: parts.d] > 0.0).any():
            return (
                "whose least prior depends on single rows, since the rows do not determine all "
                "weights; use a larger ridge, such as ridge=1e-6"
            )
        return ""

    def _unmergeable(self) -> str:
        chosen = self._rule()
        if self._rule_changed():
            return (
                f"got one whose `forgetting` is {chosen} after it learned with another kind. "
                "Restore the former value, or call fit to start again with the new one."
            )
        own = self.__dict__.get("state_")
        bounded = own is not None and own[Slot.LEVEL] > 0.0 and not isinstance(chosen, Auto)
        if self._merging != "refused" and not bounded:
            return ""
        return (
            f"got one whose state with forgetting {chosen} is not a decayed sum over rows. "
            "Learn both with forgetting='exponential:0.999' or 'window:1000'."
        )

    def _merge(self, other: Self, layout: Layout) -> None:
        one, two = self._rule(), rule(other.forgetting)
        factors = [getattr(chosen, "factor", None) for chosen in (one, two)]
        if one != two and factors != [1.0, 1.0]:
            raise MergeError(
                f"`forgetting` must be the same in both, {one} as in the first, got "
                f"{two}. Learn all parts with the same parameters."
            )
        merge_learners(self, other, layout)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.endswith("_") and self._single is not None:
            self.__dict__["_single"] = None  # a parameter applies from the next row
        super().__setattr__(name, value)

    def _snapshot(self) -> dict[str, Any]:
        """The attributes, with a copy of the state; another thread may learn single rows."""
        own = dict(self.__dict__)
        own.pop("_single", None)
        if "state_" in own:
            own["state_"] = own["state_"].copy()
            own["rows_seen_"] = int(own["state_"][Slot.ROWS])
        if "calibration_" in own:
            own["calibration_"] = own["calibration_"].copy()
        return own

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__ = self._snapshot()
        twin._prepare_single_rows()
        return twin

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self._snapshot(), memo)
        twin._prepare_single_rows()
        return twin

    def __getstate__(self) -> Any:
        if "_on_device" in self.__dict__ and "state_" not in self.__dict__:
            self.__dict__["state_"] = self.state_  # downloaded
        twin = object.__new__(type(self))
        twin.__dict__ = self._snapshot()
        own: Any = super(LeastSquares, twin).__getstate__()
        return {key: value for key, value in own.items() if key != "_on_device"}

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file match."""
        own = self.__dict__
        if "rows_seen_" not in own:
            return True
        c = len(own["classes_"]) if "classes_" in own else own.get("n_outputs_", 0)
        state, d = own.get("state_"), own.get("n_features_in_", 0)
        chosen = self._rule()
        if isinstance(chosen, Directional) and isinstance(state, np.ndarray):
            state = chosen.checked(state)
        sound = least_squares.is_sound(state, d, c) and super()._sound
        if sound and "times_" in own and state is not None:
            return len(own["times_"]) == len(least_squares.stored_rows(state)[0])
        return sound


def penalty(ridge: ArrayLike, d: int) -> float | Floats:
    """The penalty that a ridge specifies: a number, or rows L (p, d) with LᵀL = Π.

    Raises
    ------
    ParameterError
        If the ridge is negative, or no symmetric positive semidefinite matrix of shape (d, d).
    """
    try:
        array = np.asarray(ridge, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim == 0:
        return validation.in_range(ridge, "ridge", low=0.0)
    good = array.shape == (d, d) and np.isfinite(array).all() and (array == array.T).all()
    values, vectors = np.linalg.eigh(array) if good else (np.full(1, -1.0), array)
    rounding = len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    if (values < -rounding).any():
        shape = f"shape {array.shape}" if array.size else repr(ridge)
        problem = "one that is not" if good else shape
        raise ParameterError(
            "`ridge` must be a number >= 0 or a symmetric positive semidefinite matrix "
            f"of shape ({d}, {d}), got {problem}",
            remedy="Pass a number, or a matrix such as A.T @ A.",
        )
    used = values > rounding
    return np.asarray(np.sqrt(values[used])[:, None] * vectors.T[used])


def _largest(X: Floats, Y: Floats, s: Floats | None) -> float:
    """The largest magnitude in the rows, with and without their weights."""
    largest = max(linalg.magnitude(X), linalg.magnitude(Y))
    if s is None or max(largest, 1.0) * math.sqrt(s.max()) <= _LARGEST:
        return largest
    sizes = np.maximum(np.abs(X).max(axis=1, initial=1.0), np.abs(Y).max(axis=1, initial=1.0))
    with np.errstate(over="ignore"):
        return max(largest, float((sizes * np.sqrt(s)).max()))


@dataclass(eq=False, repr=False)
class RLSRegressor(LeastSquares, Regressor):
    """Recursive least squares: linear regression fitted exactly to all rows so far.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-12
        Penalty Π >= 0 in ``ridge`` · ‖w − w₀‖² on the coefficients, in units of a squared feature;
        or a symmetric positive semidefinite matrix. 0 is ordinary least squares; while the rows do
        not determine the solution, it has about the least norm in units of the lengths of the
        columns, also with a ridge below 1e-15 times their squares. Directions in which columns
        differ by less than 3e-8 of their lengths are not resolved. The intercept is not penalised.
        Scale features that are smaller than 1e-6.
    forgetting : float, forgetting rule or str, default=1.0
        A float is the forgetting factor λ in (0, 1]: a row k rows ago has weight λᵏ; 1 means no
        forgetting. λ is short for ``op.forgetting.Bounded(λ)``, which retains information about
        unexcited features. ``"auto"`` mixes eight factors, weighted by their errors, for streams
        whose rate of change is unknown
        (:class:`~onepass.forgetting.Auto`). Other rules of
        :mod:`onepass.forgetting`, such as forgetting by time, can be given as objects or
        strings, such as ``"window:1000"``.
    prior : float, optional
        Strength >= 0 of the prior that each coefficient is near its initial value, as a number of
        rows with the first nonzero deviation of its feature from the mean (without an intercept:
        with its first nonzero value). With 1, predictions on wide categorical tables are stable
        from the first rows, whatever the units.
        The prior is added to the ridge. None is 0, or 10 in a Pipeline after random features, since
        accuracy would otherwise fall while there are about as many rows as features.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    device : str, optional
        Device of PyTorch on which blocks are learned, such as ``"cuda"``, for thousands of
        features (extra ``torch``). The state remains there between blocks, in float64. It requires
        forgetting 1.0 or ``op.forgetting.Exponential(factor)``. Rows that the device cannot add
        accurately, such as the first ones with ridge 0, are learned on the CPU. None learns all
        rows on the CPU.
    initial_coef : array-like of shape (d,) or (c, d), optional
        Initial coefficients w₀, towards which the ridge shrinks. By default zeros.

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
        Covariance (4) of the coefficients; infinite until the rows determine it.
    coef_std_ : ndarray of shape (d,) or (c, d)
        Standard errors of the coefficients.
    effective_rows_ : float
        Total weight of the rows after forgetting: how many rows the model remembers.
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

    _: KW_ONLY
    initial_coef: ArrayLike | None = None

    @overload
    def predict(self, X: TableLike, *, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: TableLike, *, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    @public
    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict targets for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to also return the standard deviation (3) of a new target, with automatic
            forgetting that of the mixture.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
            Predictions.
        std : ndarray of the same shape
            Only with ``return_std``. Infinite until the total weight of the rows exceeds the number
            of coefficients. For a row that depends on coefficients that the rows do not determine,
            it is as large as the ridge permits. Residuals below 1e-154 count as 0.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not return_std:
            return super().predict(X)
        array = self._matrix(X)
        predictions = self._to_predictions(self._scores(array), None)
        std = np.sqrt(least_squares.variance(self.state_, array))
        return predictions, self._to_predictions(std, None)

    @property
    def covariance_(self) -> Floats:
        """Covariance of the coefficients (4): (d, d), or (c, d, d) for several outputs."""
        covariance = least_squares.covariance(self.state_)
        return covariance[0] if self.target_ndim_ == 1 else covariance

    @property
    def coef_std_(self) -> Floats:
        """Standard errors of the coefficients, the roots of the diagonal of ``covariance_``."""
        return np.sqrt(np.diagonal(self.covariance_, axis1=-2, axis2=-1))

    @overload
    def predict_one(self, x: RowLike, *, return_std: Literal[False] = False) -> float | Floats: ...
    @overload
    def predict_one(
        self, x: RowLike, *, return_std: Literal[True]
    ) -> tuple[float | Floats, float | Floats]: ...
    def predict_one(self, x: RowLike, *, return_std: bool = False) -> Any:
        """Predict the target of one row, from the initial weights if no row was learned.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        return_std : bool, default=False
            Whether to also return the standard deviation (3) of a new target.

        Returns
        -------
        y : float or ndarray of shape (c,)
            The prediction.
        std : float or ndarray of shape (c,)
            Only with ``return_std``, as in ``predict``. Infinite before the first row.
        """
        single = self._single
        if not return_std:
            prediction = None if single is None else single.predict_one(x)
            return super().predict_one(x) if prediction is None else prediction
        both = None if single is None else single.predict_std(x)
        if both is not None:
            return both
        with calling(f"{type(self).__name__}.predict_one"):
            row = self._row(x)
        if self._started:
            predictions, std = self.predict(row[None], return_std=True)
            return predictions[0], std[0]
        prediction = self._initial_prediction(row)
        return prediction, prediction * 0.0 + np.inf

    def _learn_few(self, X: Any, y: Any) -> Any:
        own, chosen = self.__dict__, self._rule()
        if self._single is None or chosen.clock is not None:
            return None
        if validation.is_small_table(X, CACHED_VALUES):
            X = validation.matrix(X, **self._shape())[0]
            y = validation.series_array(y)
        d, c = self.n_features_in_, own["n_outputs_"]
        if not validation.is_matrix(X, d):
            return None
        n, shape = len(X), (len(X), c)[: own["target_ndim_"]]
        if type(y) is not np.ndarray or y.dtype != np.float64 or not y.flags.aligned:
            return None
        if not 1 <= n * d * d <= _BRIEF or y.shape != shape:
            return None
        if not (linalg.finite(y) and _largest(X, y, None) <= _LARGEST**0.4):
            return None
        errors, Y = np.empty((n, c)), y.reshape(n, c)
        finite = native.loops.ls_learn(  # type: ignore[union-attr]
            own["state_"], n, np.ascontiguousarray(X), np.ascontiguousarray(Y),
            None, None, None, errors, False,  # noqa: FBT003
        )  # fmt: skip
        if not finite:
            raise self._too_large(X, Y, None)
        own["rows_seen_"] += n
        self._warn_of_windup(chosen)
        return y - errors.reshape(y.shape)

    def _initial_prediction(self, row: Floats) -> Any:
        return predicted_initially(self.initial_coef, row)


@dataclass(eq=False, repr=False)
class RLSClassifier(LeastSquares, Classifier):
    """Least-squares classification by recursive least squares on class indicators.

    The target of a class is 1 for its rows and 0 for all others; the class with the largest output
    is predicted. The targets of a class before its first row are 0, so that a class that occurs
    late is learned exactly as if it had been known from the start.

    Parameters
    ----------
    ridge : float or array-like of shape (d, d), default=1e-12
        As in :class:`RLSRegressor`.
    forgetting : float, forgetting rule or str, default=1.0
        As in :class:`RLSRegressor`.
    prior : float, optional
        As in :class:`RLSRegressor`.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    device : str, optional
        As in :class:`RLSRegressor`.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

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

    _: KW_ONLY
    classes: Collection[object] | None = None
