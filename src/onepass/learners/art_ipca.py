"""ART-IPCA: prototypes, matched along the principal axes of the rows so far.

Adaptive resonance theory: a row moves the most similar prototype if it is similar enough and has
the same class; otherwise the row becomes a prototype ([1] Algorithm 1). Other prototypes do not
change, so that new classes do not cause forgetting of old ones, and no row is stored. Prototypes
are stored in the space of the rows and compared along the top k principal axes. The axes may change
during learning; then all prototypes are projected anew. ``pca`` selects how axes are learned:

=============== ==================================================================================
``incremental`` updated after each ``block`` rows ([1] without tasks)
``task``        from all rows of a call of ``partial_fit``, before their prototypes, as in [1]
``static``      from the rows of the first call, or of ``learn_axes``, and then fixed
``none``        no axes: rows are compared without projection and are not centred
=============== ==================================================================================

Without labels (:class:`ARTIPCACluster`) all rows have one label, and a row that is not similar
enough to any prototype starts a new cluster.

A prediction is the class of the most similar prototype. With W prototypes, matching a row takes
O(Wk + kd) time, and a change of axes O(Wkd); memory is O(kd + Wd). Prediction takes O(kd + Wk) time
and memory ([1] A.2).

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

import copy
from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onepass import linalg, validation
from onepass.errors import LabelError, NotFittedError, NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Clusterer, Layout
from onepass.learners.prototypes import (
    PCA_MODES,
    Prototypes,
    Rules,
    checked_rules,
    compares_rows,
    match_and_update,
    project,
)
from onepass.linalg import calibration
from onepass.linalg.pca import IncrementalPCAState, checked_components, rows_between
from onepass.types import Array, Floats
from onepass.validation.table import TableLike

__all__ = ["ARTIPCAClassifier", "ARTIPCACluster", "BaseARTIPCA"]


_LARGEST = 1e150  # squares of larger numbers overflow
_MAX_WEIGHT = 1e150  # sum of weights; larger sums, multiplied by squares, overflow


class BaseARTIPCA:
    """Base class of ART-IPCA estimators; precedes ``Classifier`` or ``Clusterer`` in the bases."""

    n_components: Any
    vigilance: float
    similarity: str
    step: Any
    pca: str
    block: int | None
    max_prototypes: int | None
    n_features_in_: int
    axes_: Any
    prototype_store_: Prototypes
    compact_: bool
    pca_mode_: str

    _merge_parameters: ClassVar[tuple[str, ...]] = ("similarity", "step", "pca")

    @property
    def by_task(self) -> bool:
        """Whether each call of ``partial_fit`` is a task and should contain all of its rows."""
        return self.pca == "task"

    # -- learned attributes ------------------------------------------------------------------------

    @property
    def prototypes_(self) -> Floats:
        """The prototypes in the space of the rows, (W, d); (W, 0) in a compact learner."""
        return self._fitted_prototypes().all("rows")

    @property
    def prototype_weights_(self) -> Floats:
        """The total weight of the rows averaged in each prototype, (W,)."""
        return self._fitted_prototypes().all("weights")

    @property
    def components_(self) -> Floats:
        """The axes used to compare rows, (k, d); k = 0 while rows are compared without axes."""
        self._fitted_prototypes()
        if self.axes_ is None or compares_rows(self.axes_, self.pca_mode_):
            return np.zeros((0, self.n_features_in_))
        directions: Floats = self.axes_.view.directions
        return directions

    def _fitted_prototypes(self) -> Prototypes:
        if not hasattr(self, "prototype_store_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        return self.prototype_store_

    # -- verbs -------------------------------------------------------------------------------------

    def learn_axes(self, X: TableLike) -> Self:
        """Learn the axes from one batch of rows, without learning prototypes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            With ``pca="static"`` the axes do not change later. ``fit`` resets the axes: continue
            with ``partial_fit``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If ``pca="none"``, or if the learner is compact.
        """
        where = f"{type(self).__name__}.learn_axes"
        if self.pca == "none":
            raise ParameterError(
                f"{where}: `pca` must be 'incremental', 'task' or 'static', got 'none'. Construct "
                "the learner with pca='static' to learn the axes before the prototypes."
            )
        if getattr(self, "compact_", False):
            self._check_not_compact("learn axes")
        learner: Any = self
        with learner._rollback_on_error():  # noqa: SLF001  a method of this learner
            array, names = validation.matrix(X, where, **learner._shape())  # noqa: SLF001
            learner._set_features(array.shape[1], names)  # noqa: SLF001
            self._rules()
            axes = getattr(self, "axes_", None) or self._axes(array.shape[1])
            axes = axes if len(axes.mean) == array.shape[1] else axes.grown(array.shape[1])
            self._set_axes(
                self._updated_axes(axes.joined, array.astype(np.float64, copy=False), None)
            )
        return self

    def compact(self) -> Self:
        """Return a copy for prediction only, of O(kd + Wk) numbers ([1] A.2).

        It stores only the coordinates of the prototypes along the axes, and cannot learn, merge or
        grow. This learner is not changed.

        Returns
        -------
        learner : of the same class

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        store = self._fitted_prototypes()
        compact = copy.copy(self)
        compact.prototype_store_ = store.compact()
        if self.axes_ is not None:
            compact.axes_ = self.axes_.fixed()
        compact.compact_ = True
        return compact

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int, c: int) -> None:
        del c
        self._rules()
        axes = getattr(self, "axes_", None)  # of learn_axes
        if axes is None and self.pca != "none":
            axes = self._axes(d)
        elif axes is not None and len(axes.mean) < d:
            axes = axes.grown(d)
        self.prototype_store_, self.compact_, self.pca_mode_ = Prototypes.start(d), False, self.pca
        self._set_axes(axes)

    def _match_and_update(self, X: Floats, labels: Array, s: Floats | None) -> Array:
        """Learn rows; return the label and index of each row's match, −1 without prototypes."""
        self._check_not_compact("learn")
        rules, weights = self._rules(), np.ones(len(X)) if s is None else s
        if s is not None and not s.sum() + self.prototype_store_.all("weights").sum() < _MAX_WEIGHT:
            raise NumericalError(
                f"{type(self).__name__}: the sum of weights must be < {_MAX_WEIGHT:g}, got weights "
                f"up to {s.max():.3g}. Divide all weights by the same number."
            )
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, below "
                f"{_LARGEST:g}, got values up to {linalg.magnitude(X):.3g}. "
                "Divide the features by a constant."
            )
        if self.pca_mode_ == "task" or (self.pca_mode_ == "static" and not self.axes_.mass):
            self._set_axes(self._updated_axes(self.axes_.joined, X, s))
        matches = np.full((len(X), 2), -1)
        incremental = self.pca_mode_ == "incremental"
        cuts = self.axes_.checkpoints(len(X)) if incremental else [len(X)]
        begin = 0
        for end in cuts:
            rows = slice(begin, end)
            Z = self._project(X[rows])
            self.prototype_store_, matches[rows] = match_and_update(
                self.prototype_store_, rules, X[rows], Z, labels[rows], weights[rows]
            )
            if incremental:
                axes = self._updated_axes(self.axes_.taken, X[rows], weights[rows])
                if axes.view is self.axes_.view:
                    self.axes_ = axes
                else:
                    self._set_axes(axes)
            begin = end
        return matches

    def _merge(self, other: Self, layout: Layout) -> None:
        """Merge the axes, then learn the other learner's prototypes as weighted rows."""
        self._check_not_compact("merge")
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        if self.axes_ is not None and (self.pca_mode_ != "static" or not self.axes_.mass):
            theirs = other.axes_.placed(layout.features, layout.d)
            self._set_axes(self.axes_.merged(theirs))
        rows = np.zeros((len(other.prototype_store_), layout.d))
        rows[:, layout.features] = other.prototype_store_.all("rows")
        labels = self._labels_of(other, layout.outputs)
        weights = other.prototype_store_.all("weights")
        Z = self._project(rows)
        self.prototype_store_, _ = match_and_update(
            self.prototype_store_, self._rules(), rows, Z, labels, weights
        )

    def _labels_of(self, other: Self, places: Array) -> Array:
        labels: Array = places[other.prototype_store_.all("labels")]
        return labels

    @property
    def _merging(self) -> Literal["exact", "approximate", "refused"]:
        """``approximate``: prototypes are merged in place of the rows averaged in them."""
        return "approximate"

    def _unmergeable(self) -> str:
        if getattr(self, "compact_", False):
            return "got a compact one, for prediction only. Merge the learner that was compacted."
        return ""

    def _widen(self, d: int) -> None:
        self._check_not_compact("grow")
        self.prototype_store_ = self.prototype_store_.grown(d)
        self._set_axes(None if self.axes_ is None else self.axes_.grown(d))

    # -- axes --------------------------------------------------------------------------------------

    def _axes(self, d: int) -> IncrementalPCAState:
        who = type(self).__name__
        k = checked_components(self.n_components, who)
        return IncrementalPCAState.start(d, k, rows_between(self.block, k, d, who))

    def _updated_axes(
        self, learn: Callable[..., IncrementalPCAState], X: Floats, s: Floats | None
    ) -> IncrementalPCAState:
        """The axes after rows; raise an error if they are not finite."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                axes = learn(X, s)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not linalg.finite(axes.mean, np.array([axes.mass, axes.trace])):
            raise NumericalError(
                f"{type(self).__name__}: rows and their weights must be small enough to square and "
                f"sum, got values up to {linalg.magnitude(X):.3g} and weights up to "
                f"{1.0 if s is None else s.max():.3g}. Divide the features by a constant, and "
                "smaller weights."
            )
        return axes

    def _set_axes(self, axes: IncrementalPCAState | None) -> None:
        """Set the axes and project all prototypes on them, as one assignment."""
        store = getattr(self, "prototype_store_", None)
        if store is None:
            self.axes_ = axes
            return
        view = None if axes is None else partial(project, axes, self.pca_mode_)
        self.__dict__.update(axes_=axes, prototype_store_=store.with_coordinates(view))

    def _project(self, X: Floats) -> Floats:
        """Coordinates of rows for comparison, (n, k) or (n, d)."""
        return X if self.axes_ is None else project(self.axes_, self.pca_mode_, X)

    def _check_not_compact(self, verb: str) -> None:
        if self.compact_:
            raise ParameterError(
                f"{type(self).__name__}: a compact learner cannot {verb}: it stores only the "
                "coordinates of its prototypes. Use the learner that was compacted."
            )

    def _rules(self) -> Rules:
        """The rules of matching, from validated parameters."""
        who = type(self).__name__
        if self.pca not in PCA_MODES:
            raise ParameterError(
                f"{who}: `pca` must be one of {', '.join(PCA_MODES)}, got {self.pca!r}. Choose one "
                "of these."
            )
        given = (self.vigilance, self.similarity, self.step, self.max_prototypes)
        return checked_rules(*given, who)

    @property
    def _sound(self) -> bool:
        """Whether the attributes read from a file are consistent."""
        if not hasattr(self, "prototype_store_"):  # it has learned axes only, or no row
            return getattr(self, "axes_", None) is None or self.axes_._sound  # noqa: SLF001
        store, axes, d = self.prototype_store_, self.axes_, self.n_features_in_
        if type(store) is not Prototypes or not store._sound or type(self.compact_) is not bool:  # noqa: SLF001
            return False
        if store.all("labels").max(initial=0) >= len(getattr(self, "classes_", (0,))):
            return False
        if self.pca_mode_ not in PCA_MODES or (axes is None) != (self.pca_mode_ == "none"):
            return False
        widths = {page.rows.shape[1] for page in store.pages} - ({0} if self.compact_ else set())
        compared = store.pages[0].compared.shape[1]
        if axes is None:
            return widths <= {d} and compared == d
        sound = type(axes) is IncrementalPCAState and axes._sound  # noqa: SLF001
        sound = sound and len(axes.mean) == d and widths <= {d}
        width = d if compares_rows(axes, self.pca_mode_) else len(axes.view.lengths)
        return sound and compared == width


class ARTIPCAClassifier(BaseARTIPCA, Classifier):
    """Prototype classifier with incremental principal component analysis.

    Parameters
    ----------
    n_components : int or float, default=0.95
        Number of principal axes k >= 1, or the share in (0, 1) of the variance to retain.
    vigilance : float, default=0.5
        Minimum similarity ρ for a row to update a prototype; in [−1, 1] for the cosine, in [0, 1]
        for ``"euclidean"``. Higher values give more prototypes.
    similarity : {"cosine", "euclidean"}, default="cosine"
        Similarity of centred rows along the axes: the cosine, or 1 / (1 + distance).
    step : {"mean"} or float, default="mean"
        With "mean", prototypes are the means of their rows. A float β in (0, 1] is the fixed
        step towards each row.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How the principal axes are learned: updated after every ``block`` rows, from the rows of
        each call, from the rows of the first call only, or not at all.
    block : int, optional
        With ``pca="incremental"``, the number of rows between two updates of the axes, >= 1. By
        default twice the number of components, and at least 128.
    max_prototypes : int or None, default=10000
        Maximum number of prototypes; None for no limit. When it is reached, a row that would become
        a prototype updates the most similar prototype of its class. If its class has none, the two
        most similar prototypes of the largest class are merged. Each class has at least one
        prototype, even beyond the limit.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    prototypes_ : ndarray of shape (W, d)
        Prototypes in the space of the rows, in the order in which they were added.
    prototype_labels_ : ndarray of shape (W,)
        Label of each prototype.
    prototype_weights_ : ndarray of shape (W,)
        Total weight of the rows averaged in each prototype.
    components_ : ndarray of shape (k, d)
        Principal axes used to compare rows; k = 0 while rows are compared without axes.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Notes
    -----
    A row of weight s moves a mean as s rows would. With ``pca="task"`` each call of ``partial_fit``
    is one task, so that the division of a stream into blocks changes the result; ``learn_one``
    learns a task of a single row, and ``test_then_train`` also ends a task at rows of weight 0.
    With ``pca="static"`` pass many rows to the first call, or call ``learn_axes`` before.

    ``merge`` combines the axes of both learners, except for static ones, which do not change.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> order = y.argsort(kind="stable")  # one class after the other
    >>> model = op.ARTIPCAClassifier(vigilance=0.7).partial_fit(X[order], y[order])
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _scores_blocks = False

    def __init__(
        self,
        n_components: float = 0.95,
        vigilance: float = 0.5,
        *,
        similarity: str = "cosine",
        step: float | str = "mean",
        pca: str = "incremental",
        block: int | None = None,
        max_prototypes: int | None = 10_000,
        classes: Collection[object] | None = None,
    ) -> None:
        self.n_components = n_components
        self.vigilance = vigilance
        self.similarity = similarity
        self.step = step
        self.pca = pca
        self.block = block
        self.max_prototypes = max_prototypes
        self.classes = classes

    @property
    def prototype_labels_(self) -> Array:
        """The label of each prototype, (W,)."""
        labels: Array = self.classes_[self._fitted_prototypes().all("labels")]
        return labels

    def predict(self, X: TableLike, *, task: Collection[object] | None = None) -> Array:
        """Predict the class of the most similar prototype for each row of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        task : array-like, optional
            The candidate classes of the rows, if known (the multi-headed setting). By default, all
            classes.

        Returns
        -------
        labels : ndarray of shape (n,)

        Raises
        ------
        NotFittedError
            If no row was learned.
        LabelError
            If ``task`` contains an unknown class.
        """
        scores = self._scores(self._matrix(X, "predict"))
        if task is None:
            return self._to_predictions(scores, None)
        where = f"{type(self).__name__}.predict"
        named = validation.class_names(task, where)
        if not len(named) or not np.isin(named, self.classes_).all():
            raise LabelError(
                f"{where}: `task` must contain known classes, of {self.classes_.tolist()}, "
                f"got {task!r}. Leave out `task` to choose among all classes."
            )
        at = np.searchsorted(self.classes_, named)
        return self._to_predictions(
            np.where(np.isin(np.arange(scores.shape[1]), at), scores, -np.inf), None
        )

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        X, labels = X.astype(np.float64, copy=False), Y.argmax(axis=1)
        joint = self.by_task or (self.pca == "static" and not self.axes_.mass)  # axes of all rows
        rows, state = self._calibrated_rows(len(X)), self.calibration_
        scores = np.zeros(Y.shape)
        for a, b in pairwise([0, len(X)] if joint else sorted({0, len(X), *rows})):
            with np.errstate(all="ignore"):  # rows that are too large raise an error below
                for i in rows if joint else {a}.intersection(rows):
                    row = self._scores(X[i : i + 1])[0]
                    row = row if class_mask is None else np.where(class_mask[i], row, -np.inf)
                    state = calibration.updated(state, row, int(labels[i]))
            weights = None if s is None else s[a:b]
            winners = self._match_and_update(X[a:b], labels[a:b], weights)[:, 0]
            matched = np.flatnonzero(winners >= 0)
            scores[a + matched, winners[matched]] = 1.0
        self.calibration_ = state
        return scores

    def _calibrate(self, scores: Floats, *rows: object) -> Floats:
        """Do nothing: ``_learn`` calibrates, as it alone has the similarities."""
        del rows
        return np.ones(len(scores))

    def _scores(self, X: Floats) -> Floats:
        Z = self._project(X.astype(np.float64, copy=False))
        return self.prototype_store_.best(Z, self.similarity, len(self.classes_))

    def _add_outputs(self, at: Array, c: int) -> None:
        self.prototype_store_ = self.prototype_store_.relabelled(np.setdiff1d(np.arange(c), at))


