"""Durable learners: every row is on the disk before it is acknowledged.

``Durable`` is the public interface of a writer, the thread that learns and commits, and of its
journal, the file. ``durable`` creates or opens the file.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from onepass import validation
from onepass.errors import StoreError, calling
from onepass.service.delayed import id_list
from onepass.service.journal import Journal
from onepass.service.model import check_compatible, copied_learner, predict_rows
from onepass.service.requests import (
    LearnResult,
    Request,
    check_labelled,
    check_text,
    read_rows,
)
from onepass.service.writer import DAY, Policy, Watcher, Writer
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.table import TableLike, named_row

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot that ``rollback`` can restore.

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

    All methods are thread-safe. Methods that learn return when their rows are on the disk; rows
    that several threads send at the same time are committed together. Predictions do not wait for
    rows to be learned: they use all acknowledged rows, and never a part of a block. An interrupt,
    such as Ctrl-C, ends only the waiting: the rows are still committed or rejected, and a request
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
        writer.start()
        weakref.finalize(self, writer.release)

    # -- learning -------------------------------------------------------------------------------

    @calling("Durable.learn")
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
        """Learn rows; they are on the disk when the method returns.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            Times of the rows, for a learner that forgets by time.
        key : str, optional
            Idempotency key: a second request with the same key returns the first result, and
            changes neither the learner nor positions. Its rows must have the same values; dtype and
            container may differ.
        source, position : str, optional
            Source of the rows, and the position from which to continue reading the source.
            Committed in the same transaction as the rows, and listed in ``positions``.

        Returns
        -------
        result : LearnResult
            Version, and prequential predictions: each row is predicted before it is learned.

        Raises
        ------
        OnepassError
            If the learner raises it; then nothing is learned or written.
        IdempotencyConflictError
            If the key was used with other rows.
        StoreError
            If the disk is full; then nothing is learned. If the disk fails; then it is unknown
            whether the rows were written, and the learner rejects rows until the file is reopened.
            If a callback or watcher calls the method, which would wait for itself.
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

    @calling("Durable.learn")
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

        Raises
        ------
        StoreError
            If the learner is closed.
        OnepassError
            If the rows are invalid.
        """
        check_labelled(y)
        rows = read_rows(X, y, sample_weight, time)
        return self._writer.enqueue(rows, key, source, position, done)

    @calling("Durable.commit_pending")
    def commit_pending(self) -> None:
        """Wait until all enqueued requests are committed or rejected."""
        self._writer.call(self._writer.maintain)

    @calling("Durable.commit_position")
    def commit_position(self, source: str, position: str) -> None:
        """Commit a source's position without rows, to skip rows that were rejected.

        Parameters
        ----------
        source, position : str
            As for ``learn``.

        Raises
        ------
        ParameterError
            If ``source`` or ``position`` is not text.
        StoreError
            If the disk is full or fails.
        """
        check_text(source, "source")
        check_text(position, "position")
        self._writer.call(lambda: self._writer.commit_position(source, position))

    # -- delayed labels -------------------------------------------------------------------------

    @calling("Durable.predict_pending")
    def predict_pending(self, X: TableLike, *, seconds: float = DAY) -> tuple[Array, list[str]]:
        """Predict rows, and store them until their labels arrive.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default one day
            How long the rows are stored, in seconds; at most 30 days.

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)
        ids : list of str
            Id of each row, for ``learn_labels``. The rows are on the disk.

        Raises
        ------
        OnepassError
            If the learner raises it; then nothing is stored.
        BusyError
            If more than ``max_pending`` rows would wait for labels; then nothing is stored.
        StoreError
            If the disk is full or fails.
        """
        return self._writer.predict_pending(X, seconds)[1:]

    @calling("Durable.learn_labels")
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
            Ids of the rows. Either all rows are learned, or no row.
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            Times of the labels, for a learner that forgets by time.

        Returns
        -------
        result : LearnResult
            Predictions as in ``learn``; ``repeated`` is True if all rows were learned before.

        Raises
        ------
        ParameterError
            If an id is unknown or has expired, or if the rows do not all have the same columns.
        IdempotencyConflictError
            If a row was learned with another label.
        OnepassError
            If the learner raises it; then nothing is learned.
        """
        names = id_list(ids)
        labels = read_rows(np.empty((len(names), 0)), y, sample_weight, time)
        return self._writer.call(lambda: self._writer.learn_labels(names, labels))

    @property
    def labels_pending(self) -> int:
        """Number of rows that wait for their labels."""
        return self._writer.call(lambda: self._journal.count_pending(self._writer.now()))

    # -- predictions ----------------------------------------------------------------------------

    def predict(self, X: TableLike, *, return_std: bool = False) -> Any:
        """Predict rows with the state after the last acknowledged block.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        return_std : bool, default=False
            Whether to also return the standard deviation of a new target, as
            ``RLSRegressor.predict``. The learner is then copied, in time proportional to its state.

        Returns
        -------
        predictions : ndarray of shape (n,) or (n, c)
        std : ndarray of the same shape
            Only with ``return_std``.
        """
        if return_std:
            learner: Any = self.model()
            return learner.predict(X, return_std=True)
        return predict_rows(self.frozen_copy, X)

    def recall(self, X: TableLike) -> Array:
        """Predict rows of the whole past, if the learner is a mixture that can."""
        learner: Any = self.frozen_copy
        recalled: Array = learner.recall(X)
        return recalled

    def predict_proba(self, X: TableLike) -> Array:
        """Predict class probabilities, if the learner has them."""
        learner: Any = self.frozen_copy
        probabilities: Array = learner.predict_proba(X)
        return probabilities

    def predict_proba_one(self, x: ArrayLike | Mapping[str, object]) -> dict[Any, float]:
        """Predict class probabilities of one row, by label."""
        learner: Any = self.frozen_copy
        probabilities: dict[Any, float] = learner.predict_proba_one(x)
        return probabilities

    def predict_one(self, x: ArrayLike | Mapping[str, object]) -> Any:
        """Predict one row."""
        return self.frozen_copy.predict_one(x)

    @property
    def frozen_copy(self) -> Learner | Pipeline:
        """Frozen copy of the learner, which predicts with the current state and cannot learn."""
        return self._writer.published[1]

    # -- snapshots and rollback -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        """Snapshots, oldest first; ``rollback`` can restore all versions since the oldest one."""
        return [
            Version(each.sequence, each.seen, each.at, each.why, each.size)
            for each in self._writer.snapshots
        ]

    @calling("Durable.snapshot")
    def snapshot(self) -> int:
        """Take a snapshot now, and return its version.

        Raises
        ------
        StoreError
            If the disk is full or fails.
        """
        return self._writer.call(lambda: self._writer.snapshot("request"))

    @calling("Durable.rollback")
    def rollback(self, *, to: int) -> int:
        """Restore the state of an earlier version, bit for bit, and return the new version.

        Later blocks are not learned again. Keys and positions are unchanged, so rows that were
        rolled back are not read or learned again. To undo a rollback, roll back to the version
        before it.

        Parameters
        ----------
        to : int
            Version to restore, from the oldest of ``versions`` to the current one.

        Raises
        ------
        ParameterError
            If the version does not exist, or is older than the oldest snapshot.
        StoreError
            If the disk is full or fails.
        """
        to = validation.whole(to, "to", low=0)
        return self._writer.call(lambda: self._writer.rollback(to))

    @calling("Durable.model")
    def model(self, *, version: int | None = None) -> Learner | Pipeline:
        """Return a copy of the learner, which can learn and be saved by ``op.save``.

        The copy of the current version is returned even if the file was removed or cannot be
        written.

        Parameters
        ----------
        version : int, optional
            Version to copy, from the oldest of ``versions`` to the current one, the default. For an
            earlier version the rows since its snapshot are learned again, during which the learner
            waits.

        Raises
        ------
        ParameterError
            If the version does not exist, or is older than the oldest snapshot.
        StoreError
            If a write has failed with unknown outcome, or the file cannot be read.
        """
        if version is not None:
            version = validation.whole(version, "version", low=0)
        return self._writer.call(lambda: self._writer.copied(version))

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

    # -- closing --------------------------------------------------------------------------------

    @calling("Durable.close")
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


