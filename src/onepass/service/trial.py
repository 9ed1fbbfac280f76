"""Trial: whether a model that is named with its parameters could learn a row at all."""

from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from onepass.errors import OnepassError, ParameterError

__all__ = ["hold_learnable"]

_OF_FEATURES = ("initial_coef", "ridge")  # may be given for each feature; nobody knows how many


def hold_learnable(model: Any) -> None:
    """Refuse parameters with which no row can be learned, such as a forgetting of 2.

    A learner looks at its parameters when its first row comes. So a row is learned by another one
    with the same: who sends rows is not to find out. Whatever is wrong with that row says nothing.

    Parameters
    ----------
    model : Pipeline
        Of :func:`onepass.features.presets.pipelines`; it stays as it is.

    Raises
    ------
    ParameterError
    """
    learner = model.learner
    if any(isinstance(getattr(learner, name, None), (list, np.ndarray)) for name in _OF_FEATURES):
        return
    time = {"time": np.zeros(1)} if getattr(learner, "uses_time", False) else {}
    try:
        clone(model).test_then_train(np.ones((1, 2)), _answer(learner), **time)
    except ParameterError:
        raise
    except OnepassError:
        return
    except (TypeError, ValueError, MemoryError) as wrong:
        raise ParameterError(
            f"{type(learner).__name__}: its parameters must be such that it can learn a row, got: "
            f"{wrong}. Give others."
        ) from wrong


def _answer(learner: Any) -> Any:
    """An answer that it may know."""
    if not is_classifier(learner):
        return np.zeros(1)
    known = getattr(learner, "classes", None)
    return known[:1] if isinstance(known, (list, tuple)) and known else np.zeros(1, dtype=int)
