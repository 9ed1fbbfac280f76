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

With ``projection="lda"`` the axes are those of incremental linear discriminant analysis
(:mod:`onepass.learners.discriminant_axes`), which also are linear, so that prototypes follow them
in the same way ([1] A.6). With ``levels`` > 1 the rows are first divided into clusters, and each
cluster has its own axes and prototypes (:mod:`onepass.learners.prototype_tree`).

Without labels (:class:`ARTIPCACluster`) all rows have one label, and a row that is not similar
enough to any prototype starts a new cluster.

A prediction is the class of the most similar prototype. With W prototypes, matching a row takes
O(Wk + kd) time, and a change of axes O(Wkd); memory is O(kd + Wd). Prediction takes O(kd + Wk) time
and memory ([1] A.2).

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from onepass import linalg, validation
from onepass.declared import State, param
from onepass.errors import LabelError, NotFittedError, NumericalError, ParameterError, public
from onepass.learners.discriminant_axes import DiscriminantAxes
from onepass.learners.estimator import Classifier, Clusterer, Layout, Learner
from onepass.learners.prototype_tree import Axes, LevelRules, PrototypeTree, TreeMatches
from onepass.learners.prototypes import (
    PCA_MODES,
    Prototypes,
    Similarity,
    checked_rules,
    compares_rows,
)
from onepass.linalg import calibration
from onepass.linalg.pca import IncrementalPCAState, checked_components
from onepass.types import Array, Floats
from onepass.validation.table import TableLike

_PROJECTIONS = ("pca", "lda")
_MAX_LEVELS = 16
_LARGEST = 1e150  # squares of larger numbers overflow
_MAX_WEIGHT = 1e150  # sum of weights; larger sums, multiplied by squares, overflow


