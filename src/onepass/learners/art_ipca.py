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

An answer is the class of the most similar prototype. With W prototypes a row takes O(Wk + kd) time
to match, and all prototypes O(Wkd) whenever the axes turn; memory is O(kd + Wd). Answering takes
O(kd + Wk) of both ([1] A.2).

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import Array, Floats, LabelError
from onepass.learners.estimator import Classifier
from onepass.learners.resonance import Resonance

__all__ = ["ARTIPCAClassifier"]


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
        step: Any = "mean",
        pca: str = "incremental",
        block: int | None = None,
        max_prototypes: int | None = 10_000,
        classes: Any = None,
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

    def predict(self, X: Any, *, task: Any = None) -> Array:
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
