"""Predefined pipelines for tables, by name.

The name of a learner is that of its class without the task, in lower case: ``rls`` is
:class:`onepass.RLSRegressor` or :class:`onepass.RLSClassifier`. Each model is ``Pipeline(Encode(),
Impute(), Scale(), learner)``, without ``Impute`` if the learner accepts missing values; it skips
``Scale`` if the learner does not depend on the units of the features. In front of regressors that
depend on the units there is a ``TargetOrigin``. ``mixture`` is a :class:`onepass.Mixture` of
``rls``, ``forest`` and, in a regression with at most 50 features, ``kalman``, behind one
``Encode``; ``random-features`` is ``rls`` after ``Scale(), RandomReLU(100)``. Some defaults are
adapted to tables of more rows than weights in unknown units: ``rls`` has a prior of the weight of
one row and automatic forgetting, ``orfit`` has noise 1 and an intercept. Every learner of
:mod:`onepass.learners` is offered.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from onepass import learners
from onepass.errors import OnepassError, ParameterError, calling, did_you_mean
from onepass.features import Encode, Impute, Lag, RandomReLU, Scale, TargetOrigin
from onepass.features.pipeline import Pipeline
from onepass.learners import RLSClassifier, RLSRegressor
from onepass.learners.mixture import MixtureClassifier, MixtureRegressor

__all__ = ["learner_class", "names", "pipelines"]

_WHERE = "op.models"
_FEATURES = {kind.__name__.lower(): kind for kind in (Encode, Impute, Scale)}
_TASKS = ("regression", "classification")
_MEMBERS = {"rls": None, "forest": None, "kalman": 50}  # of the mixture, up to that many features


def names(task: str | None = None) -> list[str]:
    """Return the names of the models of one task, or of all tasks.

    Parameters
    ----------
    task : {"regression", "classification"}, optional
        Default: both.

    Examples
    --------
    >>> len({"perceptron", "artipca"} & set(names("regression")))
    0
    """
    if task not in {None, *_TASKS}:
        raise ParameterError(
            f"`task` must be {' or '.join(map(repr, _TASKS))}", _WHERE, got=repr(task),
            remedy="Choose one of the two.",
        )  # fmt: skip
    return [name for name, tasks in _all_learners().items() if task is None or task in tasks]


def learner_class(name: str, task: str) -> type:
    """Return the class of the learner of a model.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    task : {"regression", "classification"}
        The task.

    Raises
    ------
    ParameterError
        If there is no such model for the task.
    """
    known, there = _all_learners(), names(task)
    if name in there:
        return known[name][task]
    got, remedy = repr(name), did_you_mean(name, there).strip() or "Choose one of these."
    if name in known:
        got += f", which is for {next(iter(known[name]))}"
        remedy = "Choose one of these, or the other task."
    text = f"a model for {task} must be one of {', '.join(there)}"
    raise ParameterError(text, _WHERE, got=got, remedy=remedy)


def pipelines(
    chosen: Sequence[str],
    task: str,
    settings: Mapping[str, object] | None = None,
    *,
    lags: Sequence[int] = (),
    delay: int = 0,
    target: str = "target",
) -> dict[str, Pipeline]:
    """Create models by name.

    Parameters
    ----------
    chosen : sequence of str
        Some of :func:`names`, each once.
    task : {"regression", "classification"}
        The task.
    settings : mapping of str to value, optional
        Parameters to change: ``"rls__forgetting"`` of the learner of one model,
        ``"encode__max_categories"`` of a transformer in all of them.
    lags : sequence of int, optional
        Lagged targets as features: ``Lag(rows=lags, delay=delay)`` follows ``Encode``. Learners of
        regression whose predictions depend on the units of the features learn the difference.
    delay : int, default=0
        Number of rows after which a target arrives.
    target : str, default="target"
        The name of the target, for its lags.

    Raises
    ------
    ParameterError
        If there is no such model, task or parameter, no row can be learned with the parameters, or
        a model is named twice.

    Examples
    --------
    >>> from onepass import models
    >>> pair = models.pipelines(["rls", "sgd"], "regression", {"rls__forgetting": 0.99})
    >>> pair["rls"].learner.forgetting
    0.99
    """
    twice = [name for i, name in enumerate(chosen) if name in chosen[:i]]
    if not chosen or twice:
        got = f"{twice[0]!r} twice" if twice else "none"
        raise ParameterError(
            f"each model must be named once, got {got}. Choose from {', '.join(names(task))}.",
            _WHERE,
        )
    members = [one for one in _MEMBERS if one in names(task)] if "mixture" in chosen else []
    used = {name: learner_class(name, task) for name in (*chosen, *members)}
    fills = any(not _accepts_missing(kind) for kind in used.values())
    parts = used | {k: v for k, v in _FEATURES.items() if fills or v is not Impute}
    parts |= {"randomrelu": RandomReLU} if "random-features" in chosen else {}
    given = {part: _for_tables(kind) for part, kind in parts.items()}
    if "random-features" in given:
        given["random-features"]["prior"] = None  # that which the pipeline recommends
    for setting, value in (settings or {}).items():
        part, parameter = _split_setting(setting, parts)
        given[part][parameter] = value

    def steps(name: str) -> tuple[list[Any], Any]:
        """The transformers of a model without lags, and its learner."""
        kind = parts[name]
        if name == "mixture":
            pairs = [steps(member) for member in members]
            models = [Pipeline(*some, one) if len(some) > 1 else one for some, one in pairs]
            limits = tuple(_MEMBERS[member] for member in members)
            return [], kind(models=models, max_features=limits, **given[name])
        learner = kind(**given[name])
        first_order = not getattr(learner, "_scale_invariant", False)
        some: list[Any] = [] if _accepts_missing(kind) else [Impute(**given["impute"])]
        some.append(Scale(**given["scale"]))
        if name == "random-features":
            some.append(RandomReLU(**{"width": 100, **given["randomrelu"]}))
        relative = first_order and not lags and task == "regression"
        return some + ([TargetOrigin()] if relative else []), learner

    made = {}
    for name in chosen:
        some, learner = steps(name)
        first_order = not getattr(learner, "_scale_invariant", False)
        lag = [Lag(target, tuple(lags), delay, difference=first_order)] if lags else []
        made[name] = Pipeline(Encode(**given["encode"]), *lag, *some, learner)
    for model in made.values():
        _check_learnable(model)
    return made


def _accepts_missing(kind: Any) -> bool:
    """Whether the learners of a class accept missing values."""
    return bool(kind._accepts_missing)  # noqa: SLF001


_OWN = ("models", "max_features")  # of the mixture
_PER_FEATURE = ("initial_coef", "ridge")  # may have one value for each feature


def _check_learnable(model: Pipeline) -> None:
    """Reject parameters with which no row can be learned, such as a forgetting of 2.

    A learner checks its parameters at its first row, so a copy learns one; other errors about that
    row are ignored.
    """
    learner = model.learner
    if any(isinstance(getattr(learner, name, None), (list, np.ndarray)) for name in _PER_FEATURE):
        return
    y: Any = np.zeros(1)
    if is_classifier(learner):
        classes = getattr(learner, "classes", None)
        y = classes[:1] if isinstance(classes, (list, tuple)) and classes else y.astype(int)
    with calling(type(learner).__name__):
        time = {"time": np.zeros(1)} if getattr(learner, "_uses_time", False) else {}
    try:
        clone(model).test_then_train(np.ones((1, 2)), y, **time)
    except ParameterError:
        raise
    except OnepassError:
        return
    except (TypeError, ValueError, MemoryError) as error:
        raise ParameterError(
            "the parameters must allow the learner to learn a row, got an error: "
            f"{error}. Change the parameters.",
            type(learner).__name__,
        ) from error


def _split_setting(setting: str, parts: Mapping[str, type]) -> tuple[str, str]:
    """Split a setting such as ``"rls__forgetting"`` into part and parameter."""
    part, _, parameter = setting.replace(".", "__", 1).partition("__")  # a dot until 0.1
    if part not in parts or not parameter:
        raise ParameterError(
            f"a setting must belong to a part in use, {', '.join(parts)}, such as "
            f"{next(iter(parts))}__<parameter>, got "
            f"{setting!r}.{did_you_mean(part, parts) or ' Write <part>__<parameter>.'}",
            _WHERE,
        )
    accepted = list(inspect.signature(parts[part]).parameters)
    if part == "mixture" and parameter in _OWN:
        raise ParameterError(
            f"a setting of the mixture must be one of its models, got {parameter!r}. Set "
            f"{', '.join(f'{name}__<parameter>' for name in _MEMBERS)}.",
            _WHERE,
        )
    if parameter not in accepted:
        raise ParameterError(
            f"a setting of {part} must name one of its parameters, {', '.join(accepted)}, got "
            f"{parameter!r}.{did_you_mean(parameter, accepted) or ' Choose one of these.'}",
            _WHERE,
        )
    return part, parameter


def _for_tables(kind: type) -> dict[str, Any]:
    """Return defaults adapted to tables."""
    start: dict[str, dict[str, Any]] = {
        "process_noise": {},
        "potential": {"fit_intercept": True},
        # a prior of one row: stable from the first rows, in any units; most tables drift
        "prior": {"prior": 1.0, "forgetting": "auto"},
        "memory": {"noise": 1.0, "fit_intercept": True},  # more rows than weights: average
        "initial": {"fit_intercept": True},  # the classes of a table are seldom balanced
    }
    accepted = inspect.signature(kind).parameters
    return next((given for name, given in start.items() if name in accepted), {})


def _all_learners() -> dict[str, dict[str, type]]:
    """Return the classes of all learners: name -> task -> class."""
    known: dict[str, dict[str, type]] = {
        "mixture": {"classification": MixtureClassifier, "regression": MixtureRegressor},
        "random-features": {"classification": RLSClassifier, "regression": RLSRegressor},
    }
    for listed in learners.__all__:
        kind = getattr(learners, listed)
        task = "classification" if is_classifier(kind()) else "regression"
        name = listed.removesuffix("Regressor").removesuffix("Classifier")
        name = name.replace("KernelRLS", "KRLS").lower()
        known.setdefault(name, {})[task] = kind
    return known
