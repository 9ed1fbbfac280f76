"""Continual evaluation: learn tasks one after the other, and test on all of them after each.

A learner receives the experiences in order, each row once. Before the first and after each
experience it is tested on the test rows of all tasks. The results form a matrix, from which
:mod:`onepass.evaluate.continual_measures` computes average accuracy, forgetting and transfer. Costs
are reported beside them: bytes, prototypes, time, and rows that were learned again.

=========== =======================================================================================
``class``   tasks bring classes of their own, and a learner chooses among all that it has seen
``task``    the same, but at the test it is given the classes of the task, if it accepts them
``domain``  tasks share their classes, or are regression; nothing is given
=========== =======================================================================================

Cost: what the learners cost, and T + 1 predictions of all test rows.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from onepass.errors import LabelError, ParameterError, RowsRefusedWarning
from onepass.evaluate.continual_jobs import Job, Progress, RunFolder, Setting, described, results
from onepass.evaluate.continual_report import SCENARIOS, ContinualReport
from onepass.evaluate.continual_run import Course, Rules, Run, arriving, is_learner
from onepass.evaluate.metrics import metric_class
from onepass.evaluate.prequential import by_name
from onepass.stream.tasks import ExperienceList, Experiences, experience
from onepass.validation import whole

__all__ = ["continual"]


def _checked_models(models: object) -> dict[str, Any]:
    """The models by name."""
    named = by_name(models)
    wrong = {k: m for k, m in named.items() if not is_learner(m) and not _makes(m)}
    if wrong or not named:
        name, model = next(iter(wrong.items()), ("", None))
        raise ParameterError(
            f"{_WHERE}: `models` must be learners, with `predict` and `partial_fit` or `learn`, or "
            f"functions that make one, got {f'{name!r}: {model!r}' if wrong else 'none'}. Give an "
            "instance, or a function of the seed; a network to a learner, as in "
            "op.nn.ORFit(module)."
        )
    return named


def _makes(model: object) -> bool:
    """Whether it may be a function that makes a learner; a torch module is called with rows."""
    return callable(model) and not hasattr(model, "named_parameters")


def _checked_seeds(seeds: object) -> list[int]:
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


def _checked_source(experiences: object) -> Any:
    """What is gone through: known beforehand, made of a seed, or an iterator."""
    if hasattr(experiences, "test_sets") or callable(experiences):
        return experiences
    if isinstance(experiences, (list, tuple)) and experiences:
        made = [experience(e, f"task {i}", _WHERE) for i, e in enumerate(experiences, 1)]
        return _alike(ExperienceList(made))
    if isinstance(experiences, Iterable) and not isinstance(experiences, (list, tuple, str)):
        return (experience(e, f"task {i}", _WHERE) for i, e in enumerate(experiences, 1))
    raise ParameterError(
        f"{_WHERE}: `experiences` must be op.stream.Experiences, a function of a seed that makes "
        f"them, or experiences one after the other, got {type(experiences).__name__}. Make them "
        "with op.stream.experiences(X, y)."
    )


def _alike(listed: ExperienceList) -> ExperienceList:
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


def _checked_rules(
    known: Experiences | ExperienceList,
    scenario: str | None,
    metric: str | None,
    rules: dict[str, Any],
) -> Rules:
    """What holds for all runs, as the tasks have it."""
    tests = getattr(known, "tests", ()) or getattr(known, "tasks", known)
    test_sets = [test_set.classes for test_set in tests]
    task = "classification" if known.classes else "regression"
    shared = len(set(test_sets)) == 1
    natural = "domain" if shared or task == "regression" else "class"
    wanted = natural if scenario is None else scenario
    if wanted not in SCENARIOS:
        raise ParameterError(
            f"{_WHERE}: `scenario` must be one of {', '.join(SCENARIOS)}, got {scenario!r}. "
            "Choose one, or leave it out."
        )
    if (wanted == "domain") != (natural == "domain") and len(test_sets) > 1:
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


_WHERE = "op.evaluate.continual"


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
    on_progress: Callable[[Progress], object] | None = None,
) -> ContinualReport:
    """Let learners go through tasks one after the other, and report what they know of each.

    Learners that are given stay as they are: copies learn. A learner that cannot go on, because it
    takes no new classes, say, is tested on with what it knew till then, and the table says why.

    Parameters
    ----------
    models : learner or factory, dict of str to these, or sequence of these
        Learners of onepass, of ``op.nn`` and ``baselines``, Pipelines, River's and
        scikit-learn's with ``partial_fit``. A factory makes one for each run, and is given the
        seed if it takes one: ``lambda seed: Pipeline(…)``. Without names a learner is called by
        its class.
    experiences : Experiences, callable, or iterable
        As ``op.stream`` makes them; or what makes them of a seed, such as
        ``partial(op.stream.split_mnist, rows_per_class=2000)``; or a list of Experience, (X, y)
        or (X, y, X_test, y_test). Of an iterator nothing is known beforehand: learners go through
        it together, once, and are tested on what has come. Of a pair (X, y) each fifth row is
        tested and not learned.
    scenario : {"class", "task", "domain"}, optional
        What learners are to say, and are told. By default ``"domain"`` where tasks share their
        classes or answers are numbers, else ``"class"``.
    metric : str, optional
        A name of ``op.evaluate.METRICS``; accuracy, or rmse, by default.
    seeds : int or sequence of int, default=1
        So many from 0 on, or these: of each a run of each model. They go to whatever takes them.
    jobs : int, default=1
        Processes of joblib, each with one thread; 1 for this one alone. Models and experiences are
        sent to them.
    path : path, optional
        A folder in which each run is kept when it is done. If it is there, it is not made again,
        so that an evaluation that was stopped goes on, and more seeds and models can be added.
    batch : int, default=10
        Rows a call of ``learn``: for networks, where a call may be a step.
    block : int, default=1024
        Rows a call of ``partial_fit``; a learner that wants a task as a whole is given it.
    clock : callable, optional
        Seconds from any origin, such as ``time.process_time``: then learners are timed.
    on_progress : callable, optional
        Called with a :class:`Progress` after each experience of each run; with several ``jobs``
        after each run.

    Returns
    -------
    ContinualReport

    Raises
    ------
    ParameterError
        If an argument is not what it should be, scenario and tasks do not go together, there are
        several seeds and nothing that takes one, or ``path`` holds runs of other settings.
    OnepassError
        If no learner can learn anything: what the first of them says of it.

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
    rules = {"batch": whole(batch, "batch", _WHERE, low=1),
             "block": whole(block, "block", _WHERE, low=1), "clock": clock}  # fmt: skip
    processes = whole(jobs, "jobs", _WHERE, low=1)
    chosen = _checked_seeds(seeds)
    source = _checked_source(experiences)
    if not (callable(on_progress) or on_progress is None):
        raise ParameterError(
            f"{_WHERE}: `on_progress` must be a function of a Progress, got {on_progress!r}. Give "
            "one, or leave it out."
        )
    if isinstance(source, Iterable) and not hasattr(source, "test_sets"):
        if len(chosen) > 1 or processes > 1 or path is not None:
            raise ParameterError(
                f"{_WHERE}: an iterator is gone through once, so that `seeds` must be one, `jobs` "
                f"1 and `path` None, got {len(chosen)} seeds, jobs={processes}, path={path}. Give "
                "a list, Experiences, or a function of the seed."
            )
        return _warned(
            _as_they_come(named, source, scenario, metric, rules, chosen[0], on_progress)
        )
    setting = Setting(named, source, Rules("", "", "", batch, block))
    if len(chosen) > 1 and not setting.drawn:
        raise ParameterError(
            f"{_WHERE}: with several `seeds` the experiences or a model must take one, got "
            f"{len(chosen)} seeds and nothing that does: all runs would be the same. Give a "
            "function of the seed, such as functools.partial(op.stream.split_mnist, …)."
        )
    first = setting.source(chosen[0])
    setting = Setting(named, source, _checked_rules(first, scenario, metric, rules))
    outlines = {seed: _outline(setting.source(seed), path is not None) for seed in chosen}
    if len({(len(each.tasks), len(each.experiences)) for each in outlines.values()}) > 1:
        raise ParameterError(
            f"{_WHERE}: `experiences` must be as many with each seed, got "
            f"{ {seed: len(each.experiences) for seed, each in outlines.items()} }. Make as many, "
            "or evaluate the seeds one by one."
        )
    runs = _runs(setting, outlines, processes, path, on_progress)
    names = (_names([each.tasks for each in outlines.values()]),
             _names([each.experiences for each in outlines.values()]))  # fmt: skip
    kind = (setting.rules.scenario, setting.rules.task, setting.rules.metric)
    return _warned(ContinualReport(first.name, *kind, *names, tuple(runs)))


