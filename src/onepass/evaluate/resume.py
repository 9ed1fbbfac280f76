"""Checkpoints of an evaluation, from which it can be resumed.

The file (:mod:`onepass.serialization.archive`, kind ``run``) contains the complete state of the
run: models and baselines, metrics and curves, pending rows, and the position in the source. It is
replaced atomically between two blocks, so it is always consistent; if the process is killed, the
previous file remains. It also contains the settings and a fingerprint of the source. If they
differ, the run is not resumed, and the error lists the differences.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from onepass.errors import CheckpointError, CheckpointWarning
from onepass.evaluate.blocks import blocks
from onepass.evaluate.run import WHERE, PrequentialRun
from onepass.linalg.interrupt import Interrupt
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.atomic import file_identity
from onepass.serialization.codec import MARK, state_dict
from onepass.stream.stream import setting_differences
from onepass.types import Array
from onepass.validation.rows import Rows

_MAX_LETTERS = 60  # length of a value in a message


def differences(then: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the differences between two trees of settings.

    Parameters
    ----------
    then, now : dict, list, plain value or array
        Stored and current settings; objects are encoded by :mod:`onepass.serialization.codec`.
    path : tuple of str
        The path of both trees in the settings.

    Yields
    ------
    difference : str
        A phrase that describes one difference.

    Examples
    --------
    >>> list(differences({"window": 100, "metrics": ["mae"]}, {"window": 200, "metrics": ["mae"]}))
    ['window was 100 and is 200']
    >>> len(list(differences({"ridge": np.eye(2)}, {"ridge": np.eye(2)})))
    0
    """
    if type(then) is dict and type(now) is dict and then.get(MARK) == now.get(MARK):
        # steps of a pipeline have numbers as names: show the class instead
        named = MARK in then and path and path[-1].isdigit()
        inner = (*path[:-1], str(then[MARK])) if named else path
        for name in _names(then, now):
            if name not in now:
                yield f"{_dotted((*inner, name))} was {_short(then[name])} and is missing"
            elif name not in then:
                yield f"{_dotted((*inner, name))} is new: {_short(now[name])}"
            else:
                yield from differences(then[name], now[name], (*inner, name))
    elif _are_lists(then, now) and any(type(part) is dict for part in then):
        for i, (a, b) in enumerate(zip(then, now, strict=True)):
            yield from differences(a, b, (*path, str(i)))
    elif not _equal(then, now):
        yield f"{_dotted(path)} was {_short(then)} and is {_short(now)}"


def _names(then: dict[str, object], now: dict[str, object]) -> list[str]:
    """Return the settings to compare; ``missing`` is excluded if it was "error"."""
    names = [*then, *(name for name in now if name not in then)]
    return [name for name in names if name != "missing" or then.get(name) != "error"]


def _equal(then: Any, now: Any) -> bool:
    if isinstance(then, np.ndarray) or isinstance(now, np.ndarray):
        return np.array_equal(np.asarray(then), np.asarray(now))
    if _are_lists(then, now):
        return all(_equal(a, b) for a, b in zip(then, now, strict=True))
    nan = then != then and now != now  # noqa: PLR0124  only nan is not itself
    return bool(nan or (then == now and isinstance(then, bool) == isinstance(now, bool)))


def _are_lists(then: Any, now: Any) -> bool:
    """Return whether both are lists, or both tuples, of equal length."""
    return type(then) in {list, tuple} and type(now) is type(then) and len(then) == len(now)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the settings"


def _short(value: object) -> str:
    if type(value) is dict and MARK in value:
        return str(value[MARK])
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_LETTERS else f"{text[:_MAX_LETTERS]}…"


