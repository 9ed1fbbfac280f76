"""Base classes and a decorator of scikit-learn, with types, which it does not declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ClusterMixin",
    "RegressorMixin",
    "TransformerMixin",
    "available_if",
]

if TYPE_CHECKING:
    Method = TypeVar("Method", bound=Callable[..., Any])

    def available_if(check: Callable[[Any], object]) -> Callable[[Method], Method]:
        """Let an object have a method only if a check of the object is true."""

    class BaseEstimator:
        """An object whose parameters are the arguments of its constructor."""

        _metadata_request: Any

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> Any: ...
        def __repr__(self, N_CHAR_MAX: int = 700) -> str: ...

    class TransformerMixin:
        """A transformer."""

        def fit_transform(self, X: Any, y: Any = None) -> Any: ...

    class RegressorMixin:
        """A regressor; its score is R²."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class ClassifierMixin:
        """A classifier; its score is the accuracy."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class ClusterMixin:
        """A clusterer."""

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClusterMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils.metaestimators import available_if
