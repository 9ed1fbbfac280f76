"""Mixtures: the predictions of several learners, weighted by how good each has been so far.

All members learn every row. The weights of a regression are those of the experts of
:mod:`onepass.forgetting.auto`, equations (1)-(3) there, for each output; before, predictions are
limited to the range of the targets so far, extended by its width on both sides. With the
probability p_k of the label of a row of weight s before it is learned, those of a classifier are

    π_k ← (1 − α) π_k max(p_k, ε)ˢ / Σ_j π_j max(p_j, ε)ˢ + α / K      α = 0.01, ε = 10⁻⁴       (1)

the fixed share of [1]: the mixture follows the member that is best now, at a bounded distance. So
its predictions are for the next row. For rows of the whole past there is ``recall``: what the
leading members no longer remember is predicted by least squares of all rows, a by-product of
``RLSRegressor(forgetting="auto")``. In a regression a member has the share

    r = (1 + max(h − u, 0) / u)⁻⁴                                                                (2)

of its weight, with the leverage h of the row in what the member remembers, and the mean leverage u
of the remembered rows, as measured by least squares with forgetting; r is 1 for forests, and 0 if
least squares does not forget. Least squares of all rows has the rest. Classes that are forgotten
are predicted by least squares of all rows, and the other classes share the rest. With the faded
number n_k of the rows of a class in member k and d features, a class is known to the extent

    r = n / (n + d + 1),   n = Π_k n_k^π_k.                                                      (3)

The variance of a prediction f is Σ π_k (σ_k² + (f_k − f)²). Cost: the sum of those of the members.

[1] M. Herbster, M. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from onepass.declared import State
from onepass.errors import (
    MixtureWarning,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    calling,
    public,
)
from onepass.estimators import available_if
from onepass.learners.compiled import PlainRows, ReadsSingleRows
from onepass.learners.estimator import Classifier, Learner, Regressor
from onepass.learners.estimator.classifier import prequential_probabilities
from onepass.learners.estimator.composite import lock_of
from onepass.linalg.interrupt import Interrupt
from onepass.memory import mixture
from onepass.memory.vector import SKIPPED
from onepass.types import Array, Floats, RowLike, TimeLike
from onepass.validation.frames import series_array
from onepass.validation.table import TableLike

_SHARE = 0.01  # α of (1)
_LEAST = 1e-4  # ε of (1)
_FORGOTTEN = 1e-3  # the least number of rows in (3)
_UNKNOWN = 4e307  # the least target before the first one
_LARGEST = 1e100  # the largest number in rows, targets and weights


@dataclass(eq=False, repr=False)
class Mixture(ReadsSingleRows, Learner):
    """Several learners as one, weighted by their errors so far.

    ``Mixture(models)`` is a :class:`MixtureRegressor` or a :class:`MixtureClassifier`, as the
    models are regressors or classifiers.

    Parameters
    ----------
    models : sequence of learners and Pipelines
        All learn the same rows. A Pipeline must accept rows of numbers: encode text before, with
        ``Pipeline(Encode(), Mixture(...))``. Values may be missing if all models accept that.
    max_features : sequence of int or None, optional
        The largest number of features with which each model is used, such as ``(None, 50)`` for one
        whose time is cubic in it. With more features, also later ones, the model is left out,
        unless no other is in use.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    >>> y = np.abs(X[:, 0]) + X[:, 1]
    >>> models = [op.RLSRegressor(forgetting="auto"), op.ForestRegressor()]
    >>> op.Mixture(models).fit(X, y).weights_.ravel().round(1)
    array([0., 1.])
    """

    models: Sequence[Any] = ()
    _: KW_ONLY
    max_features: Sequence[int | None] | None = None

    members_ = State[list[Any]]()
    mixing_ = State[Floats]()

    def __new__(cls, models: Sequence[Any] = (), *_: Any, **__: Any) -> Any:
        """Choose the class by the models."""
        if cls is Mixture:
            one = models[0] if isinstance(models, (list, tuple)) and models else None
            classes = isinstance(getattr(one, "learner", one), Classifier)
            return object.__new__(MixtureClassifier if classes else MixtureRegressor)
        return object.__new__(cls)

    # -- hooks of the two kinds --------------------------------------------------------------------

    _rest: ClassVar[int]  # numbers of each output after the weights

    @abstractmethod
    def _target(self, y: float) -> tuple[Any, Floats]:
        """The target or label of a row for members, from that of a plain row, and Y (1, c)."""

    @abstractmethod
    def _predicted_and_learned(
        self, one: Any, X: Floats, Y: Floats, given: dict[str, Any]
    ) -> Floats:
        """Let a member predict rows and learn them; numbers or probabilities >= ε, (n, c)."""

    @abstractmethod
    def _predicted(self, one: Any, X: Floats) -> Floats:
        """What a member predicts for rows, numbers or probabilities >= ε, (n, c)."""

    @abstractmethod
    def _predicted_one(self, one: Any, x: Floats) -> Floats:
        """The same of one row, (1, c)."""

    @abstractmethod
    def _weigh(self, P: Floats, Y: Floats, s: Floats | None) -> Floats:
        """Update the weights by what the members predicted, (K, n, c); return scores (n, c)."""

    @abstractmethod
    def _mixed(self, weights: Floats, P: Floats) -> Floats:
        """Scores (n, c) from what the members in use predict, (K, n, c)."""

    @abstractmethod
    def _recall(self, X: Floats) -> Floats:
        """Scores (n, c) for rows of the whole past."""

    # -- members -----------------------------------------------------------------------------------

    def _start_members(self, d: int) -> int:
        """Start with unfitted copies of the models for d features; return how many are used."""
        models = self.models
        if not isinstance(models, (list, tuple)) or not models:
            got = "none" if isinstance(models, (list, tuple)) else repr(models)
            raise ParameterError(
                f"`models` must be a list of learners, got {got}. Pass such as "
                "[op.RLSRegressor(forgetting='auto'), op.ForestRegressor()]."
            )
        kind = Classifier if isinstance(self, Classifier) else Regressor
        for one in models:
            if not isinstance(getattr(one, "learner", one), kind):
                raise TypeMismatchError(
                    f"`models` must be {kind.__name__.lower()}s or Pipelines of such, got "
                    f"{type(one).__name__}. Mix regressors with regressors and classifiers with "
                    "classifiers; put Keyed and Conformal around the mixture."
                )
        limits = (None,) * len(models) if self.max_features is None else self.max_features
        if (
            not isinstance(limits, (list, tuple))
            or len(limits) != len(models)
            or not all(one is None or (type(one) is int and one > 0) for one in limits)
        ):
            raise ParameterError(
                f"`max_features` must have a number >= 1 or None for each of {len(models)} models, "
                f"got {limits!r}. Leave it out to use all of them."
            )
        self.members_ = [
            clone(one) if limit is None or d <= limit else None
            for one, limit in zip(models, limits, strict=True)
        ]
        if not self._in_use:
            raise ParameterError(
                f"`max_features` must allow one of the models with {d} features, got {limits!r}. "
                "Add a model without a limit."
            )
        return len(self._in_use)

    @property
    def _in_use(self) -> list[Any]:
        """The members that are not left out."""
        return [one for one in self.members_ if one is not None]

    @property
    def _each_model(self) -> list[Any]:
        """The members in use; before the first row those of the models that are learners."""
        if self._started:
            return self._in_use
        models = self.models if isinstance(self.models, (list, tuple)) else []
        return [one for one in models if isinstance(getattr(one, "learner", one), Learner)]

    @property
    def _columns(self) -> int:
        """The number of weights of each member."""
        return self.n_outputs_ if isinstance(self, Regressor) else 1

    @property
    def _weights(self) -> Floats:
        """The weights of the members in use, (K, c) or (K, 1)."""
        c, K = self._columns, len(self._in_use)
        return self.mixing_[: K * c].reshape(K, c)

    @property
    def weights_(self) -> Floats:
        """The weights of the models; 0 for those that are left out."""
        on = [one is not None for one in self.members_]
        weights = np.zeros((len(on), self._columns))
        weights[on] = self._weights
        return weights if isinstance(self, Regressor) else weights[:, 0]

    def _each_learned(
        self, learned: Callable[[Any], Floats], *, in_place: bool
    ) -> tuple[Floats, list[tuple[Any, Exception]]]:
        """Call ``learned`` for each member; return what they predicted, (K, n, c), and who failed.

        Members whose numbers become too large are left out, unless all are. Other errors, such as
        those about times, are raised, unless a member has learned in place.
        """
        P, failed = list[Floats](), list[tuple[Any, Exception]]()
        for one in self._in_use:
            try:
                P.append(learned(one))
            except Exception as error:
                numerical = isinstance(error, (NumericalError, ArithmeticError))
                if not (numerical or (in_place and P)):
                    raise
                failed.append((one, error))
        if not P:
            raise failed[0][1]
        for one, _ in failed:
            self._leave_out(one)
        return np.array(P), failed

    def _warn_of(self, failed: list[tuple[Any, Exception]]) -> None:
        """Warn of members that were left out, after the other members have learned."""
        for one, reason in failed:
            warnings.warn(
                f"{type(self).__name__} continues without {one!r}, which raised: {reason}",
                MixtureWarning,
                stacklevel=3,
            )

    def _leave_out(self, member: Any) -> None:
        """Continue without a member."""
        weights, rest = self._weights, self.mixing_[self._weights.size :]
        weights = weights[[one is not member for one in self._in_use]]
        weights = weights / weights.sum(axis=0)
        self.__dict__.update(
            mixing_=np.append(weights, rest),
            members_=[None if one is member else one for one in self.members_],
        )

    def _learn_at(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None,
        time: Array | None, *, prequential: bool,
    ) -> Floats:  # fmt: skip
        del prequential
        return self._learn(X, Y, s, class_mask, time)

    def _learn(
        self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None, time: Any = None
    ) -> Floats:
        """Learn rows in copies of the members."""
        del class_mask
        arrays = (X, Y) if s is None else (X, Y, s)
        largest = max(float(np.fmax.reduce(np.abs(a), axis=None)) for a in arrays)
        if largest > _LARGEST:
            raise NumericalError(
                f"rows, targets and weights must be at most {_LARGEST:g}, got values up to "
                f"{largest:.3g}. Divide the columns by a constant."
            )
        self.members_ = [copy.copy(one) for one in self.members_]
        weighted = {} if s is None else {"sample_weight": s}

        def learned(one: Any) -> Floats:
            given = weighted | ({"time": time} if one._uses_time else {})  # noqa: SLF001
            return _checked(self._predicted_and_learned(one, X, Y, given))

        P, failed = self._each_learned(learned, in_place=False)
        scores = self._weigh(P, Y, s)
        self._warn_of(failed)
        return scores

    def _learn_plain_row(self, row: Floats, d: int) -> bool:
        """Learn a row, its target and weight in the members; return whether that was possible."""
        if np.fmax.reduce(np.abs(row)) > _LARGEST:
            return False
        x, (y, weight) = row[:d], row[d:].tolist()
        target, Y = self._target(y)
        known, interrupt = self._recent(x), Interrupt()

        def learned(one: Any) -> Floats:
            predicted = self._predicted_one(one, x) if known is None else known.pop(0)
            _checked(predicted)
            one.learn_one(x, target, weight)
            return predicted

        try:
            with interrupt.held(), lock_of(self):  # all members learn the row, or none
                P, failed = self._each_learned(learned, in_place=True)
                scores = self._weigh(P, Y, row[-1:])
                self.__dict__["rows_seen_"] += 1
                if isinstance(self, Classifier):
                    self._calibrate_row(scores, int(y), row[-1:])
        finally:
            interrupt.raise_pending()
        self._warn_of(failed)
        return True

    def _prepare_single_rows(self) -> None:
        if not self._uses_time:
            PlainRows.prepare(self)

    def _scores(self, X: Floats) -> Floats:
        if len(X) != 1:
            return self._mixed(self._weights, self._each(X))
        state = self.members_, self.rows_seen_, X.tobytes()
        found = [self._predicted_one(one, X[0]) for one in self._in_use]
        self.__dict__["_last"] = state, found  # the row may be learned next
        return self._mixed(self._weights, np.array(found))

    def _recent(self, x: Floats) -> list[Floats] | None:
        """What the members in use predicted for the last row, if it was this one."""
        (members, rows, row), found = self.__dict__.get("_last") or ((None, 0, b""), [])
        same = members is self.members_ and rows == self.rows_seen_ and row == x.tobytes()
        return list(found) if same else None

    def _each(self, X: Floats) -> Floats:
        """What the members in use predict, (K, n, c)."""
        return np.array(
            [
                self._predicted(one, X)
                if one.__sklearn_is_fitted__()
                else np.concatenate([self._predicted_one(one, x) for x in X])
                for one in self._in_use
            ]
        )

    # -- hooks of learners -------------------------------------------------------------------------

    @property
    def _accepts_missing(self) -> bool:  # type: ignore[override]
        """Whether all members accept missing values."""
        return all(one._accepts_missing for one in self._each_model)  # noqa: SLF001

    @property
    def _scale_invariant(self) -> bool:
        """Whether no member depends on the units of features."""
        return all(getattr(one, "_scale_invariant", False) for one in self._each_model)

    @property
    def _uses_time(self) -> bool:
        """Whether a member does, which then checks the times."""
        found = []
        for one in self._each_model:
            with calling(type(getattr(one, "learner", one)).__name__):
                found.append(one._uses_time)  # noqa: SLF001
        return any(found)

    def _check_times(self, time: TimeLike | None, n: int) -> Any:
        """The times of rows, (n,), which the members check."""
        if time is None or not self._uses_time:
            return super()._check_times(time, n)
        when = np.atleast_1d(series_array(time))
        if len(when) != n:
            raise ShapeError(
                f"`time` must have a time for each of {n} rows, got {len(when)}. Pass one per row."
            )
        return when

    def _widen(self, d: int) -> None:
        self.members_ = [copy.copy(one) for one in self.members_]
        for one, limit in zip(self.members_, self.max_features or (), strict=False):
            if one is not None and limit is not None and d > limit and len(self._in_use) > 1:
                self._leave_out(one)
        for one in self._in_use:
            (one._grow if hasattr(one, "_grow") else one.grow)(d)  # noqa: SLF001

    @property
    def _moves(self) -> bool:
        return True

    def _move(self, origins: Floats) -> None:
        self.members_ = [copy.copy(one) for one in self.members_]
        for one in self._in_use:
            one._start_at(origins)  # noqa: SLF001

    def _unmergeable(self) -> str:
        return (
            "got a mixture, whose weights depend on the order of all rows. Learn all rows with one "
            "mixture, or merge learners before they are mixed."
        )

    def _snapshot(self) -> dict[str, Any]:
        with lock_of(self):  # all members after the same row
            own = super()._snapshot()
            own.pop("_last", None)
            if "members_" in own:
                own["members_"] = [copy.copy(one) for one in own["members_"]]
        return own

    @property
    def _sound(self) -> bool:
        """Whether the members of a loaded file are those of the models."""
        if not self._started:
            return super()._sound
        kind = Classifier if isinstance(self, Classifier) else Regressor
        alike = all(isinstance(getattr(one, "learner", one), kind) for one in self._in_use)
        K, c = len(self._in_use), self._columns
        numbers = self.mixing_.shape == (K * c + self._rest * c + (self._rest > 0),)
        return bool(alike and K and numbers and np.isfinite(self.mixing_).all()) and super()._sound

    # -- recall ------------------------------------------------------------------------------------

    @property
    def _exact(self) -> Any:
        """The first member with least squares of all rows; None if there is none."""
        return next((one for one in self._each_model if one._is_exact), None)  # noqa: SLF001

    @available_if(lambda self: self._exact is not None)
    @public
    def recall(self, X: TableLike) -> Array:
        """Predict rows of the whole past, instead of the next row.

        Where the leading members do not remember a region or a class, least squares of all rows
        predicts it. That needs a member with such a fit: recursive least squares without
        forgetting, or with ``forgetting="auto"``. Members that cannot forget predict as always.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)

        Raises
        ------
        AttributeError
            If no member has a fit to all rows.
        NotFittedError
            If no row was learned.
        """
        rows = self._matrix(X)
        fitted = self._exact.__sklearn_is_fitted__()  # not if all rows had weight 0
        return self._to_predictions(self._recall(rows) if fitted else self._scores(rows), None)


@dataclass(eq=False, repr=False)
class MixtureRegressor(Mixture, Regressor):
    """Several regressors as one, weighted by their errors so far.

    Parameters
    ----------
    models : sequence of regressors and Pipelines
        As in :class:`Mixture`.
    max_features : sequence of int or None, optional
        As in :class:`Mixture`.

    Attributes
    ----------
    weights_ : ndarray of shape (K, c)
        The weights of the K models, for each output; 0 for one that is left out.
    members_ : list
        The fitted models; None for one that is left out.
    n_features_in_, n_outputs_, rows_seen_ : int
    """

    range_ = State[Floats]()
    _rest: ClassVar[int] = 1

    def _start(self, d: int, c: int) -> None:
        K = self._start_members(d)
        squares = [0.0] * c
        self.mixing_ = np.array([1.0 / K] * (K * c) + [*squares, -SKIPPED])
        self.range_ = np.array([[_UNKNOWN], [-_UNKNOWN]]).repeat(c, axis=1)

    def _target(self, y: float) -> tuple[float, Floats]:
        return y, np.array([[y]])

    def _predicted_and_learned(
        self, one: Any, X: Floats, Y: Floats, given: dict[str, Any]
    ) -> Floats:
        y = Y[:, 0] if self.target_ndim_ == 1 else Y
        return np.reshape(one.test_then_train(X, y, **given), Y.shape)

    def _predicted(self, one: Any, X: Floats) -> Floats:
        return np.reshape(one.predict(X), (len(X), self.n_outputs_))

    def _predicted_one(self, one: Any, x: Floats) -> Floats:
        prediction = one.predict_one(x)
        if self.target_ndim_ == 1:
            return np.array([[prediction]])
        return np.broadcast_to(prediction, (1, self.n_outputs_))  # a number before the first row

    def _weigh(self, P: Floats, Y: Floats, s: Floats | None) -> Floats:
        low, high = self.range_[:, None]
        lows = np.minimum.accumulate(np.concatenate((low, Y)))
        highs = np.maximum.accumulate(np.concatenate((high, Y)))
        numbers = self.mixing_.copy()
        P = _limited(P, lows[:-1], highs[:-1])
        targets = Y - lows[:-1]  # errors count as equal if they are small relative to these
        if low[0, 0] > high[0, 0]:
            targets[0] = Y[0]
        errors = mixture.weigh(len(P), numbers, Y - P, targets, s)
        self.__dict__.update(mixing_=numbers, range_=np.array([lows[-1], highs[-1]]))
        return Y - errors

    def _limited(self, P: Floats) -> Floats:
        """Predictions of members within the limits."""
        low, high = self.range_[:, None]
        return _limited(P, low, high)

    def _mixed(self, weights: Floats, P: Floats) -> Floats:
        mixed: Floats = np.einsum("kc,knc->nc", weights, self._limited(P))
        return mixed

    @property
    def _noise(self) -> Floats:
        """The mean squared error of the leading member, (c,); infinite before 20 rows."""
        squares, count = self.mixing_[self._weights.size : -1], self.mixing_[-1]
        return squares / count if count > 0.0 else np.full(len(squares), np.inf)

    def _variances(self, X: Floats) -> Floats:
        """The variances of the members in use, (K, n, c): those of the mixture if unknown."""
        v = np.broadcast_to(self._noise, (len(X), self.n_outputs_))
        return np.array(
            [
                one.predict(X, return_std=True)[1].reshape(v.shape) ** 2
                if _has_std(one) and one.__sklearn_is_fitted__()
                else v
                for one in self._in_use
            ]
        )

    @public
    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict targets for the rows of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        return_std : bool, default=False
            Whether to also return the standard deviation of a new target: that of a mixture of the
            members' distributions. A member that has none has the error of the mixture, which is
            infinite for the first 20 rows.

        Returns
        -------
        y : ndarray of shape (n,) or (n, c)
        std : ndarray of the same shape
            Only with ``return_std``.

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        if not return_std:
            return super().predict(X)
        rows = self._matrix(X)
        P = self._limited(self._each(rows))
        mean = np.einsum("kc,knc->nc", self._weights, P)
        variances = self._variances(rows) + (P - mean) ** 2
        variance = np.einsum("kc,knc->nc", self._weights, variances)
        return self._to_predictions(mean, None), self._to_predictions(np.sqrt(variance), None)

    def predict_one(self, x: RowLike, *, return_std: bool = False) -> Any:
        """Predict the target of one row.

        Parameters
        ----------
        x : array-like of shape (d,), or dict of named features
        return_std : bool, default=False
            As in ``predict``; infinite before the first row.
        """
        if not return_std:
            return super().predict_one(x)
        row = self._row(x)
        if not self._started:
            return self._initial_prediction(row), np.inf
        mean, std = self.predict(row[None], return_std=True)
        return mean[0], std[0]

    def _initial_prediction(self, row: Floats) -> Any:
        return float(np.mean([clone(one).predict_one(row) for one in self.models]))

    def _recall(self, X: Floats) -> Floats:
        fit = self._exact
        exact, of_fit = fit._exact_scores(X), fit._familiarity(X)  # noqa: SLF001
        P = self._each(X)
        for predicted, one in zip(P, self._in_use, strict=True):
            own = one._familiarity(X)  # noqa: SLF001
            r = of_fit if own is None else own
            predicted[:] = r * predicted + (1.0 - r) * exact
        return self._mixed(self._weights, P)


@dataclass(eq=False, repr=False)
class MixtureClassifier(Mixture, Classifier):
    """Several classifiers as one, weighted by the probabilities that they gave to the labels.

    Parameters
    ----------
    models : sequence of classifiers and Pipelines
        As in :class:`Mixture`.
    max_features : sequence of int or None, optional
        As in :class:`Mixture`.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    weights_ : ndarray of shape (K,)
        The weights of the K models; 0 for one that is left out.
    members_ : list
        The fitted models; None for one that is left out.
    n_features_in_, rows_seen_ : int
    """

    _: KW_ONLY
    classes: Collection[object] | None = None

    _rest: ClassVar[int] = 0

    def _start(self, d: int, c: int) -> None:
        del c
        K = self._start_members(d)
        self.mixing_ = np.full(K, 1.0 / K)

    def _add_outputs(self, at: Array, c: int) -> None:
        """Do nothing, as the members learn new classes by themselves."""

    def _target(self, y: float) -> tuple[Any, Floats]:
        Y = np.zeros((1, len(self.classes_)))
        Y[0, int(y)] = 1.0
        return self.classes_[int(y)].item(), Y

    def _predicted_and_learned(
        self, one: Any, X: Floats, Y: Floats, given: dict[str, Any]
    ) -> Floats:
        labels = self.classes_[Y.argmax(axis=1)]
        _, P, classes = prequential_probabilities(one, X, labels, **given)
        return self._of_all_classes(classes, np.nan_to_num(P))

    def _predicted(self, one: Any, X: Floats) -> Floats:
        return self._of_all_classes(one.classes_, one.predict_proba(X))

    def _predicted_one(self, one: Any, x: Floats) -> Floats:
        found = one.predict_proba_one(x)
        return np.array([[max(found.get(k, 0.0), _LEAST) for k in self.classes_.tolist()]])

    def _of_all_classes(self, classes: Array, P: Floats, least: float = _LEAST) -> Floats:
        """Values (n, c) of all classes, at least ``least``, from those of some classes."""
        wide = np.full((len(P), len(self.classes_)), least)
        known = np.isin(classes, self.classes_)  # a member may have others that were given
        at = np.searchsorted(self.classes_, classes[known])
        wide[:, at] = np.maximum(P[:, known], least)
        return wide

    def _weigh(self, P: Floats, Y: Floats, s: Floats | None) -> Floats:
        at = Y.argmax(axis=1)
        logs = np.log(P[:, np.arange(len(at)), at]) * (1.0 if s is None else s)
        weights, rows = self.mixing_.tolist(), []
        for p in np.exp(logs - logs.max(axis=0)).T.tolist():
            rows.append(weights)
            weights = _shared([a * b for a, b in zip(weights, p, strict=True)])
        self.__dict__["mixing_"] = np.array(weights)
        return np.asarray(np.log(np.einsum("nk,knc->nc", np.array(rows), P)))

    def _mixed(self, weights: Floats, P: Floats) -> Floats:
        return np.asarray(np.log(np.einsum("k,knc->nc", weights[:, 0], P)))

    def _recall(self, X: Floats) -> Floats:
        now, fit = np.exp(self._scores(X)), self._exact
        rows = []
        for one in self._in_use:
            remembered = np.broadcast_to(one._remembered_rows, (1, len(one.classes_)))  # noqa: SLF001
            rows.append(self._of_all_classes(one.classes_, remembered, _FORGOTTEN)[0])
        n = np.exp(self._weights[:, 0] @ np.log(rows)) / fit._mean_weight  # noqa: SLF001
        known = n / (n + self.n_features_in_ + 1.0)
        indicators = np.clip(fit._exact_scores(X), 0.0, 1.0)  # noqa: SLF001
        E = self._of_all_classes(fit.classes_, indicators)
        forgotten = (1.0 - known) * E / E.sum(axis=1, keepdims=True)
        remembered = known * now / np.maximum((known * now).sum(axis=1, keepdims=True), 1e-12)
        rest = 1.0 - forgotten.sum(axis=1, keepdims=True)
        return np.asarray(np.log(forgotten + rest * remembered + _LEAST**4))


def _checked(P: Floats) -> Floats:
    """Predictions of a member, which must be finite."""
    if not (math.isfinite(P.sum()) or np.isfinite(P).all()):
        raise NumericalError(
            "the predictions of all models must be finite, got others. Rescale the columns by "
            "constants, or use smaller steps."
        )
    return P


def _shared(weights: list[float]) -> list[float]:
    """Normalised weights, of which each gives a share to the others."""
    total, least = sum(weights), _SHARE / len(weights)
    return [least + (1.0 - _SHARE) * one / total for one in weights]


def _limited(P: Floats, low: Floats, high: Floats) -> Floats:
    """Predictions (K, n, c) within a range that is extended by its width, if it is known."""
    width = high - low
    least, most = low - width, high + width
    if width[0, 0] < 0.0:  # before the first target
        least[0], most[0] = -np.inf, np.inf
    return np.minimum(np.maximum(P, least), most)


def _has_std(one: Any) -> bool:
    """Whether a model predicts standard deviations."""
    return "return_std" in inspect.signature(getattr(one, "learner", one).predict).parameters