_KIND = "run"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run, as stored in a checkpoint.

    Parameters
    ----------
    source : str or None
        The name of the source.
    position : int
        Number of rows read from the source, including skipped rows.
    rows : int
        Number of rows predicted so far, from this source and previous sources.
    resumed : list of int
        Number of rows predicted before each time the run was resumed.
    finished : bool
        Whether the source was read to the end.
    """

    source: str | None
    position: int
    rows: int
    resumed: list[int]
    finished: bool


def run_progress(path: str | os.PathLike[str]) -> RunProgress | None:
    """Read the progress of a run from its checkpoint.

    Parameters
    ----------
    path : path-like
        The ``checkpoint`` of ``op.evaluate.prequential``.

    Returns
    -------
    progress : RunProgress or None
        None if the file does not exist.

    Raises
    ------
    CheckpointError
        If the file is damaged, of a newer format or of another kind.

    Examples
    --------
    >>> import tempfile
    >>> from onepass.evaluate import LastValue, prequential
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/m.run"
    ...     _ = prequential(LastValue(), ([[1.0], [2.0]], [1.0, 2.0]), checkpoint=path)
    ...     run_progress(path).rows
    2
    """
    if not Path(path).exists():
        return None
    return _progress_in(archive.read(path, kind=_KIND), os.fspath(path))


def _progress_in(tree: Any, place: str) -> RunProgress:
    try:
        found = RunProgress(
            source=tree["source"]["name"],
            position=tree["source"]["rows"],
            rows=tree["run"]["history"]["rows"],
            resumed=list(tree["resumed"]),
            finished=tree["finished"],
        )
        counts = [found.position, found.rows, *found.resumed]
    except (LookupError, TypeError) as error:
        raise damaged(place, "it contains no run") from error
    valid = type(found.finished) is bool and type(found.source) in {str, type(None)}
    if not (valid and all(type(count) is int and count >= 0 for count in counts)):
        raise damaged(place, "the progress of its run is invalid")
    return found


class Checkpoint:
    """The checkpoint file of a run: read on resuming, written at intervals and at the end.

    Parameters
    ----------
    path : path-like
        The file.
    stream : Stream or other
        The source; a stream of ``op.stream`` is compared with that of the first run.
    every : float
        Minimum number of seconds between two checkpoints.
    clock : callable or None
        Seconds from any origin; None for a checkpoint at the end only.

    Attributes
    ----------
    start : int
        Index of the first row to read.
    resumed : list of int
        Number of rows predicted before each time the run was resumed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream: Any,
        every: float,
        clock: Callable[[], float] | None,
    ) -> None:
        self.place = os.fspath(path)
        self.start = int(getattr(stream, "start", 0))
        self.resumed: list[int] = []
        self._stream, self._every, self._clock = stream, every, clock
        self._settings: dict[str, Any] = {}
        self._tree: Any = None  # content of the file, until it is restored
        self._begun = 0  # rows, including skipped rows, at the start of this run
        self._last = 0.0
        self._stamp = file_identity(path)  # identity of the file when opened or last written

    def open(self, *, next_source: bool) -> str | None:
        """Read the file; return the task of its run, or None if the file does not exist.

        Parameters
        ----------
        next_source : bool
            Whether the source is the continuation of the last one, or the last one itself.

        Raises
        ------
        CheckpointError
            If the file is not a checkpoint, or of a run on another source.
        """
        if not Path(self.place).exists():
            return None
        tree = archive.read(self.place, kind=_KIND)
        progress = _progress_in(tree, self.place)
        if type(tree.get("settings")) is not dict:
            raise damaged(self.place, "it contains no settings")
        block, cut = tree["settings"].get("block"), getattr(self._stream, "cut", None)
        if cut is not None and type(block) is int and block >= 1:
            cut(block)  # default block size of this run
        if self._is_same(tree["source"].get("fingerprint"), next_source=next_source):
            self.start = progress.position
        self.resumed = list(dict.fromkeys([*progress.resumed, progress.rows]))
        self._tree = tree
        task = tree["settings"].get("task")
        return task if isinstance(task, str) else None

    def begin(self, run: PrequentialRun, settings: dict[str, object]) -> None:
        """Begin a new run, or restore the run that was read.

        Parameters
        ----------
        run : PrequentialRun
            The run, which is restored in place.
        settings : dict
            The settings of the run.

        Raises
        ------
        CheckpointError
            If the settings differ, or a metric cannot be stored. The run is unchanged.
        """
        archive.split(
            state_dict(run.history, self.place), self.place
        )  # raise before the run starts
        models = run.models.items()
        made = {name: state_dict(clone(m, safe=False), self.place) for name, m in models}
        self._settings = {**settings, "models": made}
        if self._tree is not None:
            found = list(differences(self._tree["settings"], self._settings))
            if found:
                raise self._mismatch("settings", found)
            run.restore(self._tree["run"], self.place)
            if self._tree.get("drift") and run.monitor is None:
                warnings.warn(
                    f"{WHERE}: the run had drift detectors until row {run.history.rows:,}, "
                    f"which {self.place} does not contain: the report will not contain their "
                    "alarms. Start a new run to use detectors.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self._tree = None
        self._begun = run.history.rows + run.history.skipped
        self._last = 0.0 if self._clock is None else self._clock()

    def due(self) -> bool:
        """Return whether the next checkpoint is due."""
        return self._clock is not None and self._clock() - self._last >= self._every

    def write(self, run: PrequentialRun, *, finished: bool) -> None:
        """Write the checkpoint, between two blocks; warn if it cannot be written.

        Nothing is written before the first row.

        Parameters
        ----------
        run : PrequentialRun
            Every model has learned every block that was begun.
        finished : bool
            Whether the source was read to the end.

        Raises
        ------
        CheckpointError
            If another run has written the file in the meantime. The file is not overwritten.
        """
        if not run.history.rows:
            return
        if file_identity(self.place) not in {None, self._stamp}:
            raise CheckpointError(
                f"{self.place} must be written by only one run, got a file that another run has "
                f"written. This run stops after {run.history.rows:,} rows and does not overwrite "
                "the file. Use a separate checkpoint file for each run."
            )
        rows = run.history.rows + run.history.skipped - self._begun
        name = getattr(self._stream, "name", None)
        tree = {
            "settings": self._settings,
            "source": {
                "name": None if name is None else str(name),
                "fingerprint": getattr(self._stream, "fingerprint", None),
                "rows": self.start + rows,
            },
            "resumed": self.resumed,
            "finished": finished,
            "drift": run.monitor is not None,
            "run": run.state(self.place),
        }
        try:
            archive.write(self.place, tree, kind=_KIND)
            self._stamp = file_identity(self.place)
        except CheckpointError as error:
            warnings.warn(f"{WHERE}: {error}", CheckpointWarning, stacklevel=2)
        if self._clock is not None:
            self._last = self._clock()

    def _is_same(self, then: object, *, next_source: bool) -> bool:
        """Return whether the source is that of the last run; raise if it is required to be."""
        compare = getattr(self._stream, "differences", None)
        if compare is None or type(then) is not dict:
            return not next_source  # cannot be checked
        if type(then.get("rows")) is not int or type(then.get("columns")) is not dict:
            raise damaged(self.place, "the fingerprint of its source is invalid")
        found = compare(then)
        if found and next_source:
            if other := setting_differences(then, self._stream.fingerprint, alike=True):
                raise self._mismatch("columns", other)
        elif found:
            raise self._mismatch("source", found)
        return not found

    def _mismatch(self, what: str, found: list[str]) -> CheckpointError:
        shown = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if found[3:] else "")
        return CheckpointError(
            f"{self.place} must be resumed with the {what} of the first run, got "
            f"differences: {shown}. Restore them, or use another file."
        )


