"""Resonance: what the ART-IPCA learners share: axes, prototypes, and rules between them."""

import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onepass import linalg, validate
from onepass.axes import Axes
from onepass.errors import NotFittedError, NumericalError, ParameterError
from onepass.estimator import Layout
from onepass.features.principal import checked_components, rows_between
from onepass.learners.contest import Rules, met
from onepass.learners.prototypes import SIMILARITIES, Prototypes
from onepass.types import Array, Floats

__all__ = ["Resonance"]

WAYS = ("incremental", "task", "static", "none")
_LARGEST = 1e150  # squares of larger numbers overflow


class Resonance:
    """Stands before :class:`~onepass.estimator.Classifier` among a class's bases."""

    n_components: Any
    vigilance: float
    similarity: str
    step: Any
    pca: str
    block: int | None
    max_prototypes: int | None
    n_features_in_: int
    axes_: Any
    stock_: Prototypes
    compact_: bool

    merged_alike: ClassVar[tuple[str, ...]] = ("similarity", "step", "pca")

    # -- what was learned --------------------------------------------------------------------------

    @property
    def prototypes_(self) -> Floats:
        """The prototypes in the space of the rows, (W, d); none of a compact learner."""
        return self._stock().all("rows")

    @property
    def prototype_weights_(self) -> Floats:
        """Rows, by weight, that each prototype took in, (W,)."""
        return self._stock().all("taken")

    @property
    def components_(self) -> Floats:
        """The axes that rows are seen along, (k, d); none while they are compared as they are."""
        self._stock()
        if self.axes_ is None or self._as_rows:
            return np.zeros((0, self.n_features_in_))
        directions: Floats = self.axes_.view.directions
        return directions

    def _stock(self) -> Prototypes:
        if not hasattr(self, "stock_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        return self.stock_

    # -- verbs -------------------------------------------------------------------------------------

    def learn_axes(self, X: Any) -> Self:
        """Learn the axes from these rows, as one batch, and no prototypes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            With ``pca="static"`` they are the axes for good.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            With ``pca="none"``.
        """
        where = f"{type(self).__name__}.learn_axes"
        if self.pca == "none":
            raise ParameterError(
                f"{where}: `pca` must be a way of learning axes, got 'none'. Construct the learner "
                "with pca='static' to learn them beforehand."
            )
        learner: Any = self
        with learner._whole():  # noqa: SLF001  its own
            array, names = validate.matrix(X, where, **learner._shape())  # noqa: SLF001
            learner._meet(array.shape[1], names)  # noqa: SLF001
            self._rules()
            axes = getattr(self, "axes_", None) or self._axes(array.shape[1])
            self.axes_ = self._turned(axes, array.astype(np.float64, copy=False), None)
            if hasattr(self, "stock_"):
                self._look()
        return self

    def compact(self) -> Self:
        """A copy for answering alone: prototypes along the axes, O(kd + Wk) numbers ([1] A.2).

        It cannot learn, merge or grow any more. This learner stays as it is.

        Returns
        -------
        learner : of the same class

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        stock = self._stock()
        small = copy.copy(self)
        small.stock_ = stock.compact()
        if self.axes_ is not None:
            small.axes_ = self.axes_.fixed()
        small.compact_ = True
        return small

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int, c: int) -> None:
        del c
        self._rules()
        if getattr(self, "axes_", None) is None:
            self.axes_ = None if self.pca == "none" else self._axes(d)
        self.stock_, self.compact_ = Prototypes.start(d), False
        self._look()

    def _resonated(self, X: Floats, labels: Array, s: Floats | None) -> Array:
        """Learn rows; return label and number of what each met, −1 where nothing stood."""
        self._refuse_compact("learn")
        rules, weights = self._rules(), np.ones(len(X)) if s is None else s
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, below "
                f"{_LARGEST:g}, got values up to {linalg.magnitude(X):.3g}. "
                "Give features in larger units."
            )
        if self.pca == "task" or (self.pca == "static" and not self.axes_.mass):
            self.axes_ = self._turned(self.axes_, X, s)
            self._look()
        said = np.full((len(X), 2), -1)
        cuts = self.axes_.looks(len(X)) if self.pca == "incremental" else [len(X)]
        begin = 0
        for end in cuts:
            rows = slice(begin, end)
            Z = self._along(X[rows])
            self.stock_, said[rows] = met(
                self.stock_, rules, X[rows], Z, labels[rows], weights[rows]
            )
            if self.pca == "incremental":
                view = self.axes_.view
                self.axes_ = self.axes_.taken(X[rows], weights[rows])
                if self.axes_.view is not view:
                    self._look()
            begin = end
        return said

    def _merge(self, other: Any, layout: Layout) -> None:
        """Axes of the rows of both; the other's prototypes come as rows of their weights."""
        self._refuse_compact("merge")
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        if self.axes_ is not None and (self.pca != "static" or not self.axes_.mass):
            self.axes_ = self.axes_.merged(other.axes_.placed(layout.features, layout.d))
            self._look()
        rows = np.zeros((len(other.stock_), layout.d))
        rows[:, layout.features] = other.stock_.all("rows")
        labels = self._labels_of(other, layout.outputs)
        weights = other.stock_.all("taken")
        Z = self._along(rows)
        self.stock_, _ = met(self.stock_, self._rules(), rows, Z, labels, weights)

    def _labels_of(self, other: Any, places: Array) -> Array:
        labels: Array = places[other.stock_.all("labels")]
        return labels

    @property
    def merging(self) -> Literal["exact", "approximate", "refused"]:
        """``approximate``: the other's prototypes are learned, in place of their rows."""
        return "approximate"

    def _unmergeable(self) -> str:
        if getattr(self, "compact_", False):
            return "got a compact one, made for answering alone. Merge the one it was made of."
        return ""

    def _widen(self, d: int) -> None:
        self._refuse_compact("grow")
        if self.axes_ is not None:
            self.axes_ = self.axes_.grown(d)
        self.stock_ = self.stock_.grown(d)
        self._look()

    # -- axes --------------------------------------------------------------------------------------

    def _axes(self, d: int) -> Axes:
        who = type(self).__name__
        k = checked_components(self.n_components, who)
        return Axes.start(d, k, rows_between(self.block, k, who))

    def _turned(self, axes: Axes, X: Floats, s: Floats | None) -> Axes:
        """The axes after a batch."""
        return axes.joined(X, s) if len(X) else axes

    @property
    def _as_rows(self) -> bool:
        """Whether rows are compared in their own space: no axes, or none that are settled yet."""
        axes = self.axes_
        if axes is None or not len(axes.view.lengths):
            return True
        return bool(self.pca == "incremental" and axes.rows < axes.room)

    def _along(self, X: Floats) -> Floats:
        """Rows as they are compared, (n, k) or (n, d)."""
        if self.axes_ is None:
            return X
        view = self.axes_.view
        seen: Floats = X - view.center if self._as_rows else view.of(X)
        return seen

    def _look(self) -> None:
        """See all prototypes along the axes as they are now."""
        self.stock_ = self.stock_.viewed(None if self.axes_ is None else self._along)

    def _refuse_compact(self, verb: str) -> None:
        if self.compact_:
            raise ParameterError(
                f"{type(self).__name__}: a compact learner cannot {verb}: its prototypes are known "
                "along the axes alone. Go on with the learner that it was made of."
            )

    def _rules(self) -> Rules:
        """The rules of matching, checked."""
        who = type(self).__name__
        for name, known in (("similarity", tuple(SIMILARITIES)), ("pca", WAYS)):
            if getattr(self, name) not in known:
                raise ParameterError(
                    f"{who}: `{name}` must be one of {', '.join(known)}, got "
                    f"{getattr(self, name)!r}. Choose one of these."
                )
        least = SIMILARITIES[self.similarity][1]
        vigilance = validate.in_range(self.vigilance, "vigilance", who, low=least, high=1.0)
        step = None
        if not (isinstance(self.step, str) and self.step == "mean"):
            step = validate.in_range(self.step, "step", who, above=0.0, high=1.0)
        most = self.max_prototypes
        if most is not None:
            most = validate.whole(most, "max_prototypes", who, low=1)
        return Rules(vigilance, self.similarity, step, most)
