"""Continual evaluation: learn tasks in sequence, and test on all tasks after each.

A learner receives the experiences in order, each row once. Before the first and after each
experience it is tested on the test rows of all tasks. The results form a matrix, from which
:mod:`onepass.evaluate.continual_measures` computes average accuracy, forgetting and transfer. Costs
are reported beside them: bytes, prototypes, time, and rows that were learned again.

=========== =======================================================================================
``class``   tasks have disjoint classes; a learner predicts among all classes seen so far
``task``    tasks have disjoint classes; predictions are restricted to the classes of the task
``domain``  tasks share their classes, or are regression
=========== =======================================================================================

Cost: that of the learners, and T + 1 predictions of all test rows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from onepass.errors import LabelError, ParameterError, RowsRefusedWarning, calling
from onepass.evaluate.choice import check_choice
from onepass.evaluate.continual_jobs import (
    Job,
    RunFolder,
    Setting,
    model_settings,
    results,
)
from onepass.evaluate.continual_report import SCENARIOS, ContinualReport
from onepass.evaluate.continual_run import ContinualRun, Rules, Run, is_learner, run_iterator
from onepass.evaluate.metrics import metric_class
from onepass.evaluate.prequential import by_name
from onepass.logs import LOG
from onepass.stream.tasks import ExperienceList, Experiences, experience
from onepass.validation import whole


def _checked_models(models: object) -> dict[str, Any]:
    """Check the models, and return them by name."""
    named = by_name(models)
    invalid = {k: m for k, m in named.items() if not is_learner(m) and not _is_factory(m)}
    if invalid or not named:
        name, model = next(iter(invalid.items()), ("", None))
        raise ParameterError(
            "`models` must be learners, with `predict` and `partial_fit` or `learn`, or functions "
            f"that return one, got {f'{name!r}: {model!r}' if invalid else 'none'}. Pass an "
            "instance, or a function of the seed; wrap a network in a learner, as in "
            "op.nn.ORFit(module)."
        )
    return named


def _is_factory(model: object) -> bool:
    """Return whether an object may be a factory of learners: a callable, but not a module."""
    return callable(model) and not hasattr(model, "named_parameters")


def _checked_seeds(seeds: Any) -> list[int]:
    """Check the seeds, and return each once."""
    if np.ndim(seeds) == 0:
        return list(range(whole(seeds, "seeds", low=1)))
    whole(len(seeds), "seeds", low=1)
    return list(dict.fromkeys(whole(seed, "seeds", low=0) for seed in seeds))


def _checked_source(experiences: object) -> Any:
    """Check the experiences: known in advance, a function of a seed, or an iterator."""
    if hasattr(experiences, "test_sets") or callable(experiences):
        return experiences
    if isinstance(experiences, (list, tuple)) and experiences:
        made = [experience(e, f"task {i}") for i, e in enumerate(experiences, 1)]
        return _check_targets(ExperienceList(made))
    if isinstance(experiences, Iterable) and not isinstance(experiences, (list, tuple, str)):
        return (experience(e, f"task {i}") for i, e in enumerate(experiences, 1))
    raise ParameterError(
        "`experiences` must be op.stream.Experiences, a function of a seed that "
        "returns them, or an iterable of experiences, got "
        f"{type(experiences).__name__}. Create them with op.stream.experiences(X, y)."
    )


def _check_targets(listed: ExperienceList) -> ExperienceList:
    """Check that all targets are numbers, or all labels of one type."""
    kinds = dict.fromkeys(
        "numbers" if not each.classes else "text" if isinstance(each.classes[0], str) else "labels"
        for each in listed
    )
    if len(kinds) > 1:
        raise LabelError(
            f"all `experiences` must have targets of one type, got {' and '.join(kinds)}. Convert "
            "all labels to one type; targets of dtype float are for regression."
        )
    return listed


def _checked_rules(
    tasks: Experiences | ExperienceList,
    scenario: str | None,
    metric: str | None,
    rules: Rules,
) -> Rules:
    """Check scenario and metric for these tasks; return the rules of all runs."""
    test_sets = [test_set.classes for test_set in _tasks(tasks)[0]]
    task = "classification" if tasks.classes else "regression"
    shared = len(set(test_sets)) == 1
    natural = "domain" if shared or task == "regression" else "class"
    wanted = natural if scenario is None else scenario
    check_choice(wanted, SCENARIOS, "`scenario`")
    if (wanted == "domain") != (natural == "domain") and len(test_sets) > 1:
        have = "share their classes" if shared else "have disjoint classes"
        have = "have numbers as targets" if task == "regression" else have
        raise ParameterError(
            f"`scenario` must suit the tasks, got {wanted!r} for tasks that {have}. "
            + ("Omit it." if natural == "domain" else "Create tasks with within=True.")
        )
    measure = metric or ("accuracy" if task == "classification" else "rmse")
    metric_class(measure, task)
    return replace(rules, scenario=wanted, task=task, metric=measure)


_WHERE = "op.evaluate.continual"


@calling("op.evaluate.continual")
def continual(
    models: object,
    experiences: Iterable[object] | Callable[..., object],
    *,
    scenario: str | None = None,
    metric: str | None = None,
    seeds: int | Sequence[int] = 1,
    jobs: int = 1,
    path: str | os.PathLike[str] | None = None,
    batch: int = 10,
    block: int = 1024,
    clock: Callable[[], float] | None = None,
    on_progress: Callable[[int], object] | None = None,
) -> ContinualReport:
    """Evaluate learners on tasks in sequence, with a test on all tasks after each.

    Copies of the learners are trained. If a learner raises an error, for example because it accepts
    no new classes, later tests use its state at that time, and the table contains the reason.

    Parameters
    ----------
    models : learner or factory, dict of str to these, or sequence of these
        Learners of onepass, ``op.nn`` and ``baselines``, Pipelines, and learners of River and
        scikit-learn with ``partial_fit``. A factory is called for each run, with the seed if it has
        a parameter for it: ``lambda seed: Pipeline(…)``. The default name of a learner is its
        class.
    experiences : Experiences, callable, or iterable
        Experiences of ``op.stream``; a function of a seed that returns experiences, such as
        ``partial(op.stream.split_mnist, rows_per_class=2000)``; or a list of Experience, (X, y) or
        (X, y, X_test, y_test). An iterator is consumed once, by all learners together, which are
        tested on the experiences so far. Every fifth row of a pair (X, y) is only used for testing.
    scenario : {"class", "task", "domain"}, optional
        The scenario. By default ``"domain"`` if tasks share their classes or targets are numbers,
        otherwise ``"class"``.
    metric : str, optional
        A name from ``op.evaluate.METRICS``; by default accuracy or rmse.
    seeds : int or sequence of int, default=1
        The seeds, or their number, starting at 0. Each model has one run per seed. The seed is
        passed to functions that have a parameter for it.
    jobs : int, default=1
        Number of joblib processes, each with one thread; 1 to run in this process. For more,
        models and experiences are pickled.
    path : path, optional
        Folder in which each finished run is stored. Stored runs are not repeated, so that an
        interrupted evaluation can be continued, and seeds and models can be added.
    batch : int, default=10
        Number of rows per call of ``learn`` of a network, in which a call may be one step.
    block : int, default=1024
        Number of rows per call of ``partial_fit``, except for learners that need a whole task.
    clock : callable, optional
        Seconds from any origin, such as ``time.process_time``, to time the learners.
    on_progress : callable, optional
        Called with the number of experiences learned in all runs, after each experience of each run
        or, with several ``jobs``, after each run.

    Returns
    -------
    ContinualReport

    Raises
    ------
    ParameterError
        If an argument is invalid, the scenario does not suit the tasks, there are several seeds but
        no function has a parameter for them, or ``path`` contains runs with other settings.
    OnepassError
        The error of the first learner, if no learner can learn any row.

    Warns
    -----
    RowsRefusedWarning
        Once, if learners stopped or predicted no label correctly. They are never marked as best.

    Examples
    --------
    >>> import onepass as op
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> tasks = op.stream.experiences(X, y)  # 0 and 1, then 2 and 3, …
    >>> report = op.evaluate.continual(op.ARTIPCAClassifier(vigilance=0.8), tasks)
    >>> bool(report.average_accuracy > 0.9), report.accuracy_matrix.shape
    (True, (5, 5))
    """
    named = _checked_models(models)
    rules = Rules(whole(batch, "batch", low=1), whole(block, "block", low=1), clock)
    processes = whole(jobs, "jobs", low=1)
    chosen = _checked_seeds(seeds)
    source = _checked_source(experiences)
    if isinstance(source, Iterable) and not hasattr(source, "test_sets"):
        if len(chosen) > 1 or processes > 1 or path is not None:
            raise ParameterError(
                "an iterator can be consumed only once, which requires one seed, "
                f"`jobs` 1 and `path` None, got {len(chosen)} seeds, jobs={processes}, "
                f"path={path}. Pass a list, Experiences, or a function of the seed."
            )
        return _warn_incomplete(
            _evaluate_iterator(named, source, scenario, metric, rules, chosen[0], on_progress)
        )
    setting = Setting(named, source, rules)
    if len(chosen) > 1 and not setting.drawn:
        raise ParameterError(
            "with several `seeds` the experiences or a model must be functions of a seed, got "
            f"{len(chosen)} seeds and no such function: all runs would be equal. Pass a function, "
            "such as functools.partial(op.stream.split_mnist, …)."
        )
    first = setting.source(chosen[0])
    setting = replace(setting, rules=_checked_rules(first, scenario, metric, rules))
    outlines = {seed: _outline(setting.source(seed), stored=path is not None) for seed in chosen}
    if len({(len(each.tasks), len(each.experiences)) for each in outlines.values()}) > 1:
        raise ParameterError(
            "`experiences` must have equal length for all seeds, got "
            f"{ {seed: len(each.experiences) for seed, each in outlines.items()} }. "
            "Create equally many, or evaluate each seed separately."
        )
    runs = _runs(setting, outlines, processes, path, on_progress)
    names = (_names([each.tasks for each in outlines.values()]),
             _names([each.experiences for each in outlines.values()]))  # fmt: skip
    kind = (setting.rules.scenario, setting.rules.task, setting.rules.metric)
    return _warn_incomplete(ContinualReport(first.name, *kind, *names, tuple(runs)))


def _warn_incomplete(report: ContinualReport) -> ContinualReport:
    """Return the report; issue one warning if models did not learn the labels."""
    failed = [f"{n!r} {'; '.join(s.notes)}" for n, s in report.scores.items() if not s.complete]
    if failed:
        warnings.warn(
            f"{_WHERE}: each model must learn all labels, got {len(failed)} that did not: "
            f"{' '.join(' | '.join(failed).split()).rstrip('.')}. Correct the labels or the model; "
            "until then it is never marked as best.",
            RowsRefusedWarning,
            stacklevel=4,
        )
    return report


@dataclass(frozen=True)
class _Outline:
    """Names and digest of the tasks for one seed, without rows."""

    digest: str
    tasks: tuple[str, ...]
    experiences: tuple[str, ...]


def _outline(source: Experiences | ExperienceList, *, stored: bool) -> _Outline:
    names = [tuple(str(task.name) for task in tasks) for tasks in _tasks(source)]
    return _Outline(source.digest if stored else "", *names)


def _tasks(source: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the tasks that are tested, and the experiences that are learned, without rows."""
    learned = getattr(source, "tasks", source)
    return getattr(source, "tests", ()) or learned, learned


