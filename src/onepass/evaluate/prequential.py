"""Prequential evaluation: test on each row, then train on it.

For t = 1, 2, … n the learner predicts ŷₜ from xₜ, receives yₜ, incurs the loss ℓ(ŷₜ, yₜ) and learns
the row [1]. The mean loss of that sequence is an honest estimate of the error on unseen rows
without a holdout set [2], and Σℓ is the quantity that regret bounds are about. All models and
baselines go through the stream together, in one pass.

Cost: what the models cost, and O(points) memory; O(window) more where a window is set.

[1] "Online Learning", lecture notes: steps 0-5, equations (1) and (2).
[2] A. P. Dawid, "Statistical theory: the prequential approach", JRSS A 147, 1984;
    J. Gama, R. Sebastião, P. P. Rodrigues, "On evaluating stream learning algorithms", Machine
    Learning 90, 2013 (windows).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from sklearn.base import is_classifier, is_regressor

from onepass.errors import ParameterError
from onepass.evaluate.blocks import Block
from onepass.evaluate.curves import Ledger
from onepass.evaluate.delay import Room
from onepass.evaluate.drift import Detector, watch
from onepass.evaluate.metrics import metric_class
from onepass.evaluate.naive import LastLabel, LastValue, Majority, RunningMean
from onepass.evaluate.report import Report
from onepass.evaluate.resume import Bookmark, starting, through
from onepass.evaluate.run import Course, Model
from onepass.types import Array
from onepass.validation import whole

__all__ = ["by_name", "named", "prequential"]


_BASELINES: dict[str, dict[str, type]] = {
    "regression": {"last value": LastValue, "running mean": RunningMean},
    "classification": {"last label": LastLabel, "majority": Majority},
}


def by_name(models: object) -> dict[str, Any]:
    """Models by name; without names by that of their class, numbered from the second on.

    Parameters
    ----------
    models : mapping, sequence or a single model
    """
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    found: dict[str, Any] = {}
    for model in models if isinstance(models, (list, tuple)) else [models]:
        name = kind = getattr(model, "__name__", type(model).__name__)
        i = 2
        while name in found:
            name, i = f"{kind} {i}", i + 1
        found[name] = model
    return found


def named(
    models: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model], where: str
) -> dict[str, Model]:
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
    named = by_name(models)
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


def _joined(models: dict[str, Model], least: dict[str, Model], where: str) -> dict[str, Model]:
    """The models, then the baselines."""
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


def _task_of_models(models: dict[str, Model], where: str) -> str | None:
    """What the models do: "regression", "classification", or None where none of them says."""
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


_WHERE = "op.evaluate.prequential"
_METRICS = {"regression": ("mae", "rmse", "r2"), "classification": ("accuracy", "macro_f1")}


def prequential(
    models: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model],
    stream: Iterable[object],
    metrics: str | Sequence[str] | None = None,
    *,
    baselines: bool = True,
    window: int | None = None,
    points: int = 200,
    delay: int = 0,
    delay_until: str | None = None,
    max_waiting: int = 100_000,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    resume: bool = False,
    next_source: bool = False,
    drift: Detector | Mapping[str, Detector] | None = None,
    clock: Callable[[], float] | None = None,
    on_progress: Callable[[int], object] | None = None,
    on_block: Callable[[Block, dict[str, Array]], object] | None = None,
) -> Report:
    """Let models say each row's answer just before they learn it, and report how right they were.

    The models are trained in place: afterwards they have learned the stream. The pass may be ended
    with Ctrl-C: the block that was begun is learned by all models, and the report says
    ``interrupted``. With a checkpoint it can be resumed, as if it had not been broken.

    Answers may come later than their rows. Then a row is said as it comes, counted, and waits; it
    is learned just before the first later row that comes when its answer is known. What still
    waits when the stream ends is learned then, and is not learned after an interrupt.

    Parameters
    ----------
    models : dict of str to learner, learner, or sequence of learners
        Without names a learner is called by its class. All classify, or all regress.
    stream : Stream, iterable of blocks, or tuple (X, y)
        As from ``op.stream``; a block has ``X`` and ``y``, and may have ``time`` and ``skipped``.
    metrics : str or sequence of str, optional
        Names from ``op.evaluate.METRICS``; mae, rmse and r2, or accuracy and macro_f1, by default.
    baselines : bool
        Whether the last answer, and the mean or the majority of all so far, take part.
    window : int, optional
        Have the metrics also over exactly the last ``window`` rows: at the end, and as a curve
        with four points or fewer a window, from the first full window on.
    points : int
        Most points of a curve, at least 2. The curve's stride doubles as the stream grows.
    delay : int
        How many rows later an answer is known: the row before which it is learned. 0 and 1 are the
        same, the next row.
    delay_until : str, optional
        In place of ``delay``: the column that says when a row's answer is known, in numbers or
        dates as the stream's times are, which must not fall. It is no feature.
    max_waiting : int
        Most rows that may wait for their answers; they are kept in memory.
    checkpoint : path, optional
        Keep in this file where the pass stands: the models, all that was counted, the rows that
        wait and the place in the source. It is written whole or not at all, now and then, when
        the pass ends or is interrupted, and when the stream raises an error.
    every : float
        Seconds of ``clock`` between two checkpoints, at least; 0 for one after each block. Without
        a clock there is one at the end alone.
    resume : bool
        Go on from the checkpoint, if there is one. Models, metrics and the other arguments must be
        those with which the pass was begun, and so must the stream, from its first row on; it may
        have grown at its end. A stream of ``op.stream`` is compared with the one that was begun
        and goes to the place by itself; other blocks are passed over, and taken at their word.
    next_source : bool
        With ``resume``: the stream is another that begins where the last one ended, such as the
        next file of a log. If it is the last one after all, it is gone on with.
    drift : detector, or dict of str to detector, optional
        Detectors of drift, such as ``river.drift.ADWIN()``: anything with ``update(x)`` and
        ``drift_detected``. Each model (but no baseline) has a copy of each, told of its error in
        each row: the absolute error of a regressor, 1 or 0 of a classifier for a wrong or right
        label. Alarms are in the report. They cannot be resumed.
    clock : callable, optional
        Seconds from any origin, such as ``time.perf_counter``: then each model is timed.
    on_progress : callable, optional
        Called with the number of rows learned, after each block.
    on_block : callable, optional
        Called after each block with the block and a dict of model to what it said of the rows.

    Returns
    -------
    Report

    Raises
    ------
    ParameterError
        If a metric is unknown, the models do not all do the same task, the stream has no answers,
        or more rows wait for theirs than may; if a detector of drift is none, is of another task,
        or would be resumed.
    CheckpointError
        If a checkpoint is damaged or of another pass, or a model cannot be saved: nothing was
        learned. Or, on the way, if another pass writes the same file. One that cannot be *written*
        is warned of (CheckpointWarning), and tried again.
    OnepassError
        If a model refuses a block: the message says which and where. That model is as it was
        before the block; those before it have learned the block, those after it have not.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.evaluate import LastValue
    >>> rows = np.arange(6.0)
    >>> report = prequential(LastValue(), (rows[:, None], rows), baselines=False)
    >>> round(report.scores["LastValue"].overall["mae"], 4)
    0.8333
    """
    asked, learners = _asked(metrics), named(models, _WHERE)
    width = None if window is None else whole(window, "window", _WHERE, low=1)
    most = whole(points, "points", _WHERE, low=2)
    room = _room(delay, delay_until, max_waiting)
    mark = _bookmark(checkpoint, stream, every, clock, resume=resume, next_source=next_source)
    task = _task_of_models(learners, _WHERE)
    begun = mark.open(next_source=next_source) if mark is not None and resume else None
    start = getattr(stream, "start", 0) if mark is None else mark.start
    with starting(stream, start, _WHERE) as rows:
        task, source = _task(task or begun, rows)
        least = {name: kind() for name, kind in _BASELINES[task].items()} if baselines else {}
        kinds = {
            name: metric_class(name, task, f"{_WHERE}: `metrics`")
            for name in asked or _METRICS[task]
        }
        everyone = _joined(learners, least, _WHERE)
        course = Course(everyone, Ledger.start(everyone, kinds, width, most), room, clock, _WHERE)
        course.watch = watch(drift, learners, task, _WHERE, resumed=resume)
        setup = {"task": task, "window": width, "delay": delay_until or max(int(delay), 1)}
        if mark is not None:
            block = getattr(stream, "requested_block", None)
            more = {"baselines": bool(least), "points": most, "block": block}
            mark.begin(course, setup | more | {"metrics": list(kinds)})
        interrupted = through(source, course, mark, on_progress, on_block)
    name, answers = _named(stream)
    said = setup | {
        "source": name,
        "target": answers,
        "metrics": tuple(kinds),
        "interrupted": interrupted,
        "resumed": [] if mark is None else mark.resumed,
        "delay": None if room is None else setup["delay"],
        "waiting": 0 if room is None else len(room),
    }
    return course.report(said, set(least))


def _room(delay: object, until: str | None, most: object) -> Room | None:
    """Where rows wait for their answers, if they come later than before the next row."""
    rows = whole(delay, "delay", _WHERE, low=0)
    limit = whole(most, "max_waiting", _WHERE, low=1)
    if until is not None and (rows or not isinstance(until, str)):
        raise ParameterError(
            f"{_WHERE}: `delay_until` must be the name of a column, without a `delay`, got "
            f"{until!r} and delay={rows}. Say in one way when answers are known."
        )
    if rows > limit:
        raise ParameterError(
            f"{_WHERE}: `delay` must be at most `max_waiting`, {limit:,} rows, got {rows:,}. "
            "Give a higher `max_waiting` if there is memory for them."
        )
    return Room(rows, until, limit, _WHERE) if rows > 1 or until is not None else None


def _bookmark(
    path: str | os.PathLike[str] | None,
    stream: Iterable[object],
    every: float,
    clock: Callable[[], float] | None,
    *,
    resume: bool,
    next_source: bool,
) -> Bookmark | None:
    """Where the pass is kept, if it is."""
    if (resume and path is None) or (next_source and not resume):
        needs, what = (
            ("resume", "next_source") if next_source and not resume else ("checkpoint", "resume")
        )
        raise ParameterError(
            f"{_WHERE}: `{what}` needs `{needs}`, got none. Name the file in which the pass is "
            "kept: checkpoint='m.run', resume=True."
        )
    if not isinstance(every, (int, float)) or not every >= 0:
        raise ParameterError(
            f"{_WHERE}: `every` must be a number of seconds >= 0, got {every!r}. Give 0 for a "
            "checkpoint after each block."
        )
    return None if path is None else Bookmark(path, stream, every, clock, _WHERE)


def _task(known: str | None, source: Iterator[Block]) -> tuple[str, Iterator[Block]]:
    """What the models do, or what the first targets suggest; and all blocks.

    Real numbers are regression, all else is classification.
    """
    if known is not None:
        return known, source
    first = next(source, None)
    if first is None:
        return "regression", source
    task = "regression" if first.y.dtype.kind == "f" else "classification"
    return task, chain([first], source)


def _named(stream: object) -> tuple[str | None, str | None]:
    """The names of a stream and of its answers, as far as it says."""
    target, name = getattr(stream, "target", None), getattr(stream, "name", None)
    names = [target] if isinstance(target, str) else target or []
    return None if name is None else str(name), ", ".join(map(str, names)) or None


def _asked(metrics: object) -> list[str]:
    """The metrics' names; answers that were given in their place are refused."""
    if metrics is None or isinstance(metrics, str):
        return [] if metrics is None else [metrics]
    if not isinstance(metrics, (list, tuple)) or not all(isinstance(m, str) for m in metrics):
        raise ParameterError(
            f"{_WHERE}: `metrics` must be a name or a list of names, such as 'mae', got a "
            f"{type(metrics).__name__}. If these are the answers, give them with their rows, as "
            "one pair: prequential(model, (X, y))."
        )
    return list(metrics)
