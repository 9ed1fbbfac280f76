"""Prequential evaluation: test on each row, then train on it.

For t = 1, 2, … n the learner predicts ŷₜ from xₜ, receives yₜ, incurs the loss ℓ(ŷₜ, yₜ) and learns
the row [1]. The mean loss of this sequence estimates the error on unseen rows without a holdout set
[2], and Σℓ is the quantity that regret bounds limit. All models and baselines process the stream
together, in one pass.

Cost: that of the models, O(points) memory, and O(window) memory if a window is set.

[1] "Online Learning", lecture notes: steps 0-5, equations (1) and (2).
[2] A. P. Dawid, "Statistical theory: the prequential approach", JRSS A 147, 1984;
    J. Gama, R. Sebastião, P. P. Rodrigues, "On evaluating stream learning algorithms", Machine
    Learning 90, 2013 (windows).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from sklearn.base import is_classifier, is_regressor

from onepass.errors import ParameterError, calling
from onepass.evaluate.curves import ScoreHistory
from onepass.evaluate.delay import DelayedLabels
from onepass.evaluate.drift import Detector, error_monitor
from onepass.evaluate.metrics import Metric, ProbabilityMetric, metric_class
from onepass.evaluate.naive import LastLabel, LastValue, Majority, RunningMean
from onepass.evaluate.report import Report
from onepass.evaluate.resume import Checkpoint, blocks_from, run_blocks
from onepass.evaluate.run import WHERE, Model, PrequentialRun, learns_gaps
from onepass.logs import LOG
from onepass.types import Array
from onepass.validation import in_range, whole
from onepass.validation.rows import Rows

_BASELINES: dict[str, dict[str, type]] = {
    "regression": {"last value": LastValue, "running mean": RunningMean},
    "classification": {"last label": LastLabel, "majority": Majority},
}


def by_name(models: object) -> dict[str, Any]:
    """Return models by name; the default name is the class, numbered if it is not unique.

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


def checked_models(
    models: Model | list[Model] | tuple[Model, ...] | Mapping[str, Model],
) -> dict[str, Model]:
    """Check the models, and return them by name.

    Parameters
    ----------
    models : dict of str to learner, learner, or sequence of learners
        The default name of a learner is its class, numbered if it is not unique.

    Raises
    ------
    ParameterError
        If a model is not a learner, or occurs twice.
    """
    named = by_name(models)
    for name, model in named.items():
        if not callable(getattr(model, "test_then_train", None)) or isinstance(model, type):
            raise ParameterError(
                f"model {name!r} must be a learner with `test_then_train`, got {model!r}. Pass an "
                "instance of a learner, or an op.Pipeline that ends in one."
            )
    if len({id(model) for model in named.values()}) < len(named):
        raise ParameterError(
            "each model must occur once, got one learner with two names, which would "
            "learn every row twice. Pass sklearn.base.clone(model) as the second one."
        )
    return named


def _with_baselines(models: dict[str, Model], baselines: dict[str, Model]) -> dict[str, Model]:
    """Return the models, then the baselines."""
    if not models and not baselines:
        raise ParameterError(
            "there must be a model, got none and baselines=False. Pass at least one learner."
        )
    reserved = [name for name in baselines if name in models]
    if reserved:
        raise ParameterError(
            f"models must not have the name of a baseline, got {reserved[0]!r}. Rename "
            "the model, or set baselines=False."
        )
    return models | baselines


def _task_of_models(models: dict[str, Model]) -> str | None:
    """Return the task of the models, or None if no model declares it."""
    tasks = {
        name: "classification" if is_classifier(model) else "regression"
        for name, model in models.items()
        if is_classifier(model) or is_regressor(model)
    }
    if len(set(tasks.values())) > 1:
        listed = ", ".join(f"{name}: {task}" for name, task in tasks.items())
        raise ParameterError(
            f"all models must have the same task, got {listed}. Evaluate classifiers "
            "and regressors separately."
        )
    return next(iter(tasks.values()), None)


def _check_probabilities(models: Mapping[str, Any], metrics: Mapping[str, type[Metric]]) -> None:
    """Raise an error if a metric needs probabilities and a model has none."""
    needs = [name for name, kind in metrics.items() if issubclass(kind, ProbabilityMetric)]
    lacks = [name for name, model in models.items() if not hasattr(model, "predict_proba")]
    if needs and lacks:
        raise ParameterError(
            f"for the metric {needs[0]!r} all models must have `predict_proba`, got {lacks[0]!r}, "
            "which has none. Leave out the metric, or evaluate this model alone."
        )


_METRICS = {"regression": ("mae", "rmse", "r2"), "classification": ("accuracy", "macro_f1")}


