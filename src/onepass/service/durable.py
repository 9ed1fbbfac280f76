"""Durable learner: every row is on the disk before it is acknowledged.

``Durable`` is the public face of the writer (one thread, which learns and commits) and its journal
(what is on the disk). ``durable`` creates or opens its file.
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
from onepass.service.model import ManagedModel, predictions
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
_LONGEST = 30 * _DAY


@dataclass(frozen=True, slots=True)
class Version:
    """A snapshot, to which ``rollback`` can go back.

    Parameters
    ----------
    version : int
        How many blocks the learner had learned.
    rows_seen : int
        How many rows in all, those that were rolled back too.
    at : float
        When it was taken, in seconds since 1970.
    why : str
        ``"beginning"``, ``"rows"``, ``"time"``, ``"asked"``, ``"close"`` or ``"rollback to …"``.
    nbytes : int
        Of the snapshot.
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
    """A learner, and a file with everything that it has learned; see ``op.durable``.

    Any thread may call any method. Those that learn return when their rows are on the disk, and
    rows that several threads send at once are committed together. Predictions never wait for rows
    to be learned: they use all rows that were acknowledged, and never half a block. An interrupt,
    such as Ctrl-C, ends the waiting alone: the rows are committed or refused all the same, and the
    same key returns the result.

    Attributes
    ----------
    path : Path
    version : int
        How many blocks were learned, including rollbacks.
    rows_seen : int
        How many rows, including those that were rolled back.
    positions : dict of str to str
        The last position of each source that rows came from.
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
            As the learner's own verbs take them.
        key : str, optional
            An idempotency key: a request that is sent again with the same key is learned once, and
            moves no position. The rows must have the same values, in whatever dtype or form.
        source, position : str, optional
            Where the rows came from, and where to go on reading when they are learned: committed
            with them, and listed in ``positions``.

        Returns
        -------
        receipt : Receipt
            Its ``said`` is the prediction for each row just before it was learned.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing was learned, and nothing written.
        IdempotencyConflictError
            If the key came with other rows before.
        StoreError
            If the disk is full: then nothing was learned. If it fails, that is not known; and
            nothing more is learned until it is opened again. If it is called by a function that is
            itself called with rows.
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
        """Learn one row: an array of shape (d,), or a dict of named features; as ``learn`` does."""
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
        """Learn rows, as the learner's own verb does."""
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
        """Learn rows; the predictions for them just before."""
        return self.learn(X, y, sample_weight, time=time).said

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
        """Have rows learned, without waiting.

        Parameters
        ----------
        X, y, sample_weight, time, key
            As for ``learn``.
        source, position
            As for ``learn``.
        done : callable, optional
            Called with the request by the writer's thread once it is decided. It must be quick.
        former : bytes, optional
            A digest under which a former version may have stored this request.

        Raises
        ------
        StoreError
            If it was closed.
        OnepassError
            If these are no rows.
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

    def settle(self) -> None:
        """Wait until all requests that were made before are decided."""
        self._writer.call(self._writer.maintain)

    def commit_position(self, source: str, position: str) -> None:
        """Store where to go on reading a source, behind rows that were refused.

        Parameters
        ----------
        source, position : str
            As for ``learn``.

        Raises
        ------
        ParameterError
            If these are no text.
        StoreError
            If the disk is full or fails.
        """
        where = f"{self._journal.where}.commit_position"
        for name, word in (("source", source), ("position", position)):
            check_text(word, name, where)
        self._writer.call(lambda: self._writer.commit_position(source, position), writes=True)

    # -- delayed labels -------------------------------------------------------------------------

    def ask(self, X: TableLike, *, seconds: float = _DAY) -> tuple[Array, list[str]]:
        """Predictions for rows whose labels come later: the rows are stored until then.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default one day
            How long they are stored, at most 30 days.

        Returns
        -------
        said : ndarray of shape (n,) or (n, c)
        ids : list of str
            One a row, for ``answer``. They are on the disk.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing is stored.
        BusyError
            If more than ``max_pending`` rows would wait: then nothing is stored.
        StoreError
            If the disk is full or fails.
        """
        return self.asked(X, seconds=seconds)[1:]

    def asked(self, X: TableLike, *, seconds: float = _DAY) -> tuple[int, Array, list[str]]:
        """The version that predicts, and what ``ask`` returns."""
        where = f"{self._journal.where}.ask"
        block = read_rows(X, None, where=where)
        check_encodable(block, where)  # each row will be encoded by itself
        seconds = validation.in_range(seconds, "seconds", where, low=0.0, high=_LONGEST)
        version, learner = self._writer.published
        with feature_limit(self.max_features):
            predicted = predictions(learner, block.X)
        ids = [secrets.token_urlsafe(16) for _ in range(len(block))]
        self._writer.check_caller()
        request = Request(block, ids=ids, until=self._writer.now() + seconds)
        self._writer.put(request)
        request.wait()
        return version, predicted, ids

    def answer(
        self,
        ids: Sequence[str],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> LearnResult:
        """Learn rows of ``ask`` with their labels, by their ids; each row is learned once.

        Parameters
        ----------
        ids : sequence of str
            All are learned, or none.
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As in ``learn``; when the labels came, for a learner that forgets by time.

        Returns
        -------
        receipt : Receipt
            ``again`` if all of them were labelled before.

        Raises
        ------
        ParameterError
            If an id is unknown, or its time was over; or if the rows have other columns than each
            other, and so cannot be learned together.
        IdempotencyConflictError
            If a row was labelled otherwise before.
        OnepassError
            Whatever the learner raises: then nothing was learned.
        """
        where = f"{self._journal.where}.answer"
        names = id_list(ids, where)
        given = {"y": y, "sample_weight": sample_weight, "time": time}
        parts = [
            None if part is None else aligned(part, name, len(names), where)
            for name, part in given.items()
        ]
        labels = Block(np.empty((len(names), 0)), *parts)
        return self._writer.call(lambda: self._writer.answer(names, labels, where))

    @property
    def waiting(self) -> int:
        """How many rows wait for their labels."""
        return self._writer.call(lambda: self._journal.waiting(self._writer.now()))

    @property
    def pending(self) -> int:
        """The same without waiting; rows whose time ended within the last minute may be counted."""
        return self._writer.pending

    # -- predictions ----------------------------------------------------------------------------

    def predict(self, X: TableLike) -> Array:
        """Predictions for rows, by the learner as it was when it last learned."""
        return predictions(self.frozen_copy, X)

    def predict_proba(self, X: TableLike) -> Array:
        """The classes' probabilities, of a learner that has them."""
        found: Array = self.frozen_copy.predict_proba(X)
        return found

    def predict_one(self, x: ArrayLike | Mapping[str, object]) -> Any:
        """The prediction for one row."""
        return self.frozen_copy.predict_one(x)

    @property
    def frozen_copy(self) -> "Learner | Pipeline":
        """A frozen copy of the learner, which predicts as it does now; it must not learn."""
        return self._writer.published[1]

    @property
    def published(self) -> "tuple[int, Learner | Pipeline]":
        """The present version, and its frozen copy: see ``frozen_copy``."""
        return self._writer.published

    # -- snapshots and rollback -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        """The snapshots, the oldest first; ``rollback`` goes to any block from the first on."""
        return [
            Version(each.sequence, each.seen, each.at, each.why, each.size)
            for each in self._writer.snapshots
        ]

    def snapshot(self) -> int:
        """Take a snapshot now; the version.

        Raises
        ------
        StoreError
            If the disk is full or fails.
        """
        return self._writer.call(lambda: self._writer.snapshot("asked"), writes=True)

    def rollback(self, *, to: int) -> int:
        """Restore the state after a block, to the last bit; the new version.

        What came later is not learned again. Keys and positions stay: rows that were rolled back
        do not come again by themselves. It can be undone: ``rollback(to=…)`` of a later version.

        Parameters
        ----------
        to : int
            A version, from the oldest of ``versions`` to the present one.

        Raises
        ------
        ParameterError
            If there is no such version, or it is no longer kept.
        StoreError
            If the disk is full or fails.
        """
        where = f"{self._journal.where}.rollback"
        to = validation.whole(to, "to", where, low=0)

        def work() -> int:
            oldest, latest = self._writer.snapshots[0].sequence, self._journal.sequence
            if not oldest <= to <= latest:
                raise ParameterError(
                    f"{where}: `to` must be a version that is kept, from {oldest:,} to the present "
                    f"one, {latest:,}, got {to:,}. `versions`, and /state of a service, lists "
                    "the snapshots; `keep` is how many there are."
                )
            return self._writer.rollback(to)

        return self._writer.call(work, writes=True)

    def model(self) -> "Learner | Pipeline":
        """A copy of the learner, to learn elsewhere or to be saved by ``op.save``.

        It works even if the file was removed or can no longer be written.

        Raises
        ------
        StoreError
            If it is unknown what was acknowledged, or it cannot be read.
        """
        return self._writer.call(self._writer.copied)

    @property
    def last_snapshot(self) -> tuple[int, float]:
        """How many rows had been learned when the last snapshot was taken, and when it was."""
        return self._writer.last_snapshot

    # -- state ----------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """How many blocks were learned."""
        return self._journal.sequence

    @property
    def rows_seen(self) -> int:
        """How many rows were learned."""
        return self._journal.seen

    @property
    def positions(self) -> dict[str, str]:
        """The last position of each source."""
        return dict(self._writer.positions)

    @property
    def ready(self) -> bool:
        """Whether it can learn, as far as is known."""
        return self._writer.ready

    @property
    def trouble(self) -> str | None:
        """What is wrong, even if it can learn; None if all is well."""
        return self._writer.trouble

    @property
    def max_features(self) -> int | None:
        """Max features of the learner; None for any number."""
        return self._writer.policy.max_features

    def maintain(self, work: Callable[[], None]) -> None:
        """Have the writer's thread call a function about once a second, and after each snapshot.

        Parameters
        ----------
        work : callable
            It must be quick, and call no verb that learns.
        """
        self._writer.hook = work

    def check_compatible(self, model: "Learner | Pipeline") -> None:
        """Refuse a learner of another class, or of other parameters, than this one.

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
        """Refuse where the file is not where it was opened.

        Raises
        ------
        StoreError
        """
        self._journal.check_in_place()

    # -- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Decide what waits, take a snapshot if rows were learned since, and close the file."""
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
    keep: int = 8,
    key_seconds: float = _WEEK,
    max_features: int | None = None,
    max_pending: int = 1 << 20,
    replacements: Mapping[str, object] | None = None,
    clock: Callable[[], float] = time.time,
    watch: Callable[["Learner | Pipeline"], Watcher] | None = None,
) -> Durable:
    """A learner that loses nothing: each row is on the disk before it is acknowledged.

    Everything is in one SQLite file: the rows since some snapshots ago, in the blocks in which they
    were learned, the snapshots, keys of requests, positions of sources, and rows that wait for
    their labels. After a crash, opened again, it is the learner that it was: to the last bit, if
    onepass, NumPy and the machine are the same. A small file beside it, ``.lock``, names the
    process that has it. One thread, which ends with ``close``, learns and writes.

    In a process that was forked it only predicts, as it did then.

    Parameters
    ----------
    path : path-like
        The file; made if it is not there. One process at a time has it.
    model : learner of tables or Pipeline, optional
        What begins there; it is copied. For a file that is there it may be left out; if it is
        given, it must be of the same class and parameters, and what is in the file goes on.
    snapshot_rows : int, default 100,000
        After so many rows a snapshot is taken.
    snapshot_seconds : float, default 300
        The same after so long, if rows were learned.
    keep : int, default 8
        How many snapshots are kept, and the log since the oldest of them.
    key_seconds : float, default one week
        How long idempotency keys are remembered.
    max_features : int, optional
        Max features, classes and targets of the learner, including features that a Pipeline makes;
        rows that would bring more are refused, and so are blocks that come to more than 16,777,216
        numbers, and labels of more than 256 characters. Least squares take the square of their
        features in memory. By default any number.
    max_pending : int, default 1,048,576
        Max rows that wait for their labels; ``ask`` refuses more. Rows wait 30 days at most.
    replacements : mapping of str to object, optional
        Functions and networks that no file holds, as ``op.load`` takes them.
    clock : callable, default ``time.time``
        Read once: later steps of a clock change nothing.
    watch : callable, optional
        Called with a frozen copy of the learner; it returns a function that the writer's thread
        calls with each block of rows and the predictions of its rows before, once they were
        acknowledged, and on opening with those that are learned again. It delays the next rows, and
        must call no method that waits for them.

    Returns
    -------
    learner : Durable
        A context manager; ``close`` it in the end.

    Raises
    ------
    LockedError
        If another process has the file, or this one has it open.
    CorruptStoreError
        If the file is not as it was written.
    StoreError
        If it cannot be opened, made or written, or there is neither a file nor a model.
    ParameterError, TypeMismatchError
        If the model is another than the file's, or none that can be kept.

    Examples
    --------
    >>> import tempfile
    >>> import onepass as op
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with op.durable(f"{folder}/flow.db", op.RLSRegressor(ridge=1e-9)) as model:
    ...         receipt = model.learn([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0], key="first three")
    ...     with op.durable(f"{folder}/flow.db") as model:  # another day
    ...         print(model.rows_seen, model.predict([[4.0]]).round(6))
    3 [9.]
    """
    where = "op.durable"
    validation.whole(snapshot_rows, "snapshot_rows", where, low=1)
    validation.whole(keep, "keep", where, low=1)
    validation.in_range(snapshot_seconds, "snapshot_seconds", where, low=0.0)
    validation.in_range(key_seconds, "key_seconds", where, low=0.0)
    if max_features is not None:
        validation.whole(max_features, "max_features", where, low=1)
    validation.whole(max_pending, "max_pending", where, low=1)
    path = _file_path(path, where)
    given = None if model is None else ManagedModel.of(model, where)
    policy = Policy(
        snapshot_rows, snapshot_seconds, keep, key_seconds, replacements or {}, clock, watch,
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
            raise StoreError(  # noqa: TRY301  the file is to be closed
                f"{where}: {os.fspath(path)} must be there, or a `model` to begin with, got "
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
