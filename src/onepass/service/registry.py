"""The learners that a server holds, one file each in one folder.

Predictions come from the last acknowledged copy of a learner, without waiting. Rows to be learned
enter the queue of the learner's writer; if too many wait, the request gets 429 with Retry-After.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

from onepass.errors import (
    AlreadyExistsError,
    BusyError,
    LockedError,
    NotFoundError,
    OnepassError,
    ParameterError,
    PayloadTooLargeError,
    StoreError,
)
from onepass.evaluate.drift import check_suited
from onepass.integrations.detectors import detectors
from onepass.service.consumer import Feeder
from onepass.service.durable import Durable, durable
from onepass.service.lock import unlocked
from onepass.service.model import ManagedModel
from onepass.service.monitoring import Gauges, MetricsFile, task_of
from onepass.service.requests import LearnResult, Request
from onepass.service.source import Source
from onepass.service.writer import Watcher
from onepass.types import ArrayLike, TimeLike

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["ModelRegistry", "ModelServer"]


_T = TypeVar("_T")


class ModelServer:
    """One learner while it is served.

    Parameters
    ----------
    name : str
    durable : Durable
        Closed when this is.
    gauges : Gauges
    diary : Diary
        Where the gauges are kept.
    max_queued : int, default 65,536
        Rows that may wait to be learned.
    """

    def __init__(
        self,
        name: str,
        durable: Durable,
        gauges: Gauges,
        diary: MetricsFile,
        *,
        max_queued: int = 1 << 16,
    ) -> None:
        self.name = name
        self.durable = durable
        self.gauges = gauges
        self.feeders: list[Feeder] = []
        self._diary = diary
        self._most, self._lock, self._ended = max_queued, Lock(), False
        self.waiting = 0
        """Rows that wait to be learned."""
        self.pace = 1.0
        """CPU seconds per row of the slowest recent prediction."""
        self.failed: str | None = None
        """Why the file could not be opened again; None if it is open."""
        durable.maintain(lambda: diary.tend(gauges, durable.last_snapshot[0]))

    # -- back-pressure -------------------------------------------------------------------------

    def _admit(self, count: int) -> None:
        """Count rows that wait, until they are ``_done``; refused if too many do.

        More rows at once than may wait are admitted if no others wait.
        """
        with self._lock:
            self._check_open()
            if self.waiting and self.waiting + count > self._most:
                raise BusyError(
                    f"{self.name}: at most {self._most:,} rows may wait to be learned, "
                    f"{self.waiting:,} do. Retry in a second with the same key.",
                    1.0,
                )
            self.waiting += count

    def _done(self, count: int) -> None:
        with self._lock:
            self.waiting -= count

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError(f"{self.name}: it is being stopped. Retry later.")

    # -- verbs ---------------------------------------------------------------------------------

    def frozen_copy(self, version: str | None = None) -> "tuple[int, Learner | Pipeline]":
        """The present version, and the learner that answers with it.

        Parameters
        ----------
        version : str, optional
            That it must be.

        Raises
        ------
        NotFoundError
            If it is another.
        """
        now, learner = self.durable.published
        if version is not None and version != str(now):
            raise NotFoundError(
                f"{self.name}: only the current version, {now}, can predict, got {version[:40]!r}. "
                "Omit the version, or roll back to it first."
            )
        return now, learner

    def learn(self, rows: Mapping[str, Any], done: Callable[[Request], None], **named: Any) -> None:
        """Have rows learned.

        Parameters
        ----------
        rows : mapping
            ``X``, ``y``, and if there are ``sample_weight`` and ``time``, as for ``Durable.learn``.
        done : callable
            Called by the writer's thread, when they are on the disk or refused.
        **named
            ``key``, ``former``, ``source``, ``position``, as for ``Durable.request``.

        Raises
        ------
        BusyError
            If too many rows wait.
        StoreError
            If it is being stopped.
        OnepassError
            If these are no rows.
        """
        count = len(rows["X"])
        self._admit(count)

        def settled(request: Request) -> None:
            self._done(count)
            if request.error is not None:
                self._note(count, request.error)
            done(request)

        try:
            self.durable.request(**rows, **named, done=settled)
        except BaseException as wrong:
            self._done(count)
            self._note(count, wrong)
            raise

    def admitted(self, count: int, work: Callable[[], _T]) -> Callable[[], _T]:
        """Work of ``ask`` or ``answer``, to be done once by a thread that may wait.

        Parameters
        ----------
        count : int
            Rows that it brings to the disk; they wait until it is done.
        work : callable

        Raises
        ------
        PayloadTooLargeError
            If these are too many rows at once.
        BusyError
            If too many rows wait.
        StoreError
            If it is being stopped.
        """
        most = -(-self._most // 4)
        if count > most:
            raise PayloadTooLargeError(
                f"{self.name}: rows whose answers come later, and their answers, must be at most "
                f"{most:,} at a time, got {count:,}. Send fewer at a time."
            )
        self._admit(count)

        def done() -> _T:
            try:
                return work()
            finally:
                self._done(count)

        return done

    def answer(
        self,
        ids: Sequence[str],
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> LearnResult:
        """Learn rows that were asked, as ``Durable.answer`` does."""
        try:
            return self.durable.answer(ids, y, sample_weight, time=time)
        except OnepassError as wrong:
            self._note(len(ids), wrong)
            raise

    def feed(self, source: Source, log: Callable[..., object] | None = None) -> None:
        """Learn what a source brings, as long as this is served; ``log`` as for :class:`.Feeder`.

        Raises
        ------
        ParameterError
            If it is read already, or tells times to a learner that wants none, or none to another.
        """
        if any(feeder.source.name == source.name for feeder in self.feeders):
            raise ParameterError(
                f"{self.name}: a source must be read once, got {source.name} twice. Leave one out."
            )
        self.feeders.append(Feeder(self.durable, source, self.gauges, log))

    def check_ready(self) -> None:
        """Refuse where the learner cannot learn now.

        Raises
        ------
        StoreError
        """
        self._check_open()
        if not self.ready:
            raise StoreError(self.trouble or f"{self.name}: it could not learn. Retry.")

    # -- what there is -------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it can learn, as far as is known."""
        return self.failed is None and self.durable.ready

    @property
    def trouble(self) -> str | None:
        """What is wrong, even if it can learn; None if all is well."""
        return self.failed or self.durable.trouble

    @property
    def source_trouble(self) -> str | None:
        """What keeps it from reading its sources; it learns from whoever asks all the same."""
        return " ".join(each.trouble for each in self.feeders if each.trouble) or None

    def close(self) -> None:
        """Stop reading sources, learn the rows that wait, and close the file."""
        for feeder in self.feeders:
            feeder.close()
        with self._lock:
            self._ended = True
        try:
            self.durable.close()
        finally:
            self._diary.write(self.gauges)

    # -- what stands behind them ---------------------------------------------------------------

    def _note(self, count: int, wrong: BaseException) -> None:
        """Note that rows were refused; where it was the disk's fault, ``trouble`` tells it."""
        if not isinstance(wrong, StoreError):
            self.gauges.refuse(count, str(wrong))


