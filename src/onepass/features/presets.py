"""Models: ready pipelines by name, for whoever starts from a table and no code.

The name of a learner is its class's without the task, in small letters: ``rls`` is
:class:`onepass.RLSRegressor` or :class:`onepass.RLSClassifier`. Each is
``Pipeline(Encode(), Impute(), Scale(), learner)``, in which ``Scale`` is passed by where the
learner does not depend on the features' units. Where the defaults of a learner are not made for
tables, of more rows than weights in units that nobody knows beforehand, it starts from others:
``rls`` from a prior of one row's worth, ``orfit`` from noise 1 and an intercept. A learner that is
listed in :mod:`onepass.learners` is offered here; nothing else needs to know of it.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from onepass import learners
from onepass.errors import OnepassError, ParameterError, did_you_mean
from onepass.features import Encode, Impute, Scale
from onepass.features.pipeline import Pipeline

__all__ = ["learner_class", "names", "pipelines"]

_WHERE = "op.models"
_FEATURES = {kind.__name__.lower(): kind for kind in (Encode, Impute, Scale)}
_TASKS = ("regression", "classification")


def names(task: str | None = None) -> list[str]:
    """The names of the models, of one task or of all.

    Parameters
    ----------
    task : {"regression", "classification"}, optional
        By default both.

    Examples
    --------
    >>> len({"perceptron", "artipca"} & set(names("regression")))
    0
    """
    return [name for name, tasks in _known().items() if task is None or _checked(task) in tasks]


def learner_class(name: str, task: str) -> type:
    """The class of a model's learner.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    task : {"regression", "classification"}
        What it is to do.

    Raises
    ------
    ParameterError
        If there is no such model for the task.
    """
    known = _known()
    if _checked(task) in known.get(name, {}):
        return known[name][task]
    there = names(task)
    if name in known:
        came = f"{name!r}, which is for {next(iter(known[name]))}"
        raise ParameterError(
            f"{_WHERE}: a model for {task} must be one of {', '.join(there)}, got {came}. "
            "Choose one of these, or the other task."
        )
    raise ParameterError(
        f"{_WHERE}: a model for {task} must be one of {', '.join(there)}, got {name!r}."
        f"{did_you_mean(name, there) or ' Choose one of these.'}"
    )


def pipelines(
    chosen: Sequence[str], task: str, settings: Mapping[str, object] | None = None
) -> dict[str, Pipeline]:
    """New models, by name.

    Parameters
    ----------
    chosen : sequence of str
        Some of :func:`names`, each once.
    task : {"regression", "classification"}
        What they are to do.
    settings : mapping of str to value, optional
        Parameters that are not to have their default: ``"rls.forgetting"`` of one model's learner,
        ``"encode.max_categories"`` of a feature in all of them.

    Raises
    ------
    ParameterError
        If there is no such model, task or parameter, no row can be learned with the parameters, or
        a model stands there twice.

    Examples
    --------
    >>> from onepass import models
    >>> pair = models.pipelines(["rls", "sgd"], "regression", {"rls.forgetting": 0.99})
    >>> pair["rls"].learner.forgetting
    0.99
    """
    twice = [name for i, name in enumerate(chosen) if name in chosen[:i]]
    if not chosen or twice:
        came = f"{twice[0]!r} twice" if twice else "none"
        raise ParameterError(
            f"{_WHERE}: each model must be named once, got {came}. "
            f"Choose from {', '.join(names(task))}."
        )
    parts = {**{name: learner_class(name, task) for name in chosen}, **_FEATURES}
    given = {part: _for_tables(kind) for part, kind in parts.items()}
    for setting, value in (settings or {}).items():
        part, parameter = _placed(setting, parts)
        given[part][parameter] = value
    made = {
        name: Pipeline(
            *(kind(**given[part]) for part, kind in _FEATURES.items()),
            parts[name](**given[name]),
        )
        for name in chosen
    }
    for model in made.values():
        _check_learnable(model)
    return made


_PER_FEATURE = ("initial_coef", "ridge")  # may have a value for each feature, of which none is here


def _check_learnable(model: Pipeline) -> None:
    """Refuse parameters with which no row can be learned, such as a forgetting of 2.

    A learner checks its parameters when its first row comes, so a copy learns one; what else may be
    wrong with that row does not matter.
    """
    learner = model.learner
    if any(isinstance(getattr(learner, name, None), (list, np.ndarray)) for name in _PER_FEATURE):
        return
    y: Any = np.zeros(1)
    if is_classifier(learner):
        classes = getattr(learner, "classes", None)
        y = classes[:1] if isinstance(classes, (list, tuple)) and classes else y.astype(int)
    time = {"time": np.zeros(1)} if getattr(learner, "uses_time", False) else {}
    try:
        clone(model).test_then_train(np.ones((1, 2)), y, **time)
    except ParameterError:
        raise
    except OnepassError:
        return
    except (TypeError, ValueError, MemoryError) as error:
        raise ParameterError(
            f"{type(learner).__name__}: its parameters must be such that it can learn a row, got: "
            f"{error}. Give others."
        ) from error


def _placed(setting: str, parts: Mapping[str, type]) -> tuple[str, str]:
    """The part and the parameter that a setting such as ``"rls.forgetting"`` is about."""
    part, _, parameter = setting.partition(".")
    if part not in parts or not parameter:
        raise ParameterError(
            f"{_WHERE}: a setting must be one of a part in use, {', '.join(parts)}, such as "
            f"{next(iter(parts))}.<parameter>, got {setting!r}."
            f"{did_you_mean(part, parts) or ' Name the part, a point and the parameter.'}"
        )
    taken = list(inspect.signature(parts[part]).parameters)
    if parameter not in taken:
        raise ParameterError(
            f"{_WHERE}: {part} must be given parameters that it has, {', '.join(taken)}, got "
            f"{parameter!r}.{did_you_mean(parameter, taken) or ' Choose one of these.'}"
        )
    return part, parameter


def _for_tables(kind: type) -> dict[str, Any]:
    """What a model starts from, where its learner's defaults are not made for tables."""
    start = {
        "prior": {"prior": 1.0},  # one row's worth: calm from the first rows, in any units
        "memory": {"noise": 1.0, "fit_intercept": True},  # more rows than weights: average them
    }
    taken = inspect.signature(kind).parameters
    return next((given for name, given in start.items() if name in taken), {})


def _known() -> dict[str, dict[str, type]]:
    """Name -> task -> class of all learners."""
    known: dict[str, dict[str, type]] = {}
    for listed in learners.__all__:
        kind = getattr(learners, listed)
        task = "classification" if is_classifier(kind()) else "regression"
        name = listed.removesuffix("Regressor").removesuffix("Classifier").lower()
        known.setdefault(name, {})[task] = kind
    return known


def _checked(task: str) -> str:
    if task not in _TASKS:
        raise ParameterError(
            f"{_WHERE}: `task` must be {' or '.join(map(repr, _TASKS))}, got {task!r}. "
            "Choose one of the two."
        )
    return task