@dataclass(eq=False, repr=False)
class BaseARTIPCA(Learner):
    """Base class of ART-IPCA estimators; precedes ``Classifier`` or ``Clusterer`` in the bases."""

    n_components: float | Sequence[float] = 0.95
    vigilance: float | Sequence[float] = 0.5
    _: KW_ONLY
    similarity: Similarity = "cosine"
    step: float | str = "mean"
    pca: str = param("incremental", choices=PCA_MODES)
    block: int | None = None
    max_prototypes: int | Sequence[int | None] | None = 10_000
    levels: int = param(1, whole=True, low=1, high=_MAX_LEVELS)

    projection = "pca"
    shrinkage = cast("float | str", 0.0)
    axes_ = State[Axes | None]()
    prototype_store_ = State[Prototypes]()
    compact_ = State[bool]()
    pca_mode_ = State[str]()
    levels_ = 1
    children_ = cast("tuple[PrototypeTree, ...]", ())

    _merge_parameters: ClassVar[tuple[str, ...]] = (
        "similarity", "step", "pca", "levels", "projection",
    )  # fmt: skip

    @property
    def by_task(self) -> bool:
        """Whether each call of ``partial_fit`` is a task and should contain all of its rows."""
        return self.pca == "task"

    # -- learned attributes ------------------------------------------------------------------------

    @property
    def prototypes_(self) -> Floats:
        """The prototypes in the space of the rows, (W, d); (W, 0) in a compact learner."""
        return self._of_prototypes("rows")

    @property
    def prototype_weights_(self) -> Floats:
        """The total weight of the rows averaged in each prototype, (W,)."""
        return self._of_prototypes("weights")

    @property
    def components_(self) -> Floats:
        """The axes used to compare rows, (k, d), of the first level; k = 0 without axes."""
        self._fitted_prototypes()
        if self.axes_ is None or compares_rows(self.axes_, self.pca_mode_):
            return np.zeros((0, self.n_features_in_))
        directions: Floats = self.axes_.view.directions
        return directions

    @property
    def _tree(self) -> PrototypeTree:
        """Axes and prototypes of all levels."""
        store = self._fitted_prototypes()
        return PrototypeTree(self.axes_, self.pca_mode_, store, self.children_)

    @_tree.setter
    def _tree(self, tree: PrototypeTree) -> None:
        self.__dict__.update(axes_=tree.axes, prototype_store_=tree.store)
        if self.levels_ > 1:
            self.children_ = tree.children

    def _of_prototypes(self, name: str) -> Array:
        """``rows``, ``labels`` or ``weights`` of all prototypes of the last level."""
        stores = [leaf.store for _, leaf in self._tree.leaves()]
        return (
            stores[0].all(name)
            if len(stores) == 1
            else np.concatenate([store.all(name) for store in stores])
        )

    def _fitted_prototypes(self) -> Prototypes:
        if not hasattr(self, "prototype_store_"):
            who = type(self).__name__
            raise NotFittedError(
                f"this {who} is not fitted yet: it has learned no row. Call fit, "
                "partial_fit or learn_one first."
            )
        return self.prototype_store_

    # -- verbs -------------------------------------------------------------------------------------

    @public
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
        if self.pca == "none":
            raise ParameterError(
                "`pca` must be 'incremental', 'task' or 'static', got 'none'. Construct the "
                "learner with pca='static' to learn the axes before the prototypes.",
            )
        if self.projection != "pca":
            raise ParameterError(
                "discriminant axes require labels, got rows without labels. Call partial_fit, "
                "which learns them, or construct the learner with projection='pca'.",
            )
        if getattr(self, "compact_", False):
            self._check_not_compact("learn axes")
        learner: Any = self
        with learner._rollback_on_error():  # noqa: SLF001  a method of this learner
            array, names = validation.matrix(X, **learner._shape())  # noqa: SLF001
            learner._set_features(array.shape[1], names)  # noqa: SLF001
            level, d = self._level_rules()[0], array.shape[1]
            started, axes = hasattr(self, "prototype_store_"), self._initial_axes(d)
            node = self._tree if started else PrototypeTree.start(level, d, axes)
            node = node.joined(array.astype(np.float64, copy=False), level)
            if started:
                self._tree = node
            else:
                self.axes_ = node.axes
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
        tree = self._tree.compact()
        compact = copy.copy(self)
        compact._tree = tree  # noqa: SLF001  a copy of this learner
        compact.compact_ = True
        return compact

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int, c: int) -> None:
        levels = self._level_rules(c)
        axes = self._initial_axes(d)  # of learn_axes
        self.compact_, self.pca_mode_ = False, self.pca
        if len(levels) > 1:
            self.levels_ = len(levels)
        self._tree = PrototypeTree.start(levels[0], d, axes)

    def _initial_axes(self, d: int) -> Axes | None:
        """The axes of ``learn_axes`` for d features; None if there are none."""
        axes = getattr(self, "axes_", None)
        if isinstance(axes, IncrementalPCAState) and len(axes.mean) < d:
            return axes.grown(d)
        return cast("Axes | None", axes)

    def _match_and_update(
        self, X: Floats, labels: Array, s: Floats | None, scored: Collection[int] = ()
    ) -> TreeMatches:
        """Learn rows; return what each row matched, and the scores of some rows."""
        self._check_not_compact("learn")
        levels, weights = self._level_rules(), np.ones(len(X)) if s is None else s
        if s is not None and not s.sum() + self.prototype_store_.all("weights").sum() < _MAX_WEIGHT:
            raise NumericalError(
                f"the sum of weights must be < {_MAX_WEIGHT:g}, got weights up to "
                f"{s.max():.3g}. Divide all weights by the same number."
            )
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"rows must be small enough to square and sum, below {_LARGEST:g}, got values up "
                f"to {linalg.magnitude(X):.3g}. Divide the features by a constant."
            )
        wanted = np.isin(np.arange(len(X)), list(scored))
        self._tree, matches = self._tree.learn(levels, X, labels, weights, wanted)
        return matches

    def _merge(self, other: Self, layout: Layout) -> None:
        """Merge the axes, then learn the other learner's prototypes as weighted rows."""
        self._check_not_compact("merge")
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        theirs = other._tree.placed(layout.features, layout.d, layout.outputs, self._n_classes)
        self._tree = self._tree.merged(theirs, self._level_rules())

    @property
    def _n_classes(self) -> int:
        return len(getattr(self, "classes_", (0,)))

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
        c = self._n_classes
        self._tree = self._tree.placed(np.arange(self.n_features_in_), d, np.arange(c), c)

    # -- axes --------------------------------------------------------------------------------------

    def _check_not_compact(self, verb: str) -> None:
        if self.compact_:
            raise ParameterError(
                f"a compact learner cannot {verb}: it stores only the coordinates of "
                "its prototypes. Use the learner that was compacted."
            )

    def _level_rules(self, c: int | None = None) -> list[LevelRules]:
        """The rules of each level, from validated parameters, for c classes."""
        who, given = type(self).__name__, []
        n = self.levels_ if hasattr(self, "pca_mode_") else self.levels
        mode, projection = getattr(self, "pca_mode_", self.pca), self.projection
        if self.children_:  # as in the nodes that exist
            leaf = next(iter(self._tree.leaves()))[1]
            projection = "lda" if isinstance(leaf.axes, DiscriminantAxes) else "pca"
        c = self._n_classes if c is None else c
        each = (self._by_level(name, n) for name in ("n_components", "vigilance", "max_prototypes"))
        for i, (components, vigilance, limit) in enumerate(zip(*each, strict=True)):
            k = checked_components(components)
            rules = checked_rules(vigilance, self.similarity, self.step, limit)
            labelled = projection == "lda" and i == n - 1  # upper levels have no labels
            shrinkage = self.shrinkage if labelled else None
            given.append(LevelRules(rules, mode, shrinkage, k, self.block, c, who))
        return given

    def _by_level(self, name: str, n: int) -> list[Any]:
        """The values of a parameter in each of n levels."""
        value = getattr(self, name)
        if not isinstance(value, (list, tuple)):
            return [value] * n
        if len(value) != n:
            raise ParameterError(
                f"`{name}` must be one value, or one for each of the {n} levels, got "
                f"{value!r}. Pass {n} values."
            )
        return list(value)

    @property
    def _sound(self) -> bool:
        """Whether the attributes read from a file are consistent."""
        if not hasattr(self, "prototype_store_"):  # it has learned axes only, or no row
            return isinstance(getattr(self, "axes_", None), IncrementalPCAState | None)
        if type(self.compact_) is not bool or type(self.levels_) is not int:
            return False
        depths = {len(path) + 1 for path, _ in self._tree.leaves()}
        deep = depths == {self.levels_} or not len(self.prototype_store_)
        d, c = self.n_features_in_, self._n_classes
        tree = self._tree.is_sound(d, c, compact=self.compact_)
        return deep and tree and super()._sound


