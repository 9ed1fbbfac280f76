"""ART-IPCA without labels: clusters, matched along the principal axes of the rows so far.

Algorithm 1 of [1] with one label for all: a row moves the most similar prototype if that is similar
enough, and else founds a cluster of its own. The rest is as in :mod:`onepass.learners.art_ipca`.

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from typing import Any

import numpy as np

from onepass.errors import Array, Floats
from onepass.learners.estimator import Clusterer
from onepass.learners.resonance import Resonance

__all__ = ["ARTIPCACluster"]


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
        step: Any = "mean",
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

    def similarities(self, X: Any) -> Floats:
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
