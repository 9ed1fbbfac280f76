"""Durable learner: every row is on the disk before it is acknowledged.

``Durable`` is the public interface of a writer (the thread that learns and commits) and its journal
(the file). ``durable`` creates or opens the file.
"""

import os
import secrets
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from onepass import validation
from onepass.errors import ParameterError, StoreError
from onepass.service.delayed import id_list
from onepass.service.journal import Journal
from onepass.service.model import ManagedModel, predict_rows
from onepass.service.requests import (
    Block,
    LearnResult,
    Request,
    aligned,
    check_encodable,
    check_labelled,
    check_size,
    check_text,
    read_rows,
)
from onepass.service.writer import Policy, Watcher, Writer
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.arrays import feature_limit
from onepass.validation.table import TableLike, named_row

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["Durable", "Version", "durable"]

_DAY = 86400.0
_MAX_SECONDS = 30 * _DAY


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot, which ``rollback`` can restore.

    Parameters
    ----------
    version : int
        Number of blocks learned.
    rows_seen : int
        Number of rows learned, including those that were rolled back.
    at : float
        Time of the snapshot, in seconds since 1970.
    why : str
        ``"beginning"``, ``"rows"``, ``"time"``, ``"request"``, ``"close"`` or ``"rollback to …"``.
    nbytes : int
        Size of the snapshot.
    """

    version: int
    rows_seen: int
    at: float
    why: str
    nbytes: int

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))
        return f"version {self.version:,}: {self.rows_seen:,} rows, {when}, {self.why}"


class Durable:
    """A learner whose state is stored in a file; see ``op.durable``.

    All methods are thread-safe. Those that learn return when their rows are on the disk; rows that
    several threads send at the same time are committed together. Predictions do not wait for rows
    to be learned: they use all acknowledged rows, and never a part of a block. An interrupt, such
    as Ctrl-C, ends only the waiting: the rows are committed or refused regardless, and a request
    with the same key returns the result.

    Attributes
    ----------
    path : Path
    version : int
        Number of blocks learned, including rollbacks.
    rows_seen : int
        Number of rows learned, including those that were rolled back.
    positions : dict of str to str
        Last position of each source of rows.
    """

    def __init__(self, writer: Writer) -> None:
        self.path = writer.journal.path
        self._writer, self._journal = writer, writer.journal
        self._named = repr(self.frozen_copy)
        self._learning = f"{writer.where}.learn"
        writer.start()
        weakref.finalize(self, writer.release)

    # -- learning -------------------------------------------------------------------------------

    def learn(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        key: str | None = None,
        source: str | None = None,
        position: str | None = None,
    ) -> LearnResult:
        """Learn rows; they are on the disk when it returns.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As for the learner's own ``partial_fit``.
        key : str, optional
            Idempotency key: a request that is repeated with the same key is learned once, and does
            not change positions. The rows must have the same values; dtype and container may
            differ.
        source, position : str, optional
            Source of the rows, and the position from which to continue reading it. Committed in the
            same transaction as the rows, and listed in ``positions``.

        Returns
        -------
        result : LearnResult
            Its ``predictions`` are prequential: each row is predicted before it is learned.

        Raises
        ------
        OnepassError
            Any error of the learner; then nothing is learned or written.
        IdempotencyConflictError
            If the key was used with other rows.
        StoreError
            If the disk is full; then nothing is learned. If the disk fails: it is unknown whether
            the rows were written, and nothing more is learned until the file is reopened. If it is
            called from a callback or watcher, which would wait for itself.
        """
        self._writer.check_caller()
        return self.request(
            X, y, sample_weight, time=time, key=key, source=source, position=position
        ).wait()

    def learn_one(
        self,
        x: ArrayLike | Mapping[str, object],
        y: Any,
        sample_weight: float = 1.0,
        *,
        time: Any = None,
        key: str | None = None,
    ) -> LearnResult:
        """Learn one row, an array of shape (d,) or a dict of named features; see ``learn``."""
        x = named_row(x)
        X = [x] if isinstance(x, Mapping) else np.asarray(x)[None]
        weight = None if sample_weight == 1.0 else sample_weight
        return self.learn(X, [y], weight, time=None if time is None else [time], key=key)

    def partial_fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Self:
        """Learn rows; see ``learn``."""
        self.learn(X, y, sample_weight, time=time)
        return self

    def test_then_train(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Array:
        """Learn rows, and return their prequential predictions."""
        return self.learn(X, y, sample_weight, time=time).predictions

    def request(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        key: str | None = None,
        source: str | None = None,
        position: str | None = None,
        done: Callable[[Request], None] | None = None,
        former: bytes = b"",
    ) -> Request:
        """Enqueue rows to be learned, without waiting.

        Parameters
        ----------
        X, y, sample_weight, time, key
            As for ``learn``.
        source, position
            As for ``learn``.
        done : callable, optional
            Called by the writer's thread with the request when it is completed; must be fast.
        former : bytes, optional
            Digest that a former version may have stored for this request.

        Raises
        ------
        StoreError
            If the learner is closed.
        OnepassError
            If the rows are invalid.
        """
        where = self._learning
        check_labelled(y, where)
        if (source is None) != (position is None):
            raise ParameterError(
                f"{where}: `source` and `position` must be given together, got {source!r} and "
                f"{position!r}. Give both, or neither."
            )
        if key is not None:
            check_text(key, "key", where)
        if source is not None:
            check_text(source, "source", where)
            check_text(position, "position", where)
        block = read_rows(X, y, sample_weight, time, where=where)
        body = b""
        if not block.plain:
            check_encodable(block, where)
            body = block.to_bytes()
        size = len(body) or block.X.nbytes
        check_size(size, where)
        keys = [] if key is None else [(f"k{key}", block.digest())]
        request = Request(block, body, size, keys, source, position, done=done, former=former)
        self._writer.put(request)
        return request

    def commit_pending(self) -> None:
        """Wait until all enqueued requests are committed or refused."""
        self._writer.call(self._writer.maintain)

    def commit_position(self, source: str, position: str) -> None:
        """Commit a source's position without rows, to skip rows that were refused.

        Parameters
        ----------
        source, position : str
            As for ``learn``.

        Raises
        ------
        ParameterError
            If one of them is not text.
        StoreError
            If the disk is full or fails.
        """
        where = f"{self._journal.where}.commit_position"
        for name, word in (("source", source), ("position", position)):
            check_text(word, name, where)
        self._writer.call(lambda: self._writer.commit_position(source, position), writes=True)

    # -- delayed labels -------------------------------------------------------------------------

    def predict_pending(self, X: TableLike, *, seconds: float = _DAY) -> tuple[Array, list[str]]:
        """Predict rows whose labels arrive later, and store the rows until then.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default one day
            How long the rows are stored, at most 30 days.

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)
        ids : list of str
            Id of each row, for ``learn_labels``. The rows are on the disk.

        Raises
        ------
        OnepassError
            Any error of the learner; then nothing is stored.
        BusyError
            If more than ``max_pending`` rows would wait; then nothing is stored.
        StoreError
            If the disk is full or fails.
        """
        return self.predict_pending_versioned(X, seconds=seconds)[1:]

    def predict_pending_versioned(
        self, X: TableLike, *, seconds: float = _DAY
    ) -> tuple[int, Array, list[str]]:
        """``predict_pending``, with the version of the learner that predicts as first value."""
        where = f"{self._journal.where}.predict_pending"
        block = read_rows(X, None, where=where)
        check_encodable(block, where)  # each row is encoded separately
        seconds = validation.in_range(seconds, "seconds", where, low=0.0, high=_MAX_SECONDS)
        version, learner = self._writer.published
        with feature_limit(self.max_features):
            predicted = predict_rows(learner, block.X)
        ids = [secrets.token_urlsafe(16) for _ in range(len(block))]
        self._writer.check_caller()
        request = Request(block, ids=ids, until=self._writer.now() + seconds)
        self._writer.put(request)
        request.wait()
        return version, predicted, ids

    def learn_labels(
        self,
        ids: Sequence[str],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> LearnResult:
        """Learn rows of ``predict_pending`` from their labels; each row is learned once.

        Parameters
        ----------
        ids : sequence of str
            Ids of the rows. Either all rows are learned, or none.
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As in ``learn``; the times of the labels, for a learner that forgets by time.

        Returns
        -------
        result : LearnResult
            ``repeated`` if all of the rows were learned before.

        Raises
        ------
        ParameterError
            If an id is unknown or has expired, or if the rows do not all have the same columns.
        IdempotencyConflictError
            If a row was learned with another label.
        OnepassError
            Any error of the learner; then nothing is learned.
        """
        where = f"{self._journal.where}.learn_labels"
        names = id_list(ids, where)
        given = {"y": y, "sample_weight": sample_weight, "time": time}
        parts = [
            None if part is None else aligned(part, name, len(names), where)
            for name, part in given.items()
        ]
        labels = Block(np.empty((len(names), 0)), *parts)
        return self._writer.call(lambda: self._writer.learn_labels(names, labels, where))

    @property
    def labels_pending(self) -> int:
        """Number of rows that wait for their labels."""
        return self._writer.call(lambda: self._journal.count_pending(self._writer.now()))

    @property
    def labels_pending_estimate(self) -> int:
        """``labels_pending`` without waiting; may count rows that expired in the last minute."""
        return self._writer.pending

    # -- predictions ----------------------------------------------------------------------------

    def predict(self, X: TableLike) -> Array:
        """Predict rows with the state after the last acknowledged block."""
        return predict_rows(self.frozen_copy, X)

    def predict_proba(self, X: TableLike) -> Array:
        """Class probabilities, if the learner has them."""
        found: Array = self.frozen_copy.predict_proba(X)
        return found

    def predict_one(self, x: ArrayLike | Mapping[str, object]) -> Any:
        """Predict one row."""
        return self.frozen_copy.predict_one(x)

    @property
    def frozen_copy(self) -> "Learner | Pipeline":
        """A frozen copy of the learner, which predicts with its current state; it cannot learn."""
        return self._writer.published[1]

    @property
    def published(self) -> "tuple[int, Learner | Pipeline]":
        """The current version and its ``frozen_copy``."""
        return self._writer.published

    # -- snapshots and rollback -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        """Snapshots, oldest first; ``rollback`` can restore any version since the oldest."""
        return [
            Version(each.sequence, each.seen, each.at, each.why, each.size)
            for each in self._writer.snapshots
        ]

    def snapshot(self) -> int:
        """Take a snapshot now, and return its version.

        Raises
        ------
        StoreError
            If the disk is full or fails.
        """
        return self._writer.call(lambda: self._writer.snapshot("request"), writes=True)

    def rollback(self, *, to: int) -> int:
        """Restore the state of an earlier version, bit for bit, and return the new version.

        Later blocks are not learned again. Keys and positions are unchanged, so rows that were
        rolled back are not read or accepted again. ``rollback(to=…)`` a later version undoes it.

        Parameters
        ----------
        to : int
            Version to restore, from the oldest of ``versions`` to the current one.

        Raises
        ------
        ParameterError
            If there is no such version, or it was deleted.
        StoreError
            If the disk is full or fails.
        """
        where = f"{self._journal.where}.rollback"
        to = validation.whole(to, "to", where, low=0)

        def work() -> int:
            oldest, latest = self._writer.snapshots[0].sequence, self._journal.sequence
            if not oldest <= to <= latest:
                raise ParameterError(
                    f"{where}: `to` must be a stored version, from {oldest:,} to the current one, "
                    f"{latest:,}, got {to:,}. `versions`, and /state of a service, list the "
                    "snapshots; `snapshots` is how many are stored."
                )
            return self._writer.rollback(to)

        return self._writer.call(work, writes=True)

    def model(self) -> "Learner | Pipeline":
        """A copy of the learner, which can learn and be saved by ``op.save``.

        Available even if the file was removed or cannot be written.

        Raises
        ------
        StoreError
            If a write has failed with unknown outcome, or the file cannot be read.
        """
        return self._writer.call(self._writer.copied)

    @property
    def last_snapshot(self) -> tuple[int, float]:
        """Number of rows learned at the last snapshot, and its time."""
        return self._writer.last_snapshot

    # -- state ----------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of blocks learned."""
        return self._journal.sequence

    @property
    def rows_seen(self) -> int:
        """Number of rows learned."""
        return self._journal.seen

    @property
    def positions(self) -> dict[str, str]:
        """Last position of each source."""
        return dict(self._writer.positions)

    @property
    def ready(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self._writer.ready

    @property
    def error(self) -> str | None:
        """The current error of the file, the disk or a callback, as text; None if there is none."""
        return self._writer.error

    @property
    def max_features(self) -> int | None:
        """Max features of the learner; None for any number."""
        return self._writer.policy.max_features

    def maintain(self, work: Callable[[], None]) -> None:
        """Call a function in the writer's thread about once a second and after each snapshot.

        Parameters
        ----------
        work : callable
            Must be fast, and must not call methods that learn.
        """
        self._writer.hook = work

    def check_compatible(self, model: "Learner | Pipeline") -> None:
        """Check that a learner has the class and parameters of this one.

        Parameters
        ----------
        model : learner or Pipeline

        Raises
        ------
        ParameterError, TypeMismatchError
        """
        where = self._journal.where
        other = ManagedModel.of(model, where).learner
        self._writer.call(lambda: self._writer.model.check_compatible(other, where))

    def check_in_place(self) -> None:
        """Check that the file is still at its path.

        Raises
        ------
        StoreError
        """
        self._journal.check_in_place()

    # -- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Complete all requests, take a snapshot if rows were learned, and close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Durable {self._named} at {self.path}: {self.rows_seen:,} rows, version "
            f"{self.version:,}{', closed' * bool(self._writer.closed)}>"
        )