@calling(WHERE)
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
    on_block: Callable[[Rows, dict[str, Array]], object] | None = None,
) -> Report:
    """Evaluate models prequentially: each row of a stream is predicted before it is learned.

    The models are trained in place. Ctrl-C ends the run after all models have learned the current
    block, and the report is marked ``interrupted``. A run with a checkpoint can be resumed; the
    result equals that of an uninterrupted run.

    Targets may arrive later than their rows. Such a row is predicted and scored when it arrives,
    and learned just before the first later row that arrives after its target. Rows that are pending
    at the end of the stream are learned at the end, unless the run was interrupted.

    Parameters
    ----------
    models : dict of str to learner, learner, or sequence of learners
        The default name of a learner is its class. All must be classifiers, or all regressors.
    stream : Stream, iterable of blocks, or tuple (X, y)
        A stream of ``op.stream``. A block has ``X`` and ``y``, and may have ``time``, ``skipped``
        and ``weight``, which models receive; metrics count each row once. Rows whose target is
        missing are learned by models that accept them, such as
        ``KalmanRegressor(missing="advance")``, unless targets are delayed, and not scored.
    metrics : str or sequence of str, optional
        Names from ``op.evaluate.METRICS``; by default mae, rmse and r2, or accuracy and macro_f1.
        With log_loss, brier, roc_auc and average_precision, all models must have
        ``predict_proba``; networks, Keyed and ARTIPCAClassifier then learn row by row, which takes
        longer.
    baselines : bool, default=True
        Whether to also evaluate baselines: the last target, and the mean or majority so far.
    window : int, optional
        If set, the metrics are also computed over exactly the last ``window`` rows: at the end, and
        as a curve that starts at the first full window and has at most four points per window.
    points : int, default=200
        Maximum number of points of a curve, at least 2. The stride doubles when there are more.
    delay : int, default=0
        Number of rows after which a target arrives. 0 and 1 both mean before the next row.
    delay_until : str, optional
        The column with the time at which a target arrives, instead of ``delay``: numbers or dates,
        like the times of the stream, which must not decrease. It is not used as a feature.
    max_waiting : int, default=100_000
        Maximum number of rows whose targets are pending; they are stored in memory.
    checkpoint : path, optional
        File for the state of the run: models, metrics, pending rows and the position in the source.
        It is replaced atomically at intervals, at the end, after an interrupt, and if the stream
        raises an error.
    every : float, default=60.0
        Minimum number of seconds of ``clock`` between two checkpoints; 0 for one after each block.
        Without a clock there is only one checkpoint, at the end.
    resume : bool, default=False
        Continue from the checkpoint, if the file exists. Models, metrics and other arguments must
        equal those of the first run. The stream must start with the rows of the first run; rows may
        be appended. A stream of ``op.stream`` is compared with the first run and seeks to the
        position; in other streams the first rows are skipped without comparison.
    next_source : bool, default=False
        With ``resume``: the stream is the continuation of the last stream, such as the next file of
        a log. If it is the last stream itself, it continues at its position.
    drift : detector, or dict of str to detector, optional
        Drift detectors, such as ``river.drift.ADWIN()``: any object with ``update(x)`` and
        ``drift_detected``. Each model, except baselines, has separate copies, which are updated
        with the error of the model for each row: the absolute error of a regressor; 1 for a wrong
        and 0 for a correct label of a classifier. The report contains the alarms. Detectors cannot
        be resumed.
    clock : callable, optional
        Seconds from any origin, such as ``time.perf_counter``, to time each model.
    on_progress : callable, optional
        Called after each block with the number of rows learned.
    on_block : callable, optional
        Called after each block with the block and a dict of predictions by model.

    Returns
    -------
    Report

    Raises
    ------
    ParameterError
        If a metric is unknown, the models have different tasks, the stream has no targets, too many
        rows are pending, or a drift detector is invalid, unsuitable for the task, or combined with
        ``resume``.
    CheckpointError
        Before the run, if a checkpoint is damaged or of another run, or a model cannot be stored.
        During the run, if another run writes the same file. If a checkpoint cannot be *written*, a
        CheckpointWarning is issued instead, and writing is retried later.
    OnepassError
        If a model cannot learn a block. The message contains the model and the rows. That model and
        the models after it have not learned the block; the models before it have.

    Examples
    --------
    >>> import numpy as np
    >>> from onepass.evaluate import LastValue
    >>> rows = np.arange(6.0)
    >>> report = prequential(LastValue(), (rows[:, None], rows), baselines=False)
    >>> round(report.scores["LastValue"].overall["mae"], 4)
    0.8333
    """
    names, learners = _metric_names(metrics), checked_models(models)
    _check_lags(learners, delay, delay_until)
    width = None if window is None else whole(window, "window", low=1)
    limit = whole(points, "points", low=2)
    delayed = _delayed_labels(delay, delay_until, max_waiting)
    file = _checkpoint(checkpoint, stream, every, clock, resume=resume, next_source=next_source)
    task = _task_of_models(learners)
    saved = file.open(next_source=next_source) if file is not None and resume else None
    start = getattr(stream, "start", 0) if file is None else file.start
    gaps = any(map(learns_gaps, learners.values()))
    with blocks_from(stream, start, gaps=gaps) as rows:
        task, source = _task(task or saved, rows)
        naive = {name: cls() for name, cls in _BASELINES[task].items()} if baselines else {}
        with calling(f"{WHERE}: `metrics`"):
            metric_classes = {name: metric_class(name, task) for name in names or _METRICS[task]}
        everyone = _with_baselines(learners, naive)
        _check_probabilities(everyone, metric_classes)
        history = ScoreHistory.start(everyone, metric_classes, width, limit)
        run = PrequentialRun(everyone, history, delayed, clock)
        run.monitor = error_monitor(drift, learners, task, resumed=resume)
        setup = {"task": task, "window": width, "delay": delay_until or max(int(delay), 1)}
        if file is not None:
            block = getattr(stream, "requested_block", None)
            more = {"baselines": bool(naive), "points": limit, "block": block}
            file.begin(run, setup | more | {"metrics": list(metric_classes)})
        name, target = _names_of(stream)
        LOG.info("%s of %s: %s", WHERE, name or "a stream", ", ".join(everyone))
        interrupted = run_blocks(source, run, file, on_progress, on_block)
    LOG.info("%s: %d rows%s", WHERE, run.history.rows, " (interrupted)" if interrupted else "")
    fields = setup | {
        "source": name,
        "target": target,
        "metrics": tuple(metric_classes),
        "interrupted": interrupted,
        "resumed": [] if file is None else file.resumed,
        "delay": None if delayed is None else setup["delay"],
        "waiting": 0 if delayed is None else len(delayed),
    }
    return run.report(fields, set(naive))


