"""Who takes part in an evaluation: models by name, the baselines beside them, and their task."""

from collections.abc import Mapping
from typing import Any

from sklearn.base import is_classifier, is_regressor

from onepass.errors import ParameterError
from onepass.evaluate.blocks import Block
from onepass.evaluate.reference import LastLabel, LastValue, Majority, RunningMean

__all__ = ["joined", "named", "references", "task_of_answers", "task_of_models"]

_BASELINES: dict[str, dict[str, type]] = {
    "regression": {"last value": LastValue, "running mean": RunningMean},
    "classification": {"last label": LastLabel, "majority": Majority},
}


def references(task: str) -> dict[str, Any]:
    """New baselines for a task, by name.

    Parameters
    ----------
    task : {"regression", "classification"}
        What the models do.
    """
    return {name: kind() for name, kind in _BASELINES[task].items()}


def named(models: Any, where: str) -> dict[str, Any]:
    """The models by name; each one once.

    Parameters
    ----------
    models : dict of str to learner, learner, or sequence of learners
        Without names a learner is called by its class, numbered from the second on.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If one is no learner, or stands there twice.
    """
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        listed = list(models) if isinstance(models, (list, tuple)) else [models]
        named = {}
        for model in listed:
            kind, i = type(model).__name__, 2
            name = kind
            while name in named:
                name, i = f"{kind} {i}", i + 1
            named[name] = model
    for name, model in named.items():
        if not callable(getattr(model, "test_then_train", None)) or isinstance(model, type):
            raise ParameterError(
                f"{where}: model {name!r} must be a learner with `test_then_train`, got "
                f"{model!r}. Give an instance of a learner or an op.Pipeline that ends in one."
            )
    if len({id(model) for model in named.values()}) < len(named):
        raise ParameterError(
            f"{where}: each model must be given once, got one learner under two names. It would "
            "learn every row twice; use sklearn.base.clone for a second one."
        )
    return named


def joined(models: dict[str, Any], least: dict[str, Any], where: str) -> dict[str, Any]:
    """The models, then the baselines.

    Parameters
    ----------
    models : dict of str to learner
        The user's.
    least : dict of str to learner
        The baselines; may be empty.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If a model has a baseline's name, or there is nothing at all.
    """
    if not models and not least:
        raise ParameterError(
            f"{where}: there must be a model, got none, and baselines=False. "
            "Give at least one learner."
        )
    taken = [name for name in least if name in models]
    if taken:
        raise ParameterError(
            f"{where}: no model may have a baseline's name, got {taken[0]!r}. "
            "Give it another name, or baselines=False."
        )
    return models | least


def task_of_models(models: dict[str, Any], where: str) -> str | None:
    """What the models do: "regression", "classification", or None where none of them says.

    Parameters
    ----------
    models : dict of str to learner
        Asked by scikit-learn's ``is_classifier`` and ``is_regressor``.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If some classify and others regress.
    """
    tasks = {
        name: "classification" if is_classifier(model) else "regression"
        for name, model in models.items()
        if is_classifier(model) or is_regressor(model)
    }
    if len(set(tasks.values())) > 1:
        listed = ", ".join(f"{name}: {task}" for name, task in tasks.items())
        raise ParameterError(
            f"{where}: all models must do one task, got {listed}. "
            "Evaluate classifiers and regressors in passes of their own."
        )
    return next(iter(tasks.values()), None)


def task_of_answers(block: Block | None) -> str:
    """The task that the answers suggest: real numbers are regression, all else classification.

    Parameters
    ----------
    block : Block or None
        The first of the stream, if it has one.
    """
    return "regression" if block is None or block.y.dtype.kind == "f" else "classification"