def _runs(
    setting: Setting,
    seeds: Mapping[int, _Outline],
    processes: int,
    path: str | os.PathLike[str] | None,
    on_progress: Callable[[int], object] | None,
) -> list[Run]:
    """Return all runs, including stored runs, ordered by model and seed."""
    folder = None if path is None else RunFolder(path)
    found: dict[Job, Run] = {}
    settings: dict[Job, dict[str, Any]] = {}
    wanted = [Job(name, seed) for seed in seeds for name in setting.models]
    if folder is not None:
        for job in wanted:
            outline = seeds[job.seed]
            settings[job] = _settings(setting, job, outline.digest)
            size = (len(outline.experiences), len(outline.tasks))
            stored = folder.find(job.model, job.seed, settings[job], size)
            if stored is not None:
                found[job] = stored
    left = [job for job in wanted if job not in found]
    length = len(next(iter(seeds.values())).experiences)
    past = dict.fromkeys(found, length)

    def notify(job: Job, i: int) -> None:
        past[job] = i
        LOG.info("%s: %s, seed %s: %d experiences", _WHERE, job.model, job.seed, i)
        if on_progress is not None:
            on_progress(sum(past.values()))

    failed: dict[Job, Exception] = {}
    for job, run, error in results(left, setting, processes, notify):
        if folder is not None and run.rows:
            folder.write(run, settings[job])
        found[job] = run
        if error is not None and not run.rows:
            failed[job] = error
    if left and len(failed) == len(left):
        raise failed[left[0]]
    return [found[Job(name, seed)] for name in setting.models for seed in seeds]