class ARTIPCACluster(BaseARTIPCA, Clusterer):
    """Prototype clustering with incremental principal component analysis.

    Parameters
    ----------
    n_components : int or float, default=0.95
        Number of principal axes k >= 1, or the share in (0, 1) of the variance to retain.
    vigilance : float, default=0.5
        Minimum similarity ρ for a row to join a cluster; in [−1, 1] for the cosine, in [0, 1] for
        ``"euclidean"``. Higher values give more clusters.
    similarity : {"cosine", "euclidean"}, default="cosine"
        Similarity of centred rows along the axes: the cosine, or 1 / (1 + distance).
    step : {"mean"} or float, default="mean"
        With "mean", prototypes are the means of their rows. A float β in (0, 1] is the fixed
        step towards each row.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How the principal axes are learned, as in :class:`onepass.ARTIPCAClassifier`.
    block : int, optional
        With ``pca="incremental"``, the number of rows between two updates of the axes, >= 1. By
        default twice the number of components, and at least 128.
    max_prototypes : int or None, default=10000
        Maximum number of clusters; None for no limit. When it is reached, every row joins the most
        similar cluster.

    Attributes
    ----------
    prototypes_ : ndarray of shape (W, d)
        Prototypes in the space of the rows. The index of a prototype is the number of its cluster.
    prototype_weights_ : ndarray of shape (W,)
        Total weight of the rows averaged in each prototype.
    components_ : ndarray of shape (k, d)
        Principal axes used to compare rows; k = 0 while rows are compared without axes.
    n_features_in_ : int
        Number of features.
    rows_seen_ : int
        Number of rows learned.

    Examples
    --------
    >>> import numpy as np, onepass as op
    >>> rng = np.random.default_rng(0)
    >>> centres = rng.normal(size=(3, 20))
    >>> X = centres[rng.integers(0, 3, 300)] + 0.1 * rng.normal(size=(300, 20))
    >>> clusters = op.ARTIPCACluster(vigilance=0.5, pca="none").partial_fit(X)
    >>> len(clusters.prototypes_)
    3
    """

    def __init__(
        self,
        n_components: float = 0.95,
        vigilance: float = 0.5,
        *,
        similarity: str = "cosine",
        step: float | str = "mean",
        pca: str = "incremental",
        block: int | None = None,
        max_prototypes: int | None = 10_000,
    ) -> None:
        self.n_components = n_components
        self.vigilance = vigilance
        self.similarity = similarity
        self.step = step
        self.pca = pca
        self.block = block
        self.max_prototypes = max_prototypes

    def similarities(self, X: TableLike) -> Floats:
        """Compute similarities of the rows of X with all prototypes, shape (n, W).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            If no row was learned.
        """
        rows = self._matrix(X, "similarities").astype(np.float64, copy=False)
        return self.prototype_store_.similarities(self._project(rows), self.similarity)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del Y, class_mask
        labels = np.zeros(len(X), dtype=np.intp)
        return self._match_and_update(X.astype(np.float64, copy=False), labels, s)[:, 1:]

    def _scores(self, X: Floats) -> Floats:
        if not len(self.prototype_store_):
            return np.full((len(X), 1), -1.0)
        near = self.prototype_store_.similarities(
            self._project(X.astype(np.float64, copy=False)), self.similarity
        )
        clusters: Floats = near.argmax(axis=1)[:, None].astype(np.float64)
        return clusters
