"""Trial: a model that is named with its parameters, made and tried before it is served."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from onepass import models
from onepass.errors import ParameterError

__all__ = ["named_model"]


def named_model(name: str, task: str, settings: Mapping[str, Any]) -> Any:
    """A new model, with parameters with which rows can be learned.

    A learner looks at its parameters when its first row comes. So a row is learned by another one
    with the same: who sends rows is not to find that no learner can have a forgetting of 2.

    Parameters
    ----------
    name, task, settings
        As :func:`onepass.models.pipelines` takes them.

    Raises
    ------
    ParameterError
        If there is no such model, task or parameter, or none with such a value.
    """
    made = models.pipelines([name], task, settings)[name]
    learner = made.learner
    if getattr(learner, "initial_coef", None) is not None:  # of as many features as nobody knows
        return made
    y = np.zeros(1, dtype=int if is_classifier(learner) else float)
    time = {"time": np.zeros(1)} if getattr(learner, "uses_time", False) else {}
    try:
        clone(made).test_then_train(np.ones((1, 2)), y, **time)
    except (TypeError, MemoryError) as wrong:
        raise ParameterError(f"{name}: its parameters must be such as it can learn with, got: "
                             f"{wrong}. Give others.") from wrong  # fmt: skip
    return made
