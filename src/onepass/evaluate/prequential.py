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

import numpy as np

from onepass.errors import OnepassError, ParameterError, ShapeError
from onepass.evaluate.blocks import Block, blocks
from onepass.evaluate.curve import Track
from onepass.evaluate.entrants import joined, named, references, task_of_answers, task_of_models
from onepass.evaluate.interrupt import Interrupt
from onepass.evaluate.metrics import Metric, metric_class
from onepass.evaluate.report import Report, Score
from onepass.evaluate.tally import Tally
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
    run = _Pass(learners, _metrics(asked, task), width, most, clock)
    interrupted = _through(source, run, on_progress, on_block)
    return run.report(stream, task, set(least), interrupted=interrupted)


def _through(
    source: Iterator[Block],
    run: "_Pass",
    on_progress: Callable[[int], object] | None,
    on_block: Callable[[Block, dict[str, Array]], object] | None,
) -> bool:
    """All blocks, or those before an interrupt; whether there was one."""
    interrupt = Interrupt()
    try:
        for block in source:
            with interrupt.held():
                said = run.take(block)
                if on_block is not None:
                    on_block(block, said)
                if on_progress is not None:
                    on_progress(run.rows)
            if interrupt.asked:
                return True
    except KeyboardInterrupt:
        if not run.whole:  # raised within a block: not ours to call this a report
            raise
        return True
    return False


class _Pass:
    """Models on their way through a stream."""

    def __init__(
        self,
        models: dict[str, Any],
        kinds: dict[str, type[Metric]],
        window: int | None,
        points: int,
        clock: Callable[[], float] | None,
    ) -> None:
        self.models, self.kinds, self.window, self.clock = models, kinds, window, clock
        self.rows = self.skipped = 0
        self.whole = True  # whether every model has learned every block that was begun
        self._tallies = {name: Tally(kinds, window) for name in models}
        self._seconds = dict.fromkeys(models, 0.0)
        self._overall = Track(points)
        self._recent = None if window is None else Track(points, max(1, window // 4), window)
        self._time: Any = None

    def take(self, block: Block) -> dict[str, Array]:
        """Learn a block; return what each model said of its rows."""
        self.skipped += block.skipped
        if len(block) == 0:
            return dict.fromkeys(self.models, block.y)
        self.whole = False
        said = {name: self._said(name, model, block) for name, model in self.models.items()}
        self._count(block, said)
        self.whole = True
        return said

    def _said(self, name: str, model: Any, block: Block) -> Array:
        began = self.clock() if self.clock else 0.0
        first = self.rows if block.first is None else block.first
        place = f"{_WHERE}: model {name!r}, {len(block):,} rows from row {first:,} (from 0)"
        try:
            said = np.asarray(model.test_then_train(block.X, block.y))
        except OnepassError as error:
            raise type(error)(f"{place}: {error}") from error
        except Exception as error:
            error.add_note(place)
            raise
        self._seconds[name] += self.clock() - began if self.clock else 0.0
        if said.size != block.y.size:
            raise ShapeError(
                f"{place}: test_then_train must return one answer for each row, shape "
                f"{block.y.shape}, got {said.shape}. Return what was said of each row."
            )
        return said.reshape(block.y.shape)

    def _count(self, block: Block, said: dict[str, Array]) -> None:
        """Add the rows to the tallies, up to each point of the curves."""
        tracks = [track for track in (self._overall, self._recent) if track is not None]
        a = 0
        while a < len(block):
            b = min(len(block), a + min(track.next for track in tracks) - self.rows)
            for name, tally in self._tallies.items():
                tally.add(block.y[a:b], said[name][a:b])
            self.rows += b - a
            self._time = None if block.time is None else block.time[b - 1]
            if self.rows == self._overall.next:
                self._overall.note(self.rows, self._time, self._values("overall"))
            if self._recent is not None and self.rows == self._recent.next:
                self._recent.note(self.rows, self._time, self._values("recent"))
            a = b

    def _values(self, which: str) -> dict[str, Any]:
        return {name: getattr(tally, which) for name, tally in self._tallies.items()}

    def report(self, stream: Any, task: str, least: set[str], *, interrupted: bool) -> Report:
        """What there is to say at the end."""
        overall, metrics = self._values("overall"), tuple(self.kinds)
        recent = self._values("recent") if self.window is not None else {}
        self._overall.end(self.rows, self._time, overall)
        if self._recent is not None:
            self._recent.end(self.rows, self._time, recent)
        target = getattr(stream, "target", None)
        names = [target] if isinstance(target, str) else target or []
        scores = {
            name: Score(
                learner=" ".join(repr(model).split()),
                baseline=name in least,
                overall=overall[name],
                recent=recent.get(name),
                seconds=self._seconds[name] if self.clock else None,
                nbytes=_nbytes(model),
            )
            for name, model in self.models.items()
        }
        name = getattr(stream, "name", None)
        return Report(
            source=None if name is None else str(name),
            target=", ".join(map(str, names)) or None,
            task=task,
            metrics=metrics,
            window=self.window,
            rows=self.rows,
            skipped=self.skipped,
            interrupted=interrupted,
            scores=scores,
            overall=self._overall.curve(self.models, metrics),
            recent=None if self._recent is None else self._recent.curve(self.models, metrics),
        )


def _nbytes(model: Any) -> int | None:
    size = getattr(model, "nbytes", None)
    return None if size is None else int(size)


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