def _warned(report: ContinualReport) -> ContinualReport:
    """The report; one warning names all models that did not learn the labels."""
    failed = [f"{n!r} {'; '.join(s.notes)}" for n, s in report.scores.items() if not s.complete]
    if failed:
        warnings.warn(
            f"{_WHERE}: each model must learn all labels, got {len(failed)} that did not: "
            f"{' '.join(' | '.join(failed).split()).rstrip('.')}. Correct the labels or the model; "
            "until then it is never marked as best.",
            RowsRefusedWarning,
            stacklevel=3,
        )
    return report


@dataclass(frozen=True)
class _Outline:
    """What is known of a stream once it is let go: streams of many seeds are many rows."""

    digest: str
    tasks: tuple[str, ...]
    experiences: tuple[str, ...]


def _outline(known: Experiences | ExperienceList, kept: bool) -> _Outline:  # noqa: FBT001
    learned = getattr(known, "tasks", known)
    tests = getattr(known, "tests", ()) or learned
    names = [tuple(str(task.name) for task in tasks) for tasks in (tests, learned)]
    return _Outline(known.digest if kept else "", *names)


def _runs(
    setting: Setting,
    seeds: Mapping[int, _Outline],
    processes: int,
    path: str | os.PathLike[str] | None,
    on_progress: Callable[[Progress], object] | None,
) -> list[Run]:
    """All runs, those that were kept among them, by model and seed."""
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
        if on_progress is not None:
            on_progress(Progress(job.model, job.seed, i, sum(past.values()), length * len(wanted)))

    failed: dict[Job, Exception] = {}
    for job, run, wrong in results(left, setting, processes, notify):
        if folder is not None and run.rows:
            folder.keep(run, settings[job])
        found[job] = run
        if wrong is not None and not run.rows:
            failed[job] = wrong
    if left and len(failed) == len(left):
        raise failed[left[0]]
    return [found[Job(name, seed)] for name in setting.models for seed in seeds]