_WEEK = 7 * 86400.0


def durable(
    path: str | os.PathLike[str],
    model: "Learner | Pipeline | None" = None,
    *,
    snapshot_rows: int = 100_000,
    snapshot_seconds: float = 300.0,
    snapshots: int = 8,
    key_seconds: float = _WEEK,
    max_features: int | None = None,
    max_pending: int = 1 << 20,
    replacements: Mapping[str, object] | None = None,
    clock: Callable[[], float] = time.time,
    watch: Callable[["Learner | Pipeline"], Watcher] | None = None,
) -> Durable:
    """Create or open a durable learner: each row is on the disk before it is acknowledged.

    One SQLite file stores snapshots of the learner, the blocks learned since the oldest of them,
    idempotency keys, positions of sources, and rows that wait for their labels. Reopened after a
    crash, the learner is the same bit for bit, given the same versions of onepass and NumPy and
    the same machine. A small file beside it, ``.lock``, identifies the process that holds it. One
    thread, which ends with ``close``, learns and writes.

    In a forked process the learner only predicts, with its state at the fork.

    Parameters
    ----------
    path : path-like
        The file; created if it does not exist. One process at a time may open it.
    model : learner of tables or Pipeline, optional
        Learner to begin with; it is copied. Optional if the file exists; then it must have the
        class and parameters of the stored learner, which continues.
    snapshot_rows : int, default 100,000
        Rows between two snapshots.
    snapshot_seconds : float, default 300
        Seconds between two snapshots, if rows were learned.
    snapshots : int, default 8
        Number of snapshots stored; the log reaches back to the oldest of them.
    key_seconds : float, default one week
        How long idempotency keys are stored, in seconds.
    max_features : int, optional
        Max features, classes and targets of the learner, including the features that a Pipeline
        makes; rows that would exceed it are refused, and so are blocks of more than 16,777,216
        numbers and labels of more than 256 characters. Least squares take memory quadratic in the
        number of features. By default there is no bound.
    max_pending : int, default 1,048,576
        Max rows that wait for their labels; ``predict_pending`` refuses more. Rows expire after at
        most 30 days.
    replacements : mapping of str to object, optional
        Functions and networks that a file cannot store, as for ``op.load``.
    clock : callable, default ``time.time``
        Read once; later changes of the system clock have no effect.
    watch : callable, optional
        Called with a frozen copy of the learner, it returns a watcher: a function that the writer's
        thread calls with each block of rows and their prequential predictions, after they are
        acknowledged and during replay. It delays the next rows, and must not call methods that
        wait for rows.

    Returns
    -------
    learner : Durable
        A context manager; ``close`` it when done.

    Raises
    ------
    LockedError
        If another process, or this one, has the file open.
    CorruptStoreError
        If the file is not as it was written.
    StoreError
        If the file cannot be opened, created or written, or neither file nor model is given.
    ParameterError, TypeMismatchError
        If the model differs from the stored one, or cannot be stored.

    Examples
    --------
    >>> import tempfile
    >>> import onepass as op
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with op.durable(f"{folder}/flow.db", op.RLSRegressor(ridge=1e-9)) as model:
    ...         result = model.learn([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0], key="first three")
    ...     with op.durable(f"{folder}/flow.db") as model:  # another day
    ...         print(model.rows_seen, model.predict([[4.0]]).round(6))
    3 [9.]
    """
    where = "op.durable"
    validation.whole(snapshot_rows, "snapshot_rows", where, low=1)
    validation.whole(snapshots, "snapshots", where, low=1)
    validation.in_range(snapshot_seconds, "snapshot_seconds", where, low=0.0)
    validation.in_range(key_seconds, "key_seconds", where, low=0.0)
    if max_features is not None:
        validation.whole(max_features, "max_features", where, low=1)
    validation.whole(max_pending, "max_pending", where, low=1)
    path = _file_path(path, where)
    given = None if model is None else ManagedModel.of(model, where)
    policy = Policy(
        snapshot_rows, snapshot_seconds, snapshots, key_seconds, replacements or {}, clock, watch,
        max_features, max_pending,
    )  # fmt: skip
    journal = Journal(path, where)
    try:
        writer = Writer(journal, policy)
        if not journal.empty:
            writer.resume()
            if given is not None:
                writer.model.check_compatible(given.learner, where)
        elif given is not None:
            writer.begin(given)
        else:
            raise StoreError(  # noqa: TRY301  the file must be closed
                f"{where}: {os.fspath(path)} must exist, or `model` be given to create it, got "
                "neither. Give a learner, such as op.RLSRegressor()."
            )
        return Durable(writer)
    except BaseException:
        journal.close()
        raise


def _file_path(path: str | os.PathLike[str], where: str) -> str:
    found = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(found, str) or not found or "\0" in found:
        raise ParameterError(
            f"{where}: `path` must be the path of a file, got {path!r:.100}. Give one, such as "
            "'flow.db'."
        )
    return found
