"""Checkpoints of an evaluation, from which it can be resumed.

The file (:mod:`onepass.serialization.archive`, kind ``run``) holds the whole state of the pass: all
models and baselines, sums and curves, the rows that wait for their targets, and the position in the
source. It is replaced atomically between two blocks, so its parts always belong to one moment; if
the process is killed, the previous file remains. The settings and the first rows of the source are
stored too: with other ones the pass is not resumed, and the error names the difference.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from onepass.errors import CheckpointError, CheckpointWarning
from onepass.evaluate.blocks import Block, blocks
from onepass.evaluate.run import Course
from onepass.linalg.interrupt import Interrupt
from onepass.serialization import archive, former
from onepass.serialization.archive import damaged
from onepass.serialization.atomic import file_identity
from onepass.serialization.codec import MARK, state_dict
from onepass.stream.stream import setting_differences
from onepass.types import Array

__all__ = ["Bookmark", "RunProgress", "differences", "run_progress", "starting", "through"]


_LONGEST = 60  # letters of a value that is shown


def differences(then: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """In which ways settings are not those that they were.

    Parameters
    ----------
    then, now : dict, list, plain value or array
        Trees of settings; objects in them as :mod:`onepass.serialization.codec` tells them.
    path : tuple of str
        Where in the settings they stand.

    Yields
    ------
    difference : str
        A phrase; none where they are equal.

    Examples
    --------
    >>> list(differences({"window": 100, "metrics": ["mae"]}, {"window": 200, "metrics": ["mae"]}))
    ['window was 100 and is 200']
    >>> len(list(differences({"ridge": np.eye(2)}, {"ridge": np.eye(2)})))
    0
    """
    if type(then) is dict and type(now) is dict and then.get(MARK) == now.get(MARK):
        # a step of a pipeline has a number for a name: its class says more
        named = MARK in then and path and path[-1].isdigit()
        inner = (*path[:-1], str(then[MARK])) if named else path
        for name in _names(then, now):
            if name not in now:
                yield f"{_said((*inner, name))} was {_shown(then[name])} and is gone"
            elif name not in then:
                yield f"{_said((*inner, name))} is new: {_shown(now[name])}"
            else:
                yield from differences(then[name], now[name], (*inner, name))
    elif _are_lists(then, now) and any(type(part) is dict for part in then):
        for i, (a, b) in enumerate(zip(then, now, strict=True)):
            yield from differences(a, b, (*path, str(i)))
    elif not _equal(then, now):
        yield f"{_said(path)} was {_shown(then)} and is {_shown(now)}"


def _names(then: dict[str, object], now: dict[str, object]) -> list[str]:
    """The settings to compare; ``missing`` is left out if it was "error"."""
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
    """Whether both are lists, or both tuples, of one length."""
    return type(then) in {list, tuple} and type(now) is type(then) and len(then) == len(now)


def _said(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the whole"


def _shown(value: object) -> str:
    if type(value) is dict and MARK in value:
        return str(value[MARK])
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_KIND = "run"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a pass stands, as its checkpoint says.

    Parameters
    ----------
    source : str or None
        The source's name.
    position : int
        Rows of that source that were taken, those that were skipped too.
    rows : int
        Rows said so far, of this source and of those before.
    resumed : list of int
        How many these were each time that the pass was resumed.
    finished : bool
        Whether the source had come to its end.
    """

    source: str | None
    position: int
    rows: int
    resumed: list[int]
    finished: bool


