"""Growing: new features may come at any time."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import ClassVar, Self

import numpy as np

from onepass import validation
from onepass.errors import Array, ParameterError
from onepass.validation.arrays import hold_breadth, warn_of_square

__all__ = ["Growing"]


class Growing(ABC):
    """The verb ``grow``."""

    _square: ClassVar[bool] = False  # whether its state is quadratic in its features
    n_features_in_: int
    feature_names_in_: Array

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Take new features, zero in every row so far; there are d then."""

    @abstractmethod
    def _whole(self) -> AbstractContextManager[None]:
        """All or nothing."""

    @property
    def _begun(self) -> bool:
        """Whether a first row has been seen, and so the sizes are known."""
        return hasattr(self, "rows_seen_")

    def grow(self, d: int) -> Self:
        """Take new features, at the end, as if they had been zero in every row so far.

        Their prior begins anew: with forgetting it has not faded as that of the others has.

        Parameters
        ----------
        d : int
            The number of features from now on, at least as many as before.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If d is smaller than now.
        ShapeError
            If a durable learner may not have so many.
        """
        where = f"{type(self).__name__}.grow"
        d = validation.whole(d, "d", where, low=1)
        now = getattr(self, "n_features_in_", d)
        if d < now:
            raise ParameterError(
                f"{where}: `d` must be >= {now}, the features known now, got {d}. "
                "Features cannot be taken away."
            )
        if d > now:
            hold_breadth(d, type(self).__name__)
            if self._square:
                warn_of_square(d, type(self).__name__, now if self._begun else 0)
            with self._whole():
                if self._begun:
                    self._widen(d)
                self.n_features_in_ = d
                if hasattr(self, "feature_names_in_"):
                    new = [f"x{j}" for j in range(now, d)]
                    self.feature_names_in_ = np.append(self.feature_names_in_, new).astype(object)
        return self
