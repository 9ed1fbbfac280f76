"""Discriminant posterior: priors of classes, and what a density makes of them."""

from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import Floats, LabelError, ParameterError
from onepass.learners.class_learner import UNSEEN, ClassLearner

__all__ = ["Posterior"]


class Posterior(ClassLearner):
    """A classifier whose scores are logarithms of densities, but for what all classes share."""

    _square = True
    priors: Any

    @property
    def priors_(self) -> Floats:
        """π_k, (c,); 0 of a class that has no rows."""
        mass = self._learned().means.mass
        shares: Floats = np.where(mass > 0.0, np.exp(self._log_priors(mass)), 0.0)
        return shares

    def decision_function(self, X: Any) -> Floats:
        """Scores of the classes: shape (n, c), or (n,) for two classes.

        The logarithm of density and prior, but for what all classes share; for two classes the
        second's less the first's, which is the logarithm of the ratio of their probabilities.
        """
        return super().decision_function(X)

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities of the classes, shape (n, c); −inf without rows.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        scores = self._scores(self._matrix(X, "predict_log_proba"))
        if not scores.shape[1]:
            return scores
        apart = scores - scores.max(axis=1, keepdims=True)
        said: Floats = apart - np.log(np.exp(apart).sum(axis=1, keepdims=True))
        return np.where(said <= UNSEEN / 4, -np.inf, said)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, given the row, under the model; shape (n, c).

        Parameters
        ----------
        X : array-like of shape (n, d)

        Raises
        ------
        NotFittedError
            Before anything was learned.
        """
        said: Floats = np.exp(self.predict_log_proba(X))
        return said

    def _checked(self, c: int) -> None:
        who = type(self).__name__
        if self.priors is None or (isinstance(self.priors, str) and self.priors == "uniform"):
            return
        named = validation.class_names(self.classes, who)
        if not _positive(self.priors, len(named)):
            raise ParameterError(
                f"{who}: `priors` must be 'uniform' or a number > 0 for each of `classes`, in "
                f"their order, got {self.priors!r} for {len(named)} classes. Construct the "
                "learner with classes=[...] and a prior for each."
            )
        if c > len(named):
            raise LabelError(
                f"{who}: `y` must hold classes that have a prior, {named.tolist()}, got another. "
                "Name it in `classes` and `priors`, or let priors be the classes' shares."
            )

    def _log_priors(self, mass: Floats) -> Floats:
        """Logarithms of π_k, (c,); 0 of a class without rows."""
        if self.priors is None:
            shares = mass
        elif isinstance(self.priors, str):
            shares = (mass > 0.0).astype(np.float64)
        else:
            named = validation.labels(self.classes, len(mass), type(self).__name__, what="classes")
            shares = np.asarray(self.priors, dtype=np.float64)[np.argsort(named)]
        total = shares.sum()
        return np.log(np.where(shares > 0.0, shares, 1.0) / (total if total > 0.0 else 1.0))


def _positive(priors: Any, c: int) -> bool:
    """Whether these are c numbers > 0."""
    try:
        given = np.asarray(priors)
    except ValueError:  # of lists of different lengths
        return False
    if given.shape != (c,) or given.dtype.kind not in "iuf":
        return False
    return bool(((given > 0.0) & np.isfinite(given)).all())