@contextmanager
def blocks_from(stream: Any, start: int, *, gaps: bool) -> Iterator[Iterator[Rows]]:
    """Iterate over the blocks of a stream after ``start`` rows; then reset its attributes.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        The stream; its attributes ``start`` and ``gaps``, if any, are set within the context.
    start : int
        Number of rows to skip at the beginning of the source.
    gaps : bool
        Whether blocks also contain the rows whose target is missing.
    """
    wanted = {"start": start, "gaps": gaps}
    before = {name: getattr(stream, name) for name in wanted if hasattr(stream, name)}
    for name in before:
        setattr(stream, name, wanted[name])
    try:
        with closing(blocks(stream, start)) as rows:
            yield rows
    finally:
        for name, value in before.items():
            setattr(stream, name, value)


def run_blocks(
    source: Iterator[Rows],
    run: PrequentialRun,
    checkpoint: Checkpoint | None,
    on_progress: Callable[[int], object] | None,
    on_block: Callable[[Rows, dict[str, Array]], object] | None,
) -> bool:
    """Process blocks until the end or an interrupt; return whether there was an interrupt.

    Parameters
    ----------
    source : iterator of Rows
        The rows.
    run : PrequentialRun
    checkpoint : Checkpoint or None
        Written when due and at the end.
    on_progress, on_block : callable or None
        As in ``op.evaluate.prequential``.
    """
    interrupt = Interrupt()
    try:
        for block in source:
            with interrupt.held():
                labelled, predictions = run.process(block)
                if on_block is not None:
                    on_block(labelled, predictions)
                if on_progress is not None:
                    on_progress(run.history.rows)
                if checkpoint is not None and checkpoint.due():
                    checkpoint.write(run, finished=False)
            if interrupt.asked:
                break
    except KeyboardInterrupt:
        if not run.consistent:  # error within a block: no valid report
            raise
        interrupt.asked = True
    except Exception:
        if checkpoint is not None and run.consistent:  # store what was learned
            checkpoint.write(run, finished=False)
        raise
    return _finish(run, checkpoint, interrupt)


def _finish(run: PrequentialRun, checkpoint: Checkpoint | None, interrupt: Interrupt) -> bool:
    """Write the checkpoint, then learn pending rows unless interrupted; return interruption."""
    interrupted = interrupt.asked
    with interrupt.held():
        if checkpoint is not None:  # before pending rows are learned, since rows may be appended
            checkpoint.write(run, finished=not interrupted)
        if not interrupted:
            run.finish()
    return interrupted