@calling("op.durable")
def durable(
    path: str | os.PathLike[str],
    model: Learner | Pipeline | None = None,
    *,
    snapshot_rows: int = 100_000,
    snapshot_seconds: float = 300.0,
    snapshots: int = 8,
    key_seconds: float = 7 * DAY,
    max_features: int | None = None,
    max_pending: int = 1 << 20,
    replacements: Mapping[str, object] | None = None,
    clock: Callable[[], float] = time.time,
    watch: Callable[[Learner | Pipeline], Watcher] | None = None,
) -> Durable:
    """Create or open a durable learner: each row is on the disk before it is acknowledged.

    One SQLite file stores snapshots of the learner, the blocks learned since the oldest snapshot,
    idempotency keys, positions of sources, and rows that wait for their labels. If the file is
    reopened after a crash, the learner is the same bit for bit, given the same versions of onepass
    and NumPy and the same machine. A small file beside the SQLite file, ``.lock``, identifies the
    process that has the file open. One thread learns and writes until ``close``.

    In a forked process the learner only predicts, with the state at the fork.

    Parameters
    ----------
    path : path-like
        Path of the file; created if it does not exist. One process at a time may open the file.
    model : learner of tables or Pipeline, optional
        Learner, which is copied into a new file. If the file exists, the stored learner continues,
        and ``model`` is optional and must have the same class and parameters.
    snapshot_rows : int, default 100,000
        Rows between two snapshots.
    snapshot_seconds : float, default 300
        Seconds between two snapshots, if rows were learned.
    snapshots : int, default 8
        Number of snapshots stored; the log begins at the oldest of these.
    key_seconds : float, default one week
        How long idempotency keys are stored, in seconds.
    max_features : int, optional
        Max features, classes and targets of the learner, including the features that a Pipeline
        computes. Rows that would exceed the limit are rejected, as are blocks of more than
        16,777,216 numbers and labels of more than 256 characters. Least-squares learners require
        memory quadratic in the number of features. Unlimited by default.
    max_pending : int, default 1,048,576
        Max rows that wait for their labels; ``predict_pending`` rejects further rows. Rows expire
        after at most 30 days.
    replacements : mapping of str to object, optional
        Functions and networks that a file cannot store, as for ``op.load``.
    clock : callable, default ``time.time``
        System clock, in seconds since 1970; read once, so later changes of the clock have no
        effect.
    watch : callable, optional
        Function that is called with a frozen copy of the learner, and returns a watcher: a function
        that the writer's thread calls with each block of rows and its prequential predictions,
        after the block is acknowledged, and during replay. The next rows wait for the watcher,
        which must not call methods that wait for rows.

    Returns
    -------
    learner : Durable
        Durable learner, also a context manager; call ``close`` when done.

    Raises
    ------
    LockedError
        If the file is open in another process or already open in this process.
    CorruptStoreError
        If the file is damaged or was altered.
    StoreError
        If the file cannot be opened, created or written, or there is neither a file nor a model.
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
    validation.whole(snapshot_rows, "snapshot_rows", low=1)
    validation.whole(snapshots, "snapshots", low=1)
    validation.in_range(snapshot_seconds, "snapshot_seconds", low=0.0)
    validation.in_range(key_seconds, "key_seconds", low=0.0)
    if max_features is not None:
        validation.whole(max_features, "max_features", low=1)
    validation.whole(max_pending, "max_pending", low=1)
    copied = None if model is None else copied_learner(model)
    policy = Policy(
        snapshot_rows, snapshot_seconds, snapshots, key_seconds, replacements or {}, clock, watch,
        max_features, max_pending,
    )  # fmt: skip
    journal = Journal(path)
    try:
        writer = Writer(journal, policy)
        if not journal.empty:
            writer.resume()
            if copied is not None:
                check_compatible(writer.model, copied)
        elif copied is not None:
            writer.begin(copied)
        else:
            raise StoreError(  # noqa: TRY301  the file must be closed
                f"{journal.path} must exist, or `model` must be passed to create it, got "
                "neither. Pass a learner, such as op.RLSRegressor(), or correct the path.",
            )
        return Durable(writer)
    except BaseException:
        journal.close()
        raise