_LOG = logging.getLogger("onepass.service")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ENDING = ".db"
_RETIRED = ".retired"
_GAUGES = ".gauges"
_OF_ONE = ("", "-wal", _GAUGES, _ENDING)  # the files that a name may have


class ModelRegistry:
    """Named learners.

    Parameters
    ----------
    folder : path-like
        Made if it is not there.
    where : str
        The public call, for messages.
    window : int
        Rows of the recent error.
    drift : iterable of str
        River's detectors, by name; those that count mistakes watch classifiers alone.
    max_queued : int
        Rows that may wait to be learned, for each learner.
    **options
        For :func:`onepass.service.durable`.

    Attributes
    ----------
    failed : dict of str to str
        The learners whose files could not be opened, and the reasons. They are not served until
        ``load`` opens them.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        where: str,
        *,
        window: int = 1000,
        drift: tuple[str, ...] = (),
        max_queued: int = 1 << 16,
        **options: Any,
    ) -> None:
        self.folder, self.where = Path(folder), where
        self._window, self._drift, self._most = window, drift, max_queued
        self._options = options
        self._served: dict[str, ModelServer] = {}
        self.failed: dict[str, str] = {}
        self._sources: list[tuple[str, Source, Callable[..., object] | None]] = []
        self._turn = RLock()
        self._retiring = RLock()  # taken before the other
        self._going: str | None = None  # what is being retired
        detectors(drift, where)  # unknown names are refused before anything is opened
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise StoreError(
                f"{where}: {folder} must be a folder, or one that can be made, got: "
                f"{failed.strerror}. Choose another."
            ) from failed

    def open_all(self) -> None:
        """Open all files in the folder; a file that cannot be opened is noted in ``failed``.

        Raises
        ------
        ParameterError
            If a detector counts mistakes where a learner makes none.
        LockedError
            If another process holds a file: most likely a second service of the same folder.
        """
        try:
            for path in sorted(self.folder.glob(f"*{_ENDING}")):
                if path.stem in self._served or not _NAME.fullmatch(path.stem):
                    continue
                try:
                    self._open(path.stem, None)
                except (LockedError, ParameterError):
                    raise
                except Exception as wrong:  # noqa: BLE001  one file does not stop the others
                    self._fail(path.stem, wrong)
        except BaseException:
            self.close()
            raise

    def load(self, name: str) -> ModelServer:
        """Open a learner that failed, or a file that is not served yet.

        A learner that can learn is returned unchanged. One that cannot goes on predicting, also if
        its file cannot be opened again.

        Raises
        ------
        NotFoundError
            If there is neither a learner nor a file of this name.
        StoreError
            If the file cannot be opened.
        """
        with self._retiring, self._turn:
            before = self._served.get(name)
            if before is not None:
                with suppress(StoreError):
                    before.check_ready()
                    return before
            elif not (_NAME.fullmatch(name) and os.path.lexists(self._path(name))):
                self.failed.pop(name, None)
                return self[name]  # raises
            try:
                if before is not None:
                    before.close()
                return self._open(name, None)
            except Exception as wrong:
                if before is not None:
                    before.failed = str(wrong) or repr(wrong)
                    raise
                self._fail(name, wrong)
                return self[name]  # raises

    def feed(self, name: str, source: Source, log: Callable[..., object] | None = None) -> None:
        """Learn from a source, now or when the file of the learner is opened.

        Parameters
        ----------
        name, source, log
            As for :meth:`.Served.feed`.
        """
        if name in self._served:
            self._served[name].feed(source, log)
        self._sources.append((name, source, log))

    def create(self, name: str, model: "Learner | Pipeline", *, there: bool = False) -> ModelServer:
        """Serve a new learner.

        Parameters
        ----------
        name : str
            1 to 100 letters, digits, ``_``, ``.`` and ``-``; a letter or digit first.
        model : learner or Pipeline
        there : bool, default False
            Whether it may be there already: then what is there goes on.

        Raises
        ------
        AlreadyExistsError
            If there is one of this name.
        ParameterError
            If it is no name, or a detector counts mistakes where the learner makes none.
        TypeMismatchError, StoreError
            As ``op.durable``.
        """
        if not _NAME.fullmatch(name):
            raise ParameterError(
                f"{self.where}: a name must be 1 to 100 letters, digits, '_', '.' and '-', a "
                f"letter or digit first, got {name[:120]!r}. Choose another."
            )
        with self._turn:
            if name in self._served and there:
                self._served[name].durable.check_compatible(model)
                return self._served[name]
            if (
                name in self._served
                or name == self._going
                or (not there and os.path.lexists(self._path(name)))
            ):
                raise AlreadyExistsError(
                    f"{self.where}: there must be no learner {name!r} yet, but there is. Choose "
                    "another name, or retire it first."
                )
            return self._open(name, model)

    def retire(self, name: str) -> Path:
        """Stop serving a learner; its file is renamed, and the new path returned.

        Raises
        ------
        NotFoundError
            If there is none of this name.
        StoreError
            If its file was moved or removed, or another stands there: then it goes on answering.
        """
        with self._retiring:
            with self._turn:
                if name in self.failed and os.path.lexists(self._path(name)):
                    with unlocked(self._path(name), self.where):
                        moved = self._moved(name)
                    del self.failed[name]
                    return moved
                served = self[name]
                served.durable.check_in_place()  # nor is another's file taken for its own
                self._going = name
                del self._served[name]
            try:
                served.close()  # what waits may take long: others are made meanwhile
                return self._moved(name)
            except BaseException:
                self._served[name] = served
                raise
            finally:
                self._going = None

    def _moved(self, name: str) -> Path:
        """Rename the files of a learner, and return the new path."""
        old, new = self._path(name), self._free(name)
        old.rename(new)
        with suppress(FileNotFoundError):  # of a full disk: what the file has had no room for
            Path(f"{old}-wal").rename(f"{new}-wal")
        with suppress(OSError):
            (self.folder / f"{name}{_GAUGES}").rename(f"{new}{_GAUGES}")
        with suppress(OSError):
            Path(f"{old}.lock").unlink()
        return new

    def close(self) -> None:
        """Stop all; what waits is learned first."""
        with self._retiring, self._turn:
            closing, self._served = self._served, {}
            with ExitStack() as all_of_them:  # one that fails does not keep others open
                for served in closing.values():
                    all_of_them.callback(served.close)

    def __getitem__(self, name: str) -> ModelServer:
        found = self._served.get(name)
        if found is None and name in self.failed:
            raise StoreError(
                f"{name}: its file must be one that can be opened, got: {self.failed[name]} Once "
                "that is fixed, load the model again; or DELETE it, which renames the file: see "
                "/openapi.json."
            )
        if found is None:
            raise NotFoundError(
                f"there is no learner of this name: {name[:120]!r}; "
                "GET /v2/repository/index lists those that there are."
            )
        return found

    @property
    def names(self) -> list[str]:
        """The names of all learners, also of those whose files could not be opened."""
        return [*self._served, *self.failed]

    def __iter__(self) -> Iterator[ModelServer]:
        return iter(list(self._served.values()))

    def _fail(self, name: str, wrong: Exception) -> None:
        """Note and log that a file could not be opened."""
        self.failed[name] = str(wrong) or repr(wrong)
        fields = {"name": name, "reason": self.failed[name]}
        unexpected = None if isinstance(wrong, OnepassError) else wrong
        _LOG.error("a learner cannot be opened", exc_info=unexpected, extra={"fields": fields})

    def _free(self, name: str) -> Path:
        """Where nothing is of one that was retired, nor of one that is served by that name."""
        names = (f"{name}{_RETIRED}-{number}" for number in count(1))
        return next(
            self.folder / new
            for new in names
            if not any((self.folder / f"{new}{end}").exists() for end in _OF_ONE)
        )

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _detectors(self, name: str, learner: "Learner | Pipeline") -> dict[str, Any]:
        """New detectors for a learner; refused if they do not suit it."""
        chosen = detectors(self._drift, self.where)
        check_suited(chosen, task_of(learner), f"{self.where}: {name}")
        return chosen

    def _open(self, name: str, model: "Learner | Pipeline | None") -> ModelServer:
        gauges: list[Gauges] = []

        def watched(learner: "Learner | Pipeline") -> Watcher:
            chosen = self._detectors(name, learner)
            gauges.append(Gauges(learner, window=self._window, detectors=chosen))
            return gauges[0].learned

        if model is not None:  # what is refused leaves no file
            self._detectors(name, ManagedModel.of(model, self.where).learner)
        held = durable(self._path(name), model, watch=watched, **self._options)
        diary = MetricsFile(self.folder / f"{name}{_GAUGES}")
        diary.read(gauges[0], held.rows_seen)
        served = ModelServer(name, held, gauges[0], diary, max_queued=self._most)
        try:
            for fed, source, log in self._sources:
                if fed == name and model is None:  # not of a new learner of this name
                    served.feed(source, log)
        except BaseException:
            served.close()
            raise
        self._served[name] = served
        self.failed.pop(name, None)
        return served
