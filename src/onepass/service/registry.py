"""Registry of the learners of a server, stored in one folder with one file per learner.

Predictions use the last acknowledged copy of a learner, without waiting. Rows to learn are queued
for the learner's writer; if too many rows are queued, requests fail with 429 and Retry-After.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    OutlierError,
    ParameterError,
    PayloadTooLargeError,
    StoreError,
    calling,
)
from onepass.evaluate.drift import check_suited
from onepass.integrations.detectors import detectors
from onepass.logs import LOG
from onepass.service.consumer import SourceConsumer
from onepass.service.durable import Durable, durable
from onepass.service.lock import file_limit, unlocked
from onepass.service.model import check_compatible, copied_learner
from onepass.service.monitoring import Gauges, MetricsFile, task_of
from onepass.service.requests import LearnResult, Request
from onepass.service.row_schema import SchemaCheck
from onepass.service.source import Source
from onepass.service.writer import Watcher
from onepass.types import Array
from onepass.validation.rows import Rows

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

_T = TypeVar("_T")


class ModelServer:
    """A learner that is served.

    Parameters
    ----------
    name : str
    durable : Durable
        Learner; ``close`` closes it.
    gauges : Gauges
        Metrics of the learner.
    metrics_file : MetricsFile
        File in which the metrics are stored.
    max_queued : int, default 65,536
        Max queued rows.
    reject_beyond : float, optional
        The largest error of a row to learn, in multiples of the usual one; for regressions.
    """

    def __init__(
        self,
        name: str,
        durable: Durable,
        gauges: Gauges,
        metrics_file: MetricsFile,
        *,
        max_queued: int = 1 << 16,
        reject_beyond: float | None = None,
    ) -> None:
        self.name = name
        self.durable = durable
        self.writer = durable._writer  # noqa: SLF001  of this package
        self.gauges = gauges
        self.consumers: list[SourceConsumer] = []
        self._metrics_file = metrics_file
        self._max_queued, self._lock, self._closed = max_queued, Lock(), False
        self.queued = 0
        """Number of queued rows."""
        self.seconds_per_row = 1.0
        """CPU time per row of the slowest recent prediction, in seconds."""
        self.failed: str | None = None
        """Why the file could not be reopened; None if it is open."""
        self.schema: SchemaCheck | None = None
        self._beyond = reject_beyond
        self.writer.hook = self._maintain
        if reject_beyond is not None:
            self.writer.gate = self._check

    def follow(self, schema: SchemaCheck) -> None:
        """Check rows by a schema, or infer it from the rows that are learned."""
        self.schema, self.writer.gate = schema, self._check
        watch = self.writer.watch

        def observed(block: Rows, predictions: Array) -> None:
            schema.observe(block)
            if watch is not None:
                watch(block, predictions)

        self.writer.watch = observed

    def _check(self, learner: Learner | Pipeline, block: Rows) -> None:
        """Reject rows to learn that do not conform to the schema, or whose error is too large."""
        if self.schema is not None:
            self.schema.check(block.X, block.y)
        if self._beyond is not None:
            self.gauges.check(learner, block, self._beyond)

    def _maintain(self) -> None:
        self._metrics_file.maintain(self.gauges, self.writer.snapshots[-1].seen)
        if self.schema is not None:
            self.schema.write()

    # -- back-pressure -------------------------------------------------------------------------

    def _enqueue_rows(self, count: int) -> None:
        """Count rows as queued until ``_dequeue_rows``; raise BusyError if there are too many.

        A request with more rows than the maximum is admitted if no rows are queued.
        """
        with self._lock:
            self._check_open()
            if self.queued and self.queued + count > self._max_queued:
                raise BusyError(
                    f"at most {self._max_queued:,} rows may be queued, got {count:,} in addition "
                    f"to {self.queued:,} queued rows. Retry in a second with the same key.",
                    self.name,
                    seconds=1.0,
                )
            self.queued += count

    def _dequeue_rows(self, count: int) -> None:
        with self._lock:
            self.queued -= count

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(
                "the learner must be open, but it is being stopped. Retry later.", self.name
            )

    # -- verbs ---------------------------------------------------------------------------------

    def frozen_copy(self, version: str | None = None) -> tuple[int, Learner | Pipeline]:
        """Return the current version, and the frozen copy that predicts.

        Parameters
        ----------
        version : str, optional
            Required version.

        Raises
        ------
        NotFoundError
            If ``version`` is not the current version.
        """
        current, learner = self.writer.published
        if version is not None and version != str(current):
            raise NotFoundError(
                f"the version must be the current one, {current}, got {version[:40]!r}. "
                "Omit the version, or roll back to it first.",
                self.name,
            )
        return current, learner

    def learn(self, rows: Rows, done: Callable[[Request], None], key: str | None = None) -> None:
        """Enqueue rows to learn.

        Parameters
        ----------
        rows : Rows
            Rows of a request, with targets.
        done : callable
            Function that the writer's thread calls when the rows are on the disk or rejected.
        key : str, optional
            Idempotency key, as for ``Durable.learn``.

        Raises
        ------
        BusyError
            If too many rows are queued.
        StoreError
            If the learner is being stopped.
        OnepassError
            If the rows are invalid.
        """
        count = len(rows)
        self._enqueue_rows(count)

        def completed(request: Request) -> None:
            self._dequeue_rows(count)
            if request.error is not None:
                self._count_refused(count, request.error)
            done(request)

        try:
            self.writer.enqueue(rows, key, done=completed)
        except BaseException as error:
            self._dequeue_rows(count)
            self._count_refused(count, error)
            raise

    def admit(self, count: int, work: Callable[[], _T]) -> Callable[[], _T]:
        """Count rows as queued, and return a function that does the work; call it exactly once.

        Parameters
        ----------
        count : int
            Number of rows with delayed labels; they count as queued until the work is done.
        work : callable
            Function that writes the rows; it may block.

        Raises
        ------
        PayloadTooLargeError
            If one request has too many rows.
        BusyError
            If too many rows are queued.
        StoreError
            If the learner is being stopped.
        """
        max_count = -(-self._max_queued // 4)
        if count > max_count:
            raise PayloadTooLargeError(
                "a request with 'await_label', or with labels for such rows, must have at most "
                f"{max_count:,} rows, got {count:,}. Send fewer rows per request.",
                self.name,
            )
        self._enqueue_rows(count)

        def run() -> _T:
            try:
                return work()
            finally:
                self._dequeue_rows(count)

        return run

    def learn_labels(self, ids: Sequence[str], labels: Rows) -> LearnResult:
        """Learn pending rows from their labels; see ``Durable.learn_labels``."""
        try:
            return self.durable.learn_labels(ids, labels.y, labels.weight, time=labels.time)
        except OnepassError as error:
            self._count_refused(len(ids), error)
            raise

    def consume(self, source: Source) -> None:
        """Learn rows of a source until ``close``.

        Raises
        ------
        ParameterError
            If the source is already consumed, or only one of learner and source has times.
        """
        if any(consumer.source.name == source.name for consumer in self.consumers):
            raise ParameterError(
                f"the sources must be different, got {source.name} twice. Remove one of the two.",
                self.name,
            )
        self.consumers.append(SourceConsumer(self.durable, source, self.gauges.refuse))

    def check_ready(self) -> None:
        """Check that the learner can learn.

        Raises
        ------
        StoreError
        """
        self._check_open()
        if not self.ready:
            raise StoreError(
                self.error or f"{self.name}: the learner must be ready, but it is not. Retry later."
            )

    # -- state ---------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the learner can learn, judging by its last write."""
        return self.failed is None and self.durable.ready

    @property
    def error(self) -> str | None:
        """Current error of the learner as text; None without an error."""
        return self.failed or self.durable.error

    @property
    def source_error(self) -> str | None:
        """Errors of the sources as text, which do not affect requests; None without an error."""
        return " ".join(each.error for each in self.consumers if each.error) or None

    def close(self) -> None:
        """Stop the consumers, learn the queued rows, and close the file."""
        for consumer in self.consumers:
            consumer.close()
        with self._lock:
            self._closed = True
        try:
            self.durable.close()
        finally:
            self._metrics_file.write(self.gauges)
            if self.schema is not None:
                with suppress(StoreError):
                    self.schema.write()

    def _count_refused(self, count: int, error: BaseException) -> None:
        """Count rejected rows, except after a StoreError, which ``error`` reports."""
        if isinstance(error, OutlierError):
            fields = {"model": self.name, "rows": count, "why": str(error)}
            _LOG.warning("rows rejected", extra={"fields": fields})
        if not isinstance(error, StoreError):
            self.gauges.refuse(count, str(error))