def _settings(setting: Setting, job: Job, digest: str) -> dict[str, Any]:
    """What a run that is kept must have been made with."""
    names = ("scenario", "metric", "batch", "block")
    rules = {name: getattr(setting.rules, name) for name in names}
    return {**described(setting.model(job)), "experiences": digest, **rules}


def _names(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The names of tasks or experiences; numbers where the seeds draw their names or order."""
    if len(set(names)) == 1:
        return names[0]
    return tuple(f"task {i}" for i in range(1, len(names[0]) + 1))


def _as_they_come(
    named: dict[str, object],
    source: Any,
    scenario: str | None,
    metric: str | None,
    rules: dict[str, Any],
    seed: int,
    on_progress: Callable[[Progress], object] | None,
) -> ContinualReport:
    """All models through an iterator together."""
    first = next(source, None)
    if first is None:
        raise ParameterError(
            f"{_WHERE}: there must be an experience, got none. Give an iterator that has some."
        )
    listed = ExperienceList([first])
    settled = _checked_rules(
        listed, scenario or "class" if listed.classes else scenario, metric, rules
    )
    setting = Setting(named, listed, settled)
    courses = {n: Course(setting.model(Job(n, seed)), settled, None, repr(n)) for n in named}

    def told(i: int) -> None:
        if on_progress is None:
            return
        for past, name in enumerate(named, (i - 1) * len(named) + 1):
            on_progress(Progress(name, seed, i, past, i * len(named)))

    names = arriving(courses.values(), chain(listed, source), told)
    runs = [course.run(name, seed, range(len(names))) for name, course in courses.items()]
    failed = [course.failed for course in courses.values() if course.adapter.rows == 0]
    if len(failed) == len(courses) and failed[0] is not None:
        raise failed[0]
    kind = (settled.scenario, settled.task, settled.metric)
    return ContinualReport("experiences", *kind, tuple(names), tuple(names), tuple(runs))