def _check_lags(models: dict[str, Model], delay: int, until: str | None) -> None:
    """Check that lagged targets of models are known when their rows are predicted."""
    for name, model in models.items():
        inner: Any = model
        keyed = hasattr(inner, "by")
        while hasattr(inner, "model"):  # Keyed and Conformal, also of each other
            inner = inner.model
            keyed |= hasattr(inner, "by")
        lag = getattr(model, "_target_delay", None)
        if lag is None or (until is None and lag == max(delay, 1) and not (keyed and lag > 1)):
            continue
        remedy = f"Use Lag(rows=..., delay={delay}), where no lag is smaller."
        if keyed or until is not None:
            remedy = "The number of later rows whose targets are known varies: remove the lags."
        raise ParameterError(
            f"model {name!r} has lagged targets for a delay of {lag} row(s), which must "
            "be that of all its rows, got "
            f"{'`delay_until`' if until else f'`delay` = {delay}'}{' by key' if keyed else ''}. "
            f"{remedy}"
        )


def _delayed_labels(delay: object, until: str | None, max_waiting: object) -> DelayedLabels | None:
    """Return the schedule of delayed labels; None if targets arrive before the next row."""
    rows = whole(delay, "delay", low=0)
    limit = whole(max_waiting, "max_waiting", low=1)
    if until is not None and rows:
        raise ParameterError(
            f"`delay_until` excludes `delay`, got {until!r} and {rows}. Use one of the two."
        )
    if rows > limit:
        raise ParameterError(
            f"`delay` must be at most `max_waiting`, {limit:,} rows, got {rows:,}. "
            "Increase `max_waiting` if there is enough memory."
        )
    return DelayedLabels(rows, until, limit) if rows > 1 or until is not None else None


def _checkpoint(
    path: str | os.PathLike[str] | None,
    stream: Iterable[object],
    every: float,
    clock: Callable[[], float] | None,
    *,
    resume: bool,
    next_source: bool,
) -> Checkpoint | None:
    """Return the checkpoint file, if there is one."""
    if (resume and path is None) or (next_source and not resume):
        needs, what = (
            ("resume", "next_source") if next_source and not resume else ("checkpoint", "resume")
        )
        raise ParameterError(
            f"`{what}` requires `{needs}`, got none. Name the checkpoint file: "
            "checkpoint='m.run', resume=True."
        )
    in_range(every, "every", low=0.0)
    return None if path is None else Checkpoint(path, stream, every, clock)


def _task(task: str | None, source: Iterator[Rows]) -> tuple[str, Iterator[Rows]]:
    """Return the task of the models, otherwise of the first targets; and all blocks.

    Real numbers mean regression, other targets classification.
    """
    if task is not None:
        return task, source
    first = next(source, None)
    if first is None:
        return "regression", source
    task = "regression" if first.y.dtype.kind == "f" else "classification"
    return task, chain([first], source)


def _names_of(stream: object) -> tuple[str | None, str | None]:
    """Return the names of a stream and of its targets; None if unknown."""
    target, name = getattr(stream, "target", None), getattr(stream, "name", None)
    names = [target] if isinstance(target, str) else target or []
    return None if name is None else str(name), ", ".join(map(str, names)) or None


def _metric_names(metrics: object) -> list[str]:
    """Return the names of the metrics; raise if targets were passed as metrics."""
    if metrics is None or isinstance(metrics, str):
        return [] if metrics is None else [metrics]
    if not isinstance(metrics, (list, tuple)) or not all(isinstance(m, str) for m in metrics):
        raise ParameterError(
            "`metrics` must be a name or a list of names, such as 'mae', got a "
            f"{type(metrics).__name__}. If these are the targets, pass rows and targets "
            "as one pair: prequential(model, (X, y))."
        )
    return list(metrics)
