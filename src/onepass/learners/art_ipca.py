"""ART-IPCA: prototypes, matched along the principal axes of the rows so far.

Adaptive resonance: a row moves the most similar prototype if that is similar enough and of its
class, and else becomes a prototype ([1] Algorithm 1). What was learned of other regions is not
touched, so that new classes do not make old ones forgotten, and no row is kept. Prototypes stand
in the space of the rows and are compared along the top k principal axes, which may turn while rows
come: then all prototypes are seen along the new ones. How axes are learned is ``pca``:

=============== ==================================================================================
``incremental`` from rows as they come, after each ``block`` rows ([1] without tasks)
``task``        from all rows of a call of ``partial_fit`` before their prototypes, as [1] does
``static``      from the rows of the first call, or of ``learn_axes``, and then no more
``none``        no axes: rows are compared as they are, and not centred
=============== ==================================================================================

Without labels (:class:`ARTIPCACluster`) all rows have one label, and a row that is not similar
enough to any prototype founds a cluster of its own.

A prediction is the class of the most similar prototype. With W prototypes a row takes O(Wk + kd)
time to match, and all prototypes O(Wkd) whenever the axes turn; memory is O(kd + Wd). Answering
takes O(kd + Wk) of both ([1] A.2).

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

import copy
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onepass import linalg, validation
from onepass.errors import LabelError, NotFittedError, NumericalError, ParameterError
from onepass.learners.estimator import Classifier, Clusterer, Layout
from onepass.learners.prototypes import WAYS, Prototypes, Rules, along, as_rows, checked_rules, met
from onepass.linalg.pca import IncrementalPCAState, checked_components, rows_between
from onepass.types import Array, Floats
from onepass.validation.table import TableLike

__all__ = ["ARTIPCAClassifier", "ARTIPCACluster", "Resonance"]


_LARGEST = 1e150  # squares of larger numbers overflow
_MOST = 1e150  # weights together; more, times squares, overflow


class Resonance:
    """Stands before :class:`~onepass.learners.estimator.Classifier` among a class's bases."""

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
    way_: str

    _merge_parameters: ClassVar[tuple[str, ...]] = ("similarity", "step", "pca")

    @property
    def by_task(self) -> bool:
        """Whether a call of ``partial_fit`` is a task, and should have all of its rows."""
        return self.pca == "task"

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
        if self.axes_ is None or as_rows(self.axes_, self.way_):
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

    def learn_axes(self, X: TableLike) -> Self:
        """Learn the axes from these rows, as one batch, and no prototypes.

        Parameters
        ----------
        X : array-like of shape (n, d)
            With ``pca="static"`` they are the axes from then on. ``fit`` forgets them, as it
            does all that was learned: go on with ``partial_fit``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            With ``pca="none"``, or of a compact learner.
        """
        where = f"{type(self).__name__}.learn_axes"
        if self.pca == "none":
            raise ParameterError(
                f"{where}: `pca` must be a way of learning axes, got 'none'. Construct the learner "
                "with pca='static' to learn them beforehand."
            )
        if getattr(self, "compact_", False):
            self._refuse_compact("learn axes")
        learner: Any = self
        with learner._whole():  # noqa: SLF001  its own
            array, names = validation.matrix(X, where, **learner._shape())  # noqa: SLF001
            learner._set_features(array.shape[1], names)  # noqa: SLF001
            self._rules()
            axes = getattr(self, "axes_", None) or self._axes(array.shape[1])
            axes = axes if len(axes.mean) == array.shape[1] else axes.grown(array.shape[1])
            self._turn(self._after(axes.joined, array.astype(np.float64, copy=False), None))
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
        axes = getattr(self, "axes_", None)  # of learn_axes
        if axes is None and self.pca != "none":
            axes = self._axes(d)
        elif axes is not None and len(axes.mean) < d:
            axes = axes.grown(d)
        self.stock_, self.compact_, self.way_ = Prototypes.start(d), False, self.pca
        self._turn(axes)

    def _resonated(self, X: Floats, labels: Array, s: Floats | None) -> Array:
        """Learn rows; return label and number of what each met, −1 where nothing stood."""
        self._refuse_compact("learn")
        rules, weights = self._rules(), np.ones(len(X)) if s is None else s
        if s is not None and not s.sum() + self.stock_.all("taken").sum() < _MOST:
            raise NumericalError(
                f"{type(self).__name__}: weights of rows must be below {_MOST:g} together, got "
                f"some up to {s.max():.3g}. Divide them by a number."
            )
        if linalg.magnitude(X) > _LARGEST:
            raise NumericalError(
                f"{type(self).__name__}: rows must be small enough to square and sum, below "
                f"{_LARGEST:g}, got values up to {linalg.magnitude(X):.3g}. "
                "Give features in larger units."
            )
        if self.way_ == "task" or (self.way_ == "static" and not self.axes_.mass):
            self._turn(self._after(self.axes_.joined, X, s))
        said = np.full((len(X), 2), -1)
        coming = self.way_ == "incremental"
        cuts = self.axes_.checkpoints(len(X)) if coming else [len(X)]
        begin = 0
        for end in cuts:
            rows = slice(begin, end)
            Z = self._along(X[rows])
            self.stock_, said[rows] = met(
                self.stock_, rules, X[rows], Z, labels[rows], weights[rows]
            )
            if coming:
                axes = self._after(self.axes_.taken, X[rows], weights[rows])
                if axes.view is self.axes_.view:
                    self.axes_ = axes
                else:
                    self._turn(axes)
            begin = end
        return said

    def _merge(self, other: Self, layout: Layout) -> None:
        """Axes of the rows of both; the other's prototypes come as rows of their weights."""
        self._refuse_compact("merge")
        if layout.d > self.n_features_in_:
            self._widen(layout.d)
        if self.axes_ is not None and (self.way_ != "static" or not self.axes_.mass):
            theirs = other.axes_.placed(layout.features, layout.d)
            self._turn(self.axes_.merged(theirs))
        rows = np.zeros((len(other.stock_), layout.d))
        rows[:, layout.features] = other.stock_.all("rows")
        labels = self._labels_of(other, layout.outputs)
        weights = other.stock_.all("taken")
        Z = self._along(rows)
        self.stock_, _ = met(self.stock_, self._rules(), rows, Z, labels, weights)

    def _labels_of(self, other: Self, places: Array) -> Array:
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
        self.stock_ = self.stock_.grown(d)
        self._turn(None if self.axes_ is None else self.axes_.grown(d))

    # -- axes --------------------------------------------------------------------------------------

    def _axes(self, d: int) -> IncrementalPCAState:
        who = type(self).__name__
        k = checked_components(self.n_components, who)
        return IncrementalPCAState.start(d, k, rows_between(self.block, k, d, who))

    def _after(
        self, learn: Callable[..., IncrementalPCAState], X: Floats, s: Floats | None
    ) -> IncrementalPCAState:
        """The axes after rows, if they are numbers."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                axes = learn(X, s)
        except np.linalg.LinAlgError:
            axes = None
        if axes is None or not linalg.finite(axes.mean, np.array([axes.mass, axes.trace])):
            raise NumericalError(
                f"{type(self).__name__}: rows and their weights must be small enough to square and "
                f"sum, got values up to {linalg.magnitude(X):.3g} and weights up to "
                f"{1.0 if s is None else s.max():.3g}. Give both in larger units."
            )
        return axes

    def _turn(self, axes: IncrementalPCAState | None) -> None:
        """Take these axes, and see all prototypes along them, at one stroke."""
        stock = getattr(self, "stock_", None)
        if stock is None:
            self.axes_ = axes
            return
        view = None if axes is None else partial(along, axes, self.way_)
        self.__dict__.update(axes_=axes, stock_=stock.viewed(view))

    def _along(self, X: Floats) -> Floats:
        """Rows as they are compared, (n, k) or (n, d)."""
        return X if self.axes_ is None else along(self.axes_, self.way_, X)

    def _refuse_compact(self, verb: str) -> None:
        if self.compact_:
            raise ParameterError(
                f"{type(self).__name__}: a compact learner cannot {verb}: its prototypes are known "
                "along the axes alone. Go on with the learner that it was made of."
            )

    def _rules(self) -> Rules:
        """The rules of matching, checked."""
        who = type(self).__name__
        if self.pca not in WAYS:
            raise ParameterError(
                f"{who}: `pca` must be one of {', '.join(WAYS)}, got {self.pca!r}. Choose one."
            )
        given = (self.vigilance, self.similarity, self.step, self.max_prototypes)
        return checked_rules(*given, who)

    @property
    def _sound(self) -> bool:
        """Whether what a file says fits together."""
        if not hasattr(self, "stock_"):  # only axes, or nothing
            return getattr(self, "axes_", None) is None or self.axes_._sound  # noqa: SLF001
        stock, axes, d = self.stock_, self.axes_, self.n_features_in_
        if type(stock) is not Prototypes or not stock._sound or type(self.compact_) is not bool:  # noqa: SLF001
            return False
        if stock.all("labels").max(initial=0) >= len(getattr(self, "classes_", (0,))):
            return False
        if self.way_ not in WAYS or (axes is None) != (self.way_ == "none"):
            return False
        widths = {page.rows.shape[1] for page in stock.pages} - ({0} if self.compact_ else set())
        compared = stock.pages[0].along.shape[1]
        if axes is None:
            return widths <= {d} and compared == d
        sound = type(axes) is IncrementalPCAState and axes._sound  # noqa: SLF001
        there = sound and len(axes.mean) == d and widths <= {d}
        return there and compared == (d if as_rows(axes, self.way_) else len(axes.view.lengths))


class ARTIPCAClassifier(Resonance, Classifier):
    """Prototypes of classes, matched along incremental principal axes.

    Parameters
    ----------
    n_components : int or float, default=0.95
        Axes k >= 1, or the share of the variance in (0, 1) that they must have.
    vigilance : float, default=0.5
        ρ: how similar a row must be to move a prototype, in [−1, 1] of cosines and [0, 1] of
        nearness. The higher, the more prototypes.
    similarity : {"cosine", "euclidean"}, default="cosine"
        Of centred rows along the axes: the cosine of their angle, or 1 / (1 + distance).
    step : {"mean"} or float, default="mean"
        Prototypes are means of their rows, or move by this share β in (0, 1] towards each.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How axes are learned.
    block : int, optional
        With ``pca="incremental"``: rows between two turns of the axes, >= 1; twice the
        components, and 128 or more, if not given.
    max_prototypes : int or None, default=10000
        A ceiling on their number, None for none. At it a row that would become a prototype moves
        the most similar one of its class instead; for a class that has none the two most similar
        ones of the class that has most become one. Each class has one, whatever the ceiling.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    prototypes_ : ndarray of shape (W, d)
        In the space of the rows, in the order in which they came.
    prototype_labels_ : ndarray of shape (W,)
    prototype_weights_ : ndarray of shape (W,)
        Rows, by weight, that each took in.
    components_ : ndarray of shape (k, d)
        The axes that rows are compared along, of the last turn; none while they are
        compared as they are.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Notes
    -----
    A row of weight s moves a mean as s rows would. With ``pca="task"`` cutting a stream into
    blocks is telling where its tasks end, and so makes a difference: each call should bring a task,
    and ``learn_one`` brings one of a single row. (``test_then_train`` ends one at rows of weight 0
    too.) With ``pca="static"`` the first call should bring many rows, or ``learn_axes``.

    In ``merge`` the axes become those of the rows of both, but for static ones, which stay.

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
        """The class of each prototype, (W,)."""
        labels: Array = self.classes_[self._stock().all("labels")]
        return labels

    def predict(self, X: TableLike, *, task: Collection[object] | None = None) -> Array:
        """The class of the most similar prototype, for each row of X.

        Parameters
        ----------
        X : array-like of shape (n, d)
        task : array-like, optional
            The classes that the rows can be of, where that is known (the multi-headed setting);
            all, if not given.

        Returns
        -------
        said : ndarray of shape (n,)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        LabelError
            If ``task`` names a class that is not known.
        """
        scores = self._scores(self._matrix(X, "predict"))
        if task is None:
            return self._answers(scores, None)
        where = f"{type(self).__name__}.predict"
        named = validation.class_names(task, where)
        if not len(named) or not np.isin(named, self.classes_).all():
            raise LabelError(
                f"{where}: `task` must name classes that are known, of {self.classes_.tolist()}, "
                f"got {task!r}. Leave it out to choose among all."
            )
        at = np.searchsorted(self.classes_, named)
        return self._answers(
            np.where(np.isin(np.arange(scores.shape[1]), at), scores, -np.inf), None
        )

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del known  # a class has a prototype after its first row, and not before
        labels = Y.argmax(axis=1)
        winners = self._resonated(X.astype(np.float64, copy=False), labels, s)[:, 0]
        said = np.zeros(Y.shape)
        there = winners >= 0
        said[there, winners[there]] = 1.0
        return said

    def _scores(self, X: Floats) -> Floats:
        Z = self._along(X.astype(np.float64, copy=False))
        return self.stock_.best(Z, self.similarity, len(self.classes_))

    def _add_outputs(self, at: Array, c: int) -> None:
        self.stock_ = self.stock_.renamed(np.setdiff1d(np.arange(c), at))