def run_progress(path: str | os.PathLike[str]) -> RunProgress | None:
    """Where the pass stands that a checkpoint is of.

    Parameters
    ----------
    path : path-like
        As it was given to ``op.evaluate.prequential(..., checkpoint=path)``.

    Returns
    -------
    run_progress : Standing or None
        None where there is no such file.

    Raises
    ------
    CheckpointError
        If the file is damaged, too new or of another kind.

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
    return _standing(archive.read(path, kind=_KIND), os.fspath(path))


def _standing(tree: Any, place: str) -> RunProgress:
    try:
        found = RunProgress(
            source=tree["source"]["name"],
            position=tree["source"]["rows"],
            rows=tree["course"]["ledger"]["rows"],
            resumed=list(tree["resumed"]),
            finished=tree["finished"],
        )
        counts = [found.position, found.rows, *found.resumed]
    except (LookupError, TypeError) as wrong:
        raise damaged(place, "it holds no run") from wrong
    told = type(found.finished) is bool and type(found.source) in {str, type(None)}
    if not (told and all(type(count) is int and count >= 0 for count in counts)):
        raise damaged(place, "it does not say where the run stands")
    return found


class Bookmark:
    """Writes where a pass stands, now and then and at its end, and finds it again.

    Parameters
    ----------
    path : path-like
        The file.
    stream : Stream or other
        The source, which may say whether it is the one that was begun.
    every : float
        Seconds between two checkpoints at least.
    clock : callable or None
        Seconds from any origin; None for a checkpoint at the end alone.
    where : str
        The public call, for messages.

    Attributes
    ----------
    start : int
        Where in the source the pass begins, or goes on.
    resumed : list of int
        Rows said each time that the pass was resumed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream: Any,
        every: float,
        clock: Callable[[], float] | None,
        where: str,
    ) -> None:
        self.place = os.fspath(path)
        self.start = int(getattr(stream, "start", 0))
        self.resumed: list[int] = []
        self._stream, self._every, self._clock, self._where = stream, every, clock, where
        self._settings: dict[str, Any] = {}
        self._tree: Any = None  # what was found in the file, until the course has it
        self._begun = 0  # rows, skipped ones too, when the pass began or was resumed
        self._last = 0.0
        self._mine = file_identity(path)  # of the file as it was found here, or written

    def open(self, *, next_source: bool) -> str | None:
        """Find where the pass stood; its task, or None where there is no file.

        Parameters
        ----------
        next_source : bool
            Whether the source begins where the last one ended, unless it is the last one.

        Raises
        ------
        CheckpointError
            If the file is no checkpoint, or of a pass over another source.
        """
        if not Path(self.place).exists():
            return None
        tree = archive.read(self.place, kind=_KIND)
        stood = _standing(tree, self.place)
        if type(tree.get("settings")) is not dict:
            raise damaged(self.place, "it does not say how the run was set up")
        block, cut = tree["settings"].get("block"), getattr(self._stream, "cut", None)
        if cut is not None and type(block) is int and block >= 1:
            cut(block)  # where none is named now, the run goes on as it was begun
        if self._is_same(tree["source"].get("fingerprint"), next_source=next_source):
            self.start = stood.position
        self.resumed = list(dict.fromkeys([*stood.resumed, stood.rows]))
        self._tree = tree
        task = tree["settings"].get("task")
        return task if isinstance(task, str) else None

    def begin(self, course: Course, settings: dict[str, object]) -> None:
        """Begin the pass, or go on with the one that was found.

        Parameters
        ----------
        course : Course
            It is restored, if there was one.
        settings : dict
            How the pass is set up, as a tree.

        Raises
        ------
        CheckpointError
            If the pass was set up otherwise, or a metric cannot be saved. Nothing was restored.
        """
        archive.split(state_dict(course.ledger, self.place), self.place)  # refused before the pass
        models = course.models.items()
        made = {name: state_dict(clone(m, safe=False), self.place) for name, m in models}
        self._settings = {**settings, "models": made}
        if self._tree is not None:
            if said := list(differences(former.settings(self._tree["settings"]), self._settings)):
                raise self._another("settings", said)
            course.restore(self._tree["course"], self.place)
            if self._tree.get("drift") and course.watch is None:
                warnings.warn(
                    f"{self._where}: detectors of drift watched the run until row "
                    f"{course.ledger.rows:,}, and {self.place} cannot keep them: the report will "
                    "hold none of their alarms.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self._tree = None
        self._begun = course.ledger.rows + course.ledger.skipped
        self._last = 0.0 if self._clock is None else self._clock()

    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return self._clock is not None and self._clock() - self._last >= self._every

    def write(self, course: Course, *, finished: bool) -> None:
        """Write where the pass stands, between two blocks; warn if it cannot be written.

        A pass of no rows takes no other's place.

        Parameters
        ----------
        course : Course
            It has learned whole blocks.
        finished : bool
            Whether the source has come to its end.

        Raises
        ------
        CheckpointError
            If another pass has written the file since; it is left to that one.
        """
        if not course.ledger.rows:
            return
        if file_identity(self.place) not in {None, self._mine}:
            raise CheckpointError(
                f"{self._where}: {self.place} must be written by one run alone, got another that "
                f"has written it meanwhile. This one ends after {course.ledger.rows:,} rows, and "
                "leaves the file to that one: save each to a file of its own."
            )
        taken = course.ledger.rows + course.ledger.skipped - self._begun
        name = getattr(self._stream, "name", None)
        tree = {
            "settings": self._settings,
            "source": {
                "name": None if name is None else str(name),
                "fingerprint": getattr(self._stream, "fingerprint", None),
                "rows": self.start + taken,
            },
            "resumed": self.resumed,
            "finished": finished,
            "drift": course.watch is not None,
            "course": course.state(self.place),
        }
        try:
            archive.write(self.place, tree, kind=_KIND)
            self._mine = file_identity(self.place)
        except CheckpointError as wrong:
            warnings.warn(f"{self._where}: {wrong}", CheckpointWarning, stacklevel=2)
        if self._clock is not None:
            self._last = self._clock()

    def _is_same(self, then: object, *, next_source: bool) -> bool:
        """Whether the source is the one that was begun; refused where it must be and is not."""
        compare = getattr(self._stream, "differences", None)
        if compare is None or type(then) is not dict:
            return not next_source  # taken at its word
        if type(then.get("rows")) is not int or type(then.get("columns")) is not dict:
            raise damaged(self.place, "it does not say what its source began with")
        said = compare(then)
        if said and next_source:
            if other := setting_differences(then, self._stream.fingerprint, alike=True):
                raise self._another("columns", other)
        elif said:
            raise self._another("source", said)
        return not said

    def _another(self, what: str, said: list[str]) -> CheckpointError:
        shown = "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if said[3:] else "")
        return CheckpointError(
            f"{self._where}: {self.place} must be resumed with the {what} that the run was begun "
            f"with, got others: {shown}. Resume it with those, or save to another file."
        )


@contextmanager
def starting(stream: Any, start: int, where: str) -> Iterator[Iterator[Block]]:
    """The blocks of a stream from some row on; afterwards it begins again where it did.

    Parameters
    ----------
    stream : Stream, iterable of blocks, or tuple (X, y)
        A stream that has a ``start`` is told of it.
    start : int
        How many of the source's first rows to pass over.
    where : str
        The public call, for messages.
    """
    before = getattr(stream, "start", None)
    if before is not None:
        stream.start = start
    try:
        yield blocks(stream, where, start)
    finally:
        if before is not None:
            stream.start = before


def through(
    source: Iterator[Block],
    course: Course,
    mark: Bookmark | None,
    on_progress: Callable[[int], object] | None,
    on_block: Callable[[Block, dict[str, Array]], object] | None,
) -> bool:
    """Take all blocks, or those before an interrupt; whether there was one.

    Parameters
    ----------
    source : iterator of Block
        The rows.
    course : Course
        It takes them.
    mark : Bookmark or None
        Where it is written how far the course has come.
    on_progress, on_block : callable or None
        As in ``op.evaluate.prequential``.
    """
    interrupt = Interrupt()
    try:
        for block in source:
            with interrupt.held():
                said = course.take(block)
                if on_block is not None:
                    on_block(block, said)
                if on_progress is not None:
                    on_progress(course.ledger.rows)
                if mark is not None and mark.due():
                    mark.write(course, finished=False)
            if interrupt.asked:
                break
    except KeyboardInterrupt:
        if not course.whole:  # raised within a block: not ours to call this a report
            raise
        interrupt.asked = True
    except Exception:
        if mark is not None and course.whole:  # nothing that was learned is lost
            mark.write(course, finished=False)
        raise
    return _ended(course, mark, interrupt)


def _ended(course: Course, mark: Bookmark | None, interrupt: Interrupt) -> bool:
    """Write where the course ended, and learn what waits if the stream has; whether it had not."""
    interrupted = interrupt.asked
    with interrupt.held():
        if mark is not None:  # before what waits is learned: the stream may grow
            mark.write(course, finished=not interrupted)
        if not interrupted:
            course.finish()
    return interrupted
