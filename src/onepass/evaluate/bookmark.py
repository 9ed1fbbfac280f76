"""Bookmark: where a pass stands, in one file, from which it can be gone on with.

The file (:mod:`onepass.serialization.archive`, kind ``run``) holds all that the pass has come to:
every model and baseline, every sum and curve, the rows that wait for their answers, and the place
in the source. It is written in one stroke between two blocks, so that its parts are always of one
moment; a kill at any other leaves the file before. What was set up is kept with it, and what the
source begins with: another pass is not gone on with by mistake.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onepass.errors import CheckpointError, CheckpointWarning
from onepass.evaluate.course import Course
from onepass.evaluate.differences import differences
from onepass.evaluate.memento import specification
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.atomic import stamp
from onepass.stream.stream import changed

__all__ = ["Bookmark", "Standing", "standing"]

_KIND = "run"


@dataclass(frozen=True, slots=True)
class Standing:
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


def standing(path: str | os.PathLike[str]) -> Standing | None:
    """Where the pass stands that a checkpoint is of.

    Parameters
    ----------
    path : path-like
        As it was given to ``op.evaluate.prequential(..., checkpoint=path)``.

    Returns
    -------
    standing : Standing or None
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
    ...     standing(path).rows
    2
    """
    if not Path(path).exists():
        return None
    return _standing(archive.read(path, kind=_KIND), os.fspath(path))


def _standing(tree: Any, place: str) -> Standing:
    try:
        found = Standing(
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
        self._mine = stamp(path)  # of the file as it was found here, or written

    def open(self, *, onward: bool) -> str | None:
        """Find where the pass stood; its task, or None where there is no file.

        Parameters
        ----------
        onward : bool
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
        if self._is_same(tree["source"].get("fingerprint"), onward=onward):
            self.start = stood.position
        self.resumed = list(dict.fromkeys([*stood.resumed, stood.rows]))
        self._tree = tree
        task = tree["settings"].get("task")
        return task if isinstance(task, str) else None

    def begin(self, course: Course, settings: dict[str, Any]) -> None:
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
            If the pass was set up otherwise. Nothing was restored.
        """
        models = course.models.items()
        made = {name: specification(model, self.place) for name, model in models}
        self._settings = {**settings, "models": made}
        if self._tree is not None:
            if said := differences(self._tree["settings"], self._settings):
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
        if stamp(self.place) not in {None, self._mine}:
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
            self._mine = stamp(self.place)
        except CheckpointError as wrong:
            warnings.warn(f"{self._where}: {wrong}", CheckpointWarning, stacklevel=2)
        if self._clock is not None:
            self._last = self._clock()

    def _is_same(self, then: Any, *, onward: bool) -> bool:
        """Whether the source is the one that was begun; refused where it must be and is not."""
        compare = getattr(self._stream, "differences", None)
        if compare is None or type(then) is not dict:
            return not onward  # taken at its word
        if type(then.get("rows")) is not int or type(then.get("columns")) is not dict:
            raise damaged(self.place, "it does not say what its source began with")
        said = compare(then)
        if said and onward:
            if other := changed(then, self._stream.fingerprint, alike=True):
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
