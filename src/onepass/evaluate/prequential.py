"""Prequential evaluation: test on each row, then train on it; every row is a test row.

For t = 1, 2, … n the learner says ŷₜ of xₜ, is told yₜ, is charged the loss ℓ(ŷₜ, yₜ) and learns
the row [1]. The mean loss of that sequence is an honest estimate of how the learner does on rows
that it has not seen, without any row held back [2], and Σℓ is the quantity that regret bounds are
about. All models go through the stream together, in one pass.

Cost: what the models cost, and O(points) memory; O(window) more where a window is asked for.

[1] "Online Learning", lecture notes: steps 0-5, equations (1) and (2).
[2] A. P. Dawid, "Statistical theory: the prequential approach", JRSS A 147, 1984;
    J. Gama, R. Sebastião, P. P. Rodrigues, "On evaluating stream learning algorithms", Machine
    Learning 90, 2013 (windows).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from onepass.errors import ParameterError
from onepass.evaluate.blocks import Block, blocks
from onepass.evaluate.course import Course
from onepass.evaluate.entrants import joined, named, references, task_of_answers, task_of_models
from onepass.evaluate.interrupt import Interrupt
from onepass.evaluate.ledger import Ledger
from onepass.evaluate.metrics import Metric, metric_class
from onepass.evaluate.report import Report
from onepass.types import Array
from onepass.validate import whole

__all__ = ["prequential"]

_WHERE = "op.evaluate.prequential"
_METRICS = {"regression": ("mae", "rmse", "r2"), "classification": ("accuracy", "macro_f1")}


def prequential(
    models: Any,
    stream: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    baselines: bool = True,
    window: int | None = None,
    points: int = 200,
    clock: Callable[[], float] | None = None,
    on_progress: Callable[[int], object] | None = None,
    on_block: Callable[[Block, dict[str, Array]], object] | None = None,
) -> Report:
    """Let models say each row's answer just before they learn it, and report how right they were.

    The models are trained in place: afterwards they have learned the stream. The pass may be ended
    with Ctrl-C: the block that was begun is learned by all models, and the report says
    ``interrupted``.

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
        If a metric is unknown, the models do not all do the same task, or the stream has no
        answers.
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
    asked = _asked(metrics)
    learners = named(models, _WHERE)
    source = blocks(stream, _WHERE)
    task = task_of_models(learners, _WHERE)
    if task is None:
        start = next(source, None)
        source = chain([] if start is None else [start], source)
        task = task_of_answers(start)
    least = references(task) if baselines else {}
    learners = joined(learners, least, _WHERE)
    width = None if window is None else whole(window, "window", _WHERE, low=1)
    most = whole(points, "points", _WHERE, low=2)
    kinds = _metrics(asked, task)
    course = Course(learners, Ledger(learners, kinds, width, most), clock, _WHERE)
    interrupted = _through(source, course, on_progress, on_block)
    name, answers = _named(stream)
    said = {
        "source": name,
        "target": answers,
        "task": task,
        "metrics": tuple(kinds),
        "window": width,
        "interrupted": interrupted,
    }
    return course.report(said, set(least))


def _through(
    source: Iterator[Block],
    course: Course,
    on_progress: Callable[[int], object] | None,
    on_block: Callable[[Block, dict[str, Array]], object] | None,
) -> bool:
    """All blocks, or those before an interrupt; whether there was one."""
    interrupt = Interrupt()
    try:
        for block in source:
            with interrupt.held():
                said = course.take(block)
                if on_block is not None:
                    on_block(block, said)
                if on_progress is not None:
                    on_progress(course.ledger.rows)
            if interrupt.asked:
                return True
    except KeyboardInterrupt:
        if not course.whole:  # raised within a block: not ours to call this a report
            raise
        return True
    return False


def _named(stream: Any) -> tuple[str | None, str | None]:
    """The names of a stream and of its answers, as far as it says."""
    target, name = getattr(stream, "target", None), getattr(stream, "name", None)
    names = [target] if isinstance(target, str) else target or []
    return None if name is None else str(name), ", ".join(map(str, names)) or None


def _asked(metrics: Any) -> list[str]:
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


def _metrics(asked: list[str], task: str) -> dict[str, type[Metric]]:
    return {name: metric_class(name, task, _WHERE) for name in asked or _METRICS[task]}
