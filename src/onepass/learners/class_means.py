"""Class means: the class whose rows' running mean is nearest.

It forgets nothing, whatever the order of classes, and is the plainest of what is compared in
continual learning [1]. The score of class k with the mean μ_k is

    (x − m)ᵀ(μ_k − m) − ½ ‖μ_k − m‖²  =  −½ ‖x − μ_k‖² + ½ ‖x − m‖²                        (1)

with m the mean of the means, which makes no difference between classes and saves digits; or the
cosine of x and μ_k. How means are kept: :mod:`onepass.learners.class_moments`.

Cost: O(d) a row that is learned, O(cd) one that is answered, O(cd) memory.

[1] T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification:
    generalizing to new classes at near-zero cost", IEEE TPAMI 35(11), 2013; section 3.2.
"""

from typing import Any, ClassVar

import numpy as np

from onepass.errors import Floats, ParameterError
from onepass.learners.class_learner import ClassLearner
from onepass.learners.class_moments import Kept, Moments

__all__ = ["NearestClassMean"]

_METRICS = ("euclidean", "cosine")


class NearestClassMean(ClassLearner):
    """The class whose rows' mean is nearest.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}, default="euclidean"
        The distance from the mean, or the angle with it, seen from 0.
    classes : array-like, optional
        Labels known beforehand; others may still come.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The labels known, sorted.
    means_ : ndarray of shape (c, d)
        The mean of each class's rows; 0 of a class that was named and has none yet.
    counts_ : ndarray of shape (c,)
        Rows of each class, by weight.
    n_features_in_ : int
    rows_seen_ : int
        Rows learned.

    Raises
    ------
    ParameterError
        When learning begins, if ``metric`` is none of these.
    NumericalError
        If values are too large to be squared; the learner is then as it was before the block.

    Notes
    -----
    ``decision_function`` is (1): minus half the squared distance, but for what all classes share;
    or the cosine.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> order = y[:1200].argsort(kind="stable")  # one class after the other
    >>> model = op.NearestClassMean().partial_fit(X[order], y[order])
    >>> float(round(model.score(X[1200:], y[1200:]), 3))
    0.881
    """

    kept: ClassVar[Kept] = "none"

    def __init__(self, metric: str = "euclidean", *, classes: Any = None) -> None:
        self.metric = metric
        self.classes = classes

    def _checked(self, c: int) -> None:
        del c
        if self.metric not in _METRICS:
            raise ParameterError(
                f"{type(self).__name__}: `metric` must be one of {', '.join(_METRICS)}, got "
                f"{self.metric!r}. Choose one of these."
            )

    def _said(self, moments: Moments, X: Floats) -> Floats:
        if self.metric == "cosine":
            cosines: Floats = _unit(X) @ _unit(moments.means.of_classes).T
            return cosines
        M, Z = moments.means.around(X)
        said: Floats = Z @ M.T - 0.5 * np.einsum("ij,ij->i", M, M)  # (1)
        return said


def _unit(rows: Floats) -> Floats:
    """Rows of length 1, (n, d); those of length 0 as they are."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)  # so that no square overflows
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    said: Floats = rows / np.where(lengths > 0.0, lengths, 1.0)
    return said