_WHERE = "onepass serve"
_LOG = LOG.getChild("service")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SUFFIX = ".db"
_RETIRED = ".retired"
_GAUGES = ".gauges"
_FILES = 4  # file descriptors of a learner: file, log, shared memory and lock
_CLOSERS = 16  # learners closed at once
_PYTHON_FILES, _CONNECTIONS = 64, 32
_SUFFIXES = ("", "-wal", _GAUGES, _SUFFIX)  # of all files of a learner


class ModelRegistry:
    """Named learners in one folder, with one file per learner.

    Parameters
    ----------
    folder : path-like
        Folder of the files; created if it does not exist.
    window : int
        Number of rows over which the recent error is computed.
    drift : iterable of str
        Names of River's drift detectors; detectors of binary errors require classifiers.
    max_queued : int
        Max queued rows of each learner.
    reject_beyond : float, optional
        The largest error of a row to learn, in multiples of the usual one; for regressions.
    **options
        Options of :func:`onepass.service.durable`.

    Attributes
    ----------
    failed : dict of str to str
        Error messages, by name, of learners whose files could not be opened. These are not served
        until ``load`` opens them.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        window: int = 1000,
        drift: tuple[str, ...] = (),
        max_queued: int = 1 << 16,
        reject_beyond: float | None = None,
        **options: Any,
    ) -> None:
        self._beyond = reject_beyond
        self.folder = Path(folder)
        self._window, self._drift, self._max_queued = window, drift, max_queued
        self._options = options
        self._served: dict[str, ModelServer] = {}
        self.failed: dict[str, str] = {}
        self._sources: list[tuple[str, Source]] = []
        self._schemas: dict[str, SchemaCheck] = {}
        self._lock = RLock()
        self._retire_lock = RLock()  # acquired before _lock
        self._closing_name: str | None = None  # name of the learner that is being retired
        detectors(drift, _WHERE)  # check the names before opening files
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder} must be a folder, or a path where one can be created, got: "
                f"{error.strerror}. Choose another folder.",
                _WHERE,
            ) from error

    def open_all(self) -> None:
        """Open all files in the folder; list files that cannot be opened in ``failed``.

        Raises
        ------
        ParameterError
            If a detector requires classifiers and a learner is not a classifier.
        LockedError
            If other processes have all files open, such as another service of the same folder.
        """
        locked: list[LockedError] = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            if path.stem in self._served or not _NAME.fullmatch(path.stem):
                continue
            try:
                self._open(path.stem, None)
            except ParameterError:
                raise
            except Exception as error:  # noqa: BLE001  open the other files
                locked += [error] if isinstance(error, LockedError) else []
                self._fail(path.stem, error)
        if locked and len(locked) == len(self.names):
            raise locked[0]

    def load(self, name: str) -> ModelServer:
        """Reopen a learner that has failed, or open a file that is not served yet.

        A learner that can learn is returned unchanged. A failed one continues to predict, even if
        its file cannot be reopened.

        Raises
        ------
        NotFoundError
            If there is neither a learner nor a file of this name.
        StoreError
            If the file cannot be opened.
        """
        with self._retire_lock, self._lock:
            served = self._served.get(name)
            if served is not None:
                with suppress(StoreError):
                    served.check_ready()
                    return served
            elif not (_NAME.fullmatch(name) and os.path.lexists(self._path(name))):
                self.failed.pop(name, None)
                return self[name]  # raises
            try:
                if served is not None:
                    served.close()
                return self._open(name, None)
            except Exception as error:
                if served is not None:
                    served.failed = str(error) or repr(error)
                    raise
                self._fail(name, error)
                return self[name]  # raises

    def consume(self, name: str, source: Source) -> None:
        """Learn rows of a source, now and whenever the file of its learner is opened again.

        Parameters
        ----------
        name : str
            Name of the learner; empty for the only one.
        source : Source

        Raises
        ------
        ParameterError
            If the learner does not exist, the source is already consumed, or only one of learner
            and source has times.
        """
        name = self._named(name, "--source", "ADDRESS")
        if name in self._served:
            self._served[name].consume(source)
        self._sources.append((name, source))

    def follow(self, name: str, schema: SchemaCheck) -> None:
        """Check the rows of a learner by a schema, also after its file is opened again.

        Parameters
        ----------
        name : str
            Name of the learner; empty for the only one.
        schema : SchemaCheck

        Raises
        ------
        ParameterError
            If the learner does not exist.
        """
        name = self._named(name, "--schema", "FILE")
        if name in self._served:
            self._served[name].follow(schema)
        self._schemas[name] = schema

    def _named(self, name: str, option: str, value: str) -> str:
        """Return the name of an existing learner, by default of the only one."""
        names = self.names
        if name not in names and (name or len(names) != 1):
            raise ParameterError(
                f"{option} must be NAME={value} with the name of a learner, or {value} if there is "
                f"only one learner, got {name[:100] or 'no name'}. "
                f"Name one of the learners: {', '.join(names) or 'none'}.",
                _WHERE,
            )
        return name or names[0]

    def create(
        self, name: str, model: Learner | Pipeline, *, exist_ok: bool = False
    ) -> ModelServer:
        """Create and serve a learner.

        Parameters
        ----------
        name : str
            Name of 1 to 100 letters, digits, ``_``, ``.`` and ``-``, beginning with a letter or
            digit.
        model : learner or Pipeline
        exist_ok : bool, default False
            Whether an existing learner of this name continues instead of raising.

        Raises
        ------
        AlreadyExistsError
            If the name is in use.
        ParameterError
            If the name is invalid, or a detector requires a classifier and the model is not one.
        TypeMismatchError, StoreError
            As for ``op.durable``.
        """
        if not _NAME.fullmatch(name):
            raise ParameterError(
                "a name must be 1 to 100 letters, digits, '_', '.' and '-', beginning "
                f"with a letter or digit, got {name[:120]!r}. Choose another name.",
                _WHERE,
            )
        with self._lock:
            if name in self._served and exist_ok:
                served, other = self._served[name], copied_learner(model)
                writer = served.writer
                with calling(_WHERE):
                    writer.call(lambda: check_compatible(writer.model, other))
                return served
            if (
                name in self._served
                or name == self._closing_name
                or (not exist_ok and os.path.lexists(self._path(name)))
            ):
                raise AlreadyExistsError(
                    f"the name must be unused, got {name!r}, which is in use. Choose "
                    "another name, or retire that learner first.",
                    _WHERE,
                )
            return self._open(name, model)

    def retire(self, name: str) -> Path:
        """Stop serving a learner, rename its file, and return the new path.

        Raises
        ------
        NotFoundError
            If there is no such learner.
        StoreError
            If the file was moved, removed or replaced; then the learner continues to predict.
        """
        with self._retire_lock:
            with self._lock:
                if name in self.failed and os.path.lexists(self._path(name)):
                    with unlocked(self._path(name)):
                        path = self._move_files(name)
                    del self.failed[name]
                    return path
                served = self[name]
                served.writer.journal.check_in_place()
                self._closing_name = name
                del self._served[name]
            try:
                served.close()  # without _lock: may take long, while others are created
                return self._move_files(name)
            except BaseException:
                self._served[name] = served
                raise
            finally:
                self._closing_name = None

    def _move_files(self, name: str) -> Path:
        """Rename the files of a learner, and return the new path."""
        old, new = self._path(name), self._unused_path(name)
        old.rename(new)
        # after a full disk, the -wal file contains rows for which the file has no space
        with suppress(FileNotFoundError):
            Path(f"{old}-wal").rename(f"{new}-wal")
        with suppress(OSError):
            (self.folder / f"{name}{_GAUGES}").rename(f"{new}{_GAUGES}")
        for ending in (".lock", "-shm"):
            with suppress(OSError):
                Path(f"{old}{ending}").unlink()
        return new

    def close(self) -> None:
        """Learn the queued rows, and close all learners."""
        with self._retire_lock, self._lock:
            closing, self._served = self._served, {}
            # several at once, which overlaps their writes; closes all, even if one raises
            with ThreadPoolExecutor(_CLOSERS) as pool, ExitStack() as stack:
                for served in closing.values():
                    stack.callback(pool.submit(served.close).result)

    def __getitem__(self, name: str) -> ModelServer:
        served = self._served.get(name)
        if served is None and name in self.failed:
            raise StoreError(
                f"its file must be readable, got: {self.failed[name]} Fix this error and load the "
                "model again, or DELETE the model, which renames the file; see /openapi.json.",
                name,
            )
        if served is None:
            raise NotFoundError(
                f"the name must be the name of a learner, got {name[:120]!r}. Choose one that GET "
                "/v2/repository/index lists."
            )
        return served

    @property
    def names(self) -> list[str]:
        """Names of all learners, including those whose files could not be opened."""
        return [*self._served, *self.failed]

    def __iter__(self) -> Iterator[ModelServer]:
        return iter(list(self._served.values()))

    def _fail(self, name: str, error: Exception) -> None:
        """Record and log that a file could not be opened."""
        self.failed[name] = str(error) or repr(error)
        fields = {"name": name, "reason": self.failed[name]}
        unexpected = None if isinstance(error, OnepassError) else error
        _LOG.error("a learner cannot be opened", exc_info=unexpected, extra={"fields": fields})

    def _unused_path(self, name: str) -> Path:
        """Return a path for the files of a retired learner at which no file exists."""
        names = (f"{name}{_RETIRED}-{number}" for number in count(1))
        return next(
            self.folder / new
            for new in names
            if not any((self.folder / f"{new}{end}").exists() for end in _SUFFIXES)
        )

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _detectors(self, name: str, learner: Learner | Pipeline) -> dict[str, Any]:
        """Create the drift detectors of a learner; raise if one does not suit the learner."""
        with calling(f"{_WHERE}: {name}"):
            created = detectors(self._drift, _WHERE)
            check_suited(created, task_of(learner))
        return created

    @property
    def used_files(self) -> int:
        """Number of file descriptors of all learners and of Python."""
        return _PYTHON_FILES + _FILES * len(self._served)

    def _open(self, name: str, model: Learner | Pipeline | None) -> ModelServer:
        if (limit := file_limit()) < self.used_files + _FILES + _CONNECTIONS:
            raise StoreError(
                f"{limit:,} open files, the limit of this process, are enough for "
                f"{len(self._served):,} learners, got one more. Raise the limit, {_FILES} for each "
                "learner: ulimit -n 65536, or LimitNOFILE=65536 of systemd; or use several folders."
            )
        gauges: list[Gauges] = []

        def watched(learner: Learner | Pipeline) -> Watcher:
            created = self._detectors(name, learner)
            gauges.append(Gauges(learner, window=self._window, detectors=created))
            return gauges[0].learned

        if model is not None:  # check before a file is created
            with calling(_WHERE):
                self._detectors(name, copied_learner(model))
        learner = durable(self._path(name), model, watch=watched, **self._options)
        metrics_file = MetricsFile(self.folder / f"{name}{_GAUGES}")
        metrics_file.read(gauges[0], learner.rows_seen)
        served = ModelServer(
            name, learner, gauges[0], metrics_file, max_queued=self._max_queued,
            reject_beyond=self._beyond,
        )  # fmt: skip
        if name in self._schemas and model is None:  # a new learner has neither schema nor sources
            served.follow(self._schemas[name])
        try:
            for model_name, source in self._sources:
                if model_name == name and model is None:
                    served.consume(source)
        except BaseException:
            served.close()
            raise
        self._served[name] = served
        self.failed.pop(name, None)
        return served
