"""Continual given: what a user gives to be evaluated, looked over and brought into one form."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from onepass.errors import LabelError, ParameterError
from onepass.evaluate.continual_course import Rules
from onepass.evaluate.continual_makers import is_learner
from onepass.evaluate.metrics import metric_class
from onepass.stream.tasks import Listed, experience
from onepass.validation import whole

__all__ = ["named", "rules", "seeds", "source"]

_WHERE = "op.evaluate.continual"
_SCENARIOS = ("class", "task", "domain")


def named(models: Any) -> dict[str, Any]:
    """The models by name."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        named = {}
        for model in models if isinstance(models, (list, tuple)) else [models]:
            kind = getattr(model, "__name__", type(model).__name__)
            name, i = kind, 2
            while name in named:
                name, i = f"{kind} {i}", i + 1
            named[name] = model
    wrong = {k: m for k, m in named.items() if not is_learner(m) and not _makes(m)}
    if wrong or not named:
        name, model = next(iter(wrong.items()), ("", None))
        raise ParameterError(
            f"{_WHERE}: `models` must be learners, with `predict` and `partial_fit` or `learn`, or "
            f"functions that make one, got {f'{name!r}: {model!r}' if wrong else 'none'}. Give an "
            "instance, or a function of the seed; a network to a learner, as in "
            "op.nn.ORFit(module) or op.baselines.EWC(module)."
        )
    return named


def _makes(model: Any) -> bool:
    """Whether it may be a function that makes a learner; a torch module is called with rows."""
    return callable(model) and not hasattr(model, "named_parameters")


def seeds(seeds: Any) -> list[int]:
    """The seeds of the runs."""
    if isinstance(seeds, (list, tuple, range, np.ndarray)):
        chosen = [whole(seed, "seeds", _WHERE, low=0) for seed in seeds]
    else:
        chosen = list(range(whole(seeds, "seeds", _WHERE, low=1)))
    if not chosen or len(set(chosen)) < len(chosen):
        raise ParameterError(
            f"{_WHERE}: `seeds` must be a number of seeds, or seeds that differ, got {seeds!r}. "
            "Give 5 for 0, 1, 2, 3, 4."
        )
    return chosen


def source(experiences: Any) -> Any:
    """What is gone through: known beforehand, made of a seed, or an iterator."""
    if hasattr(experiences, "exams") or callable(experiences):
        return experiences
    if isinstance(experiences, (list, tuple)) and experiences:
        made = [experience(e, f"task {i}", _WHERE) for i, e in enumerate(experiences, 1)]
        return _alike(Listed(made))
    if isinstance(experiences, Iterable) and not isinstance(experiences, (list, tuple, str)):
        return (experience(e, f"task {i}", _WHERE) for i, e in enumerate(experiences, 1))
    raise ParameterError(
        f"{_WHERE}: `experiences` must be op.stream.Experiences, a function of a seed that makes "
        f"them, or experiences one after the other, got {type(experiences).__name__}. Make them "
        "with op.stream.experiences(X, y)."
    )


def _alike(listed: Listed) -> Listed:
    """Experiences whose answers are all numbers, or all labels of one kind."""
    kinds = dict.fromkeys(
        "numbers" if not one.classes else "text" if isinstance(one.classes[0], str) else "labels"
        for one in listed
    )
    if len(kinds) > 1:
        raise LabelError(
            f"{_WHERE}: all `experiences` must have answers of one kind, got {' and '.join(kinds)}."
            " Give all labels one type; real numbers (of dtype float) are regression."
        )
    return listed


def rules(known: Any, scenario: Any, metric: Any, rules: dict[str, Any]) -> Rules:
    """What holds for all runs, as the tasks have it."""
    tests = getattr(known, "tests", ()) or getattr(known, "tasks", known)
    exams = [exam.classes for exam in tests]
    task = "classification" if known.classes else "regression"
    shared = len(set(exams)) == 1
    natural = "domain" if shared or task == "regression" else "class"
    wanted = natural if scenario is None else scenario
    if wanted not in _SCENARIOS:
        raise ParameterError(
            f"{_WHERE}: `scenario` must be one of {', '.join(_SCENARIOS)}, got {scenario!r}. "
            "Choose one, or leave it out."
        )
    if (wanted == "domain") != (natural == "domain") and len(exams) > 1:
        have = "share their classes" if shared else "have classes of their own"
        have = "have numbers for answers" if task == "regression" else have
        raise ParameterError(
            f"{_WHERE}: `scenario` must go with the tasks, got {wanted!r} of tasks that {have}. "
            + ("Leave it out." if natural == "domain" else "Make them with within=True for that.")
        )
    if not (callable(rules["clock"]) or rules["clock"] is None):
        raise ParameterError(
            f"{_WHERE}: `clock` must be a function that gives seconds, got {rules['clock']!r}. "
            "Give time.process_time."
        )
    measure = metric or ("accuracy" if task == "classification" else "rmse")
    metric_class(measure, task, _WHERE)
    return Rules(wanted, task, measure, **rules)
