"""Linear: what is learned is a matrix of weights and an offset, and an answer is one product.

    f(x) = Wᵀ x + b,   W (d × c),  b (c)                                                 (1)

A classifier has one output a class. Of two classes only the difference of their outputs decides
the answer, so ``coef_`` and ``intercept_`` show that difference, as scikit-learn does:

    x ↦ classes_[1]  where  (W₁ − W₀)ᵀ x + (b₁ − b₀) ≥ 0                                 (2)

Cost: O(dc) a row, O(dc) memory.
"""

from typing import Any

import numpy as np

from onepass.errors import NotFittedError
from onepass.types import Floats

__all__ = ["Linear"]


class Linear:
    """Scores, ``coef_`` and ``intercept_`` of a learner that holds ``weights_`` and ``offset_``.

    Stands before :class:`~onepass.estimator.Regressor` or :class:`~onepass.estimator.Classifier`
    among a class's bases.

    Attributes
    ----------
    weights_ : ndarray of shape (d, c)
        One column an output.
    offset_ : ndarray of shape (c,)
        One number an output; zeros where no intercept is fitted.
    """

    weights_: Floats
    offset_: Floats

    def _scores(self, X: Floats) -> Floats:
        scores: Floats = X @ self.weights_ + self.offset_  # (1)
        return scores

    @property
    def coef_(self) -> Floats:
        """Coefficients: (d,), or (c, d) for several outputs; (1, d) for two classes."""
        shown: Floats = self._shown("coef_")
        return shown

    @property
    def intercept_(self) -> Any:
        """Intercepts: a float, or (c,) for several outputs; (1,) for two classes."""
        shown = self._shown("intercept_")
        return float(shown) if np.ndim(shown) == 0 else shown

    def _shown(self, name: str) -> Any:
        """A copy in scikit-learn's shape: whoever writes into it does not change the learner."""
        if not hasattr(self, "weights_"):
            who = type(self).__name__
            raise NotFittedError(
                f"{who}.{name}: this {who} is not fitted yet: it has learned no row. "
                "Call fit, partial_fit or learn_one first."
            )
        rows = self.weights_.T if name == "coef_" else self.offset_
        if hasattr(self, "classes_"):
            return rows[1:] - rows[:1] if len(rows) == 2 else rows.copy()  # (2)
        return rows[0].copy() if getattr(self, "answer_ndim_", 1) == 1 else rows.copy()