@dataclass(eq=False, repr=False)
class ARTIPCAClassifier(BaseARTIPCA, Classifier):
    """Prototype classifier with incremental principal component analysis.

    Parameters
    ----------
    n_components : int, float or sequence, default=0.95
        Number of axes k >= 1, or the share in (0, 1) of the variance to retain; with
        ``projection="lda"`` of the variance between classes. With several levels ``n_components``,
        ``vigilance`` and ``max_prototypes`` may be sequences of one value for each level.
    vigilance : float or sequence of float, default=0.5
        Minimum similarity ρ for a row to update a prototype; in [−1, 1] for the cosine, in [0, 1]
        for ``"euclidean"``. Higher values give more prototypes.
    similarity : {"cosine", "euclidean"} or callable, default="cosine"
        Similarity of centred rows along the axes: the cosine, 1 / (1 + distance), or a function of
        rows A (n, k) and B (m, k) that returns (n, m), with a ``vigilance`` in its range. Functions
        are not saved.
    step : {"mean"} or float, default="mean"
        With "mean", prototypes are the means of their rows. A float β in (0, 1] is the fixed
        step towards each row.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How the axes are learned: updated after every ``block`` rows, from the rows of
        each call, from the rows of the first call only, or not at all.
    block : int, optional
        With ``pca="incremental"``, the number of rows between two updates of the axes, >= 1. By
        default twice the number of components, and at least 128.
    max_prototypes : int, None or sequence, default=10000
        Maximum number of prototypes of a node; None for no limit. When it is reached, a row that
        would become a prototype updates the most similar prototype of its class. If its class has
        none, the two most similar prototypes of the largest class are merged. Each class has at
        least one prototype, even beyond the limit.
    levels : int, default=1
        Number of levels, in [1, 16]. With more than one, each level but the last divides the rows
        into clusters, regardless of their labels; each cluster has its own axes and prototypes.
    classes : array-like, optional
        Labels known in advance. New labels may still occur.
    projection : {"pca", "lda"}, default="pca"
        Principal axes, or the at most c − 1 axes of incremental linear discriminant analysis, which
        take O(d²) time per row and memory. Applies to the last level.
    shrinkage : float or "oas", default="oas"
        With ``projection="lda"``, the share in [0, 1] by which the scatter within classes is shrunk
        towards a multiple of the identity, or "oas" for oracle approximating shrinkage. With 0 the
        axes are those of scikit-learn's ``LinearDiscriminantAnalysis(solver="eigen")``.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        Labels seen or given in advance, sorted.
    prototypes_ : ndarray of shape (W, d)
        Prototypes of the last level, in the space of the rows. With one level, in the order in
        which they were added.
    prototype_labels_ : ndarray of shape (W,)
        Label of each prototype.
    prototype_weights_ : ndarray of shape (W,)
        Total weight of the rows averaged in each prototype.
    components_ : ndarray of shape (k, d)
        Axes used to compare rows in the first level; k = 0 while rows are compared without axes.
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
    Memory is O(kd + Wd), and O(kd) more for each cluster of the upper levels.

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

    _: KW_ONLY
    classes: Collection[object] | None = None
    projection: str = param("pca", choices=_PROJECTIONS)
    shrinkage: float | str = param("oas", choices=("oas",), low=0.0, high=1.0)

    @property
    def prototype_labels_(self) -> Array:
        """The label of each prototype, (W,)."""
        labels: Array = self.classes_[self._of_prototypes("labels")]
        return labels

    @public
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
        scores = self._scores(self._matrix(X))
        if task is None:
            return self._to_predictions(scores, None)
        named = validation.class_names(task)
        if not len(named) or not np.isin(named, self.classes_).all():
            raise LabelError(
                f"`task` must contain known classes, of {self.classes_.tolist()}, got "
                f"{task!r}. Leave out `task` to choose among all classes."
            )
        at = np.searchsorted(self.classes_, named)
        return self._to_predictions(
            np.where(np.isin(np.arange(scores.shape[1]), at), scores, -np.inf), None
        )

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        X, labels = X.astype(np.float64, copy=False), Y.argmax(axis=1)
        rows = self._calibrated_rows(len(X))
        matches = self._match_and_update(X, labels, s, rows)
        used = matches.scores[rows]
        if class_mask is not None:
            used = np.where(class_mask[rows], used, -np.inf)
        self.calibration_, _ = calibration.updated(
            self.calibration_, used, labels[rows], None if s is None else s[rows]
        )
        matched, scores = np.flatnonzero(matches.labels >= 0), np.zeros(Y.shape)
        scores[matched, matches.labels[matched]] = 1.0
        return scores

    def _calibrate(self, *rows: object) -> Any:
        """Do nothing: ``_learn`` calibrates, as it alone has the similarities."""

    def _scores(self, X: Floats) -> Floats:
        X, c = X.astype(np.float64, copy=False), len(self.classes_)
        scores = np.empty((len(X), c))
        for rows, _, leaf in self._tree.routed(X, self.similarity):
            scores[rows] = leaf.store.best(leaf.project(X[rows]), self.similarity, c)
        return scores

    def _add_outputs(self, at: Array, c: int) -> None:
        d = np.arange(self.n_features_in_)
        self._tree = self._tree.placed(d, len(d), np.setdiff1d(np.arange(c), at), c)


@dataclass(eq=False, repr=False)
class ARTIPCACluster(BaseARTIPCA, Clusterer):
    """Prototype clustering with incremental principal component analysis.

    Parameters
    ----------
    n_components : int, float or sequence, default=0.95
        Number of principal axes k >= 1, or the share in (0, 1) of the variance to retain. With
        several levels ``n_components``, ``vigilance`` and ``max_prototypes`` may be sequences of
        one value for each level.
    vigilance : float or sequence of float, default=0.5
        Minimum similarity ρ for a row to join a cluster; in [−1, 1] for the cosine, in [0, 1] for
        ``"euclidean"``. Higher values give more clusters.
    similarity : {"cosine", "euclidean"} or callable, default="cosine"
        Similarity of centred rows along the axes: the cosine, 1 / (1 + distance), or a function of
        rows A (n, k) and B (m, k) that returns (n, m), with a ``vigilance`` in its range. Functions
        are not saved.
    step : {"mean"} or float, default="mean"
        With "mean", prototypes are the means of their rows. A float β in (0, 1] is the fixed
        step towards each row.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How the principal axes are learned, as in :class:`onepass.ARTIPCAClassifier`.
    block : int, optional
        With ``pca="incremental"``, the number of rows between two updates of the axes, >= 1. By
        default twice the number of components, and at least 128.
    max_prototypes : int, None or sequence, default=10000
        Maximum number of clusters of a node; None for no limit. When it is reached, every row joins
        the most similar cluster.
    levels : int, default=1
        Number of levels, in [1, 16]. With more than one, the rows of each cluster are divided
        further, along axes of their own.

    Attributes
    ----------
    prototypes_ : ndarray of shape (W, d)
        Prototypes of the last level, in the space of the rows. The index of a prototype is the
        number of its cluster.
    paths_ : ndarray of int of shape (W, levels)
        With several levels, the index of each cluster and of the clusters that contain it, from the
        first level to the last. Clusters with equal first indices belong together.
    prototype_weights_ : ndarray of shape (W,)
        Total weight of the rows averaged in each prototype.
    components_ : ndarray of shape (k, d)
        Axes used to compare rows in the first level; k = 0 while rows are compared without axes.
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

    paths_ = cast("Array", np.zeros((0, 0), dtype=np.intp))

    @public
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
        rows = self._matrix(X).astype(np.float64, copy=False)
        parts = [
            leaf.store.similarities(leaf.project(rows), self.similarity)
            for _, leaf in self._tree.leaves()
        ]
        return np.concatenate(parts, axis=1)[:, self._order]

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, class_mask: Array | None) -> Floats:
        del Y, class_mask
        labels = np.zeros(len(X), dtype=np.intp)
        matches = self._match_and_update(X.astype(np.float64, copy=False), labels, s)
        self._number(matches.assigned)
        return self._numbers(matches.nearest)[:, None]

    def _merge(self, other: Self, layout: Layout) -> None:
        super()._merge(other, layout)
        self._number(self._paths())

    def _paths(self) -> Array:
        """The indices of all clusters, from the first level to the last, (W, levels)."""
        leaves = self._tree.leaves()
        paths = [(*path, i) for path, leaf in leaves for i in range(len(leaf.store))]
        return np.array(paths, dtype=np.intp).reshape(-1, self.levels_)

    def _number(self, paths: Array) -> None:
        """Number the clusters that rows started, in the order of the rows."""
        if self.levels_ > 1:
            known = map(tuple, self.paths_.tolist())
            every = dict.fromkeys((*known, *map(tuple, paths.tolist())))
            self.paths_ = np.array(list(every), dtype=np.intp).reshape(-1, self.levels_)

    def _numbers(self, paths: Array) -> Array:
        """The number of the cluster at each path (n, levels); −1 for none."""
        if self.levels_ == 1:
            return paths[:, 0]
        number = {path: i for i, path in enumerate(map(tuple, self.paths_.tolist()))}
        return np.array([number.get(tuple(path), -1) for path in paths.tolist()], dtype=np.intp)

    @property
    def _sound(self) -> bool:
        """Whether the attributes read from a file are consistent."""
        if not super()._sound or self.levels_ == 1:
            return super()._sound
        return sorted(self._paths().tolist()) == sorted(self.paths_.tolist())

    @property
    def _order(self) -> Array:
        """The position of each cluster, by number, among the prototypes of the tree."""
        return np.argsort(self._numbers(self._paths()))

    def _of_prototypes(self, name: str) -> Array:
        return super()._of_prototypes(name)[self._order]

    def _scores(self, X: Floats) -> Floats:
        X, paths = X.astype(np.float64, copy=False), np.full((len(X), self.levels_), -1)
        if len(self.prototype_store_):
            for rows, path, leaf in self._tree.routed(X, self.similarity):
                near = leaf.store.similarities(leaf.project(X[rows]), self.similarity)
                paths[rows, :-1], paths[rows, -1] = path, near.argmax(axis=1)
        numbers: Floats = self._numbers(paths)[:, None].astype(np.float64)
        return numbers