class ARTIPCACluster(Resonance, Clusterer):
    """Clusters as prototypes, matched along incremental principal axes.

    Parameters
    ----------
    n_components : int or float, default=0.95
        Axes k >= 1, or the share of the variance in (0, 1) that they must have.
    vigilance : float, default=0.5
        ρ: how similar a row must be to join a cluster, in [−1, 1] of cosines and [0, 1] of
        nearness. The higher, the more clusters.
    similarity : {"cosine", "euclidean"}, default="cosine"
        Of centred rows along the axes: the cosine of their angle, or 1 / (1 + distance).
    step : {"mean"} or float, default="mean"
        Prototypes are means of their rows, or move by this share β in (0, 1] towards each.
    pca : {"incremental", "task", "static", "none"}, default="incremental"
        How axes are learned, as in :class:`onepass.ARTIPCAClassifier`.
    block : int, optional
        With ``pca="incremental"``: rows between two turns of the axes, >= 1; twice the
        components, and 128 or more, if not given.
    max_prototypes : int or None, default=10000
        A ceiling on their number, None for none. At it every row joins the most similar cluster.

    Attributes
    ----------
    prototypes_ : ndarray of shape (W, d)
        In the space of the rows, in the order in which they came: that is a cluster's number.
    prototype_weights_ : ndarray of shape (W,)
        Rows, by weight, that each took in.
    components_ : ndarray of shape (k, d)
        The axes that rows are compared along, of the last turn; none while they are
        compared as they are.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

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
        """Of the rows of X with all prototypes, shape (n, W).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        rows = self._matrix(X, "similarities").astype(np.float64, copy=False)
        return self.stock_.similarities(self._along(rows), self.similarity)

    def _learn(self, X: Floats, Y: Floats, s: Floats | None, known: Array | None) -> Floats:
        del Y, known
        labels = np.zeros(len(X), dtype=np.intp)
        return self._resonated(X.astype(np.float64, copy=False), labels, s)[:, 1:]

    def _scores(self, X: Floats) -> Floats:
        if not len(self.stock_):
            return np.full((len(X), 1), -1.0)
        near = self.stock_.similarities(
            self._along(X.astype(np.float64, copy=False)), self.similarity
        )
        said: Floats = near.argmax(axis=1)[:, None].astype(np.float64)
        return said