def _settings(setting: Setting, job: Job, digest: str) -> dict[str, Any]:
    """Return the settings that a stored run must have."""
    names = ("scenario", "metric", "batch", "block")
    rules = {name: getattr(setting.rules, name) for name in names}
    return {**model_settings(setting.model(job)), "experiences": digest, **rules}


def _names(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of tasks or experiences; numbers if names differ between seeds."""
    if len(set(names)) == 1:
        return names[0]
    return tuple(f"task {i}" for i in range(1, len(names[0]) + 1))


def _evaluate_iterator(
    named: dict[str, object],
    source: Any,
    scenario: str | None,
    metric: str | None,
    rules: Rules,
    seed: int,
    on_progress: Callable[[int], object] | None,
) -> ContinualReport:
    """Evaluate all models on an iterator of experiences."""
    first = next(source, None)
    if first is None:
        raise ParameterError(
            "there must be an experience, got an empty iterator. Pass a new iterator."
        )
    listed = ExperienceList([first])
    final = _checked_rules(
        listed, scenario or "class" if listed.classes else scenario, metric, rules
    )
    setting = Setting(named, listed, final)
    models = {n: ContinualRun(setting.model(Job(n, seed)), final, None, repr(n)) for n in named}

    def notify(i: int) -> None:
        if on_progress is not None:
            on_progress(i * len(named))

    names = run_iterator(models.values(), chain(listed, source), notify)
    runs = [run.result(name, seed, range(len(names))) for name, run in models.items()]
    failed = [run.failed for run in models.values() if run.adapter.rows == 0]
    if len(failed) == len(models) and failed[0] is not None:
        raise failed[0]
    kind = (final.scenario, final.task, final.metric)
    return ContinualReport("experiences", *kind, tuple(names), tuple(names), tuple(runs))
