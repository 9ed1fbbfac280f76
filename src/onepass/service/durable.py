"""Durable learner: every row is on the disk before it is acknowledged.

``Durable`` is the public face of three parts: the journal (what is on the disk), the writer (what
is learned and committed) and the queue of requests (who has the turn). ``durable`` creates or opens
its file.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from onepass import validation
from onepass.errors import ParameterError, StoreError
from onepass.service.delayed import id_list, match
from onepass.service.journal import Journal
from onepass.service.queue import RequestQueue
from onepass.service.requests import (
    Block,
    Receipt,
    Request,
    aligned,
    hold_answered,
    hold_size,
    hold_text,
    hold_written,
    read_rows,
    written,
)
from onepass.service.writer import Charge, Keeper, Policy, Watcher, said_of
from onepass.types import Array, ArrayLike, TimeLike
from onepass.validation.arrays import bounded
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
    """A learner, and a file in which everything stands that it has learned; see ``op.durable``.

    Any thread may call any method. Those that learn return when their rows are on the disk, and
    rows that several threads give at once are written together. Those that only ask never wait for
    rows to be learned: they see all rows that were acknowledged, and never half a block.

    Attributes
    ----------
    path : Path
    version : int
        How many blocks were learned, rollbacks counted too.
    rows_seen : int
        How many rows, those that were rolled back too.
    positions : dict of str to str
        The last position of each source that rows came from.
    """

    def __init__(self, journal: Journal, keeper: Keeper) -> None:
        self.path = journal.path
        self._journal, self._keeper = journal, keeper
        self._queue = RequestQueue(journal, keeper)
        self._named = repr(keeper.answering)
        self._learning = f"{journal.where}.learn"

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
    ) -> Receipt:
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
            with them, and told by ``positions``.

        Returns
        -------
        receipt : Receipt
            Its ``said`` was said of each row just before it was learned.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing was learned, and nothing written.
        KeyReusedError
            If the key came with other rows before.
        StoreError
            If the disk is full: then nothing was learned. If it fails, that is not known; and
            nothing more is learned until it is opened again.
        """
        request = self._request(X, y, sample_weight, time, key, None, source, position)
        self._queue.hold_idle()
        return self._queue.wait(request)

    def learn_one(
        self,
        x: ArrayLike | Mapping[str, object],
        y: Any,
        sample_weight: float = 1.0,
        *,
        time: Any = None,
        key: str | None = None,
    ) -> Receipt:
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
        """Learn rows; what would have been said of each just before learning it."""
        return self.learn(X, y, sample_weight, time=time).said

    def request(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
        key: str | None = None,
        digest: bytes | None = None,
        source: str | None = None,
        position: str | None = None,
        done: Callable[[Request], None] | None = None,
        former: bytes = b"",
    ) -> Request:
        """Rows to be learned by the next ``settle``, for those who do not wait.

        Parameters
        ----------
        X, y, sample_weight, time, key
            As for ``learn``.
        digest : bytes, optional
            What tells this request from others with the same key, if it was computed before.
        source, position
            As for ``learn``.
        done : callable, optional
            Called with the request when it is decided on, by the thread that settles it, or
            refused by the one that closes this meanwhile.
        former : bytes, optional
            A digest under which a former version may have noted this request.

        Raises
        ------
        StoreError
            If it was closed.
        OnepassError
            If these are no rows.
        """
        request = self._request(X, y, sample_weight, time, key, digest, source, position)
        request.done, request.former = done, former
        self._queue.put(request)
        return request

    def _request(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        time: TimeLike | None,
        key: str | None,
        digest: bytes | None,
        source: str | None,
        position: str | None,
    ) -> Request:
        where = self._learning
        hold_answered(y, where)
        if (source is None) != (position is None):
            raise ParameterError(
                f"{where}: `source` and `position` must be given together, got {source!r} and "
                f"{position!r}. Give both, or neither."
            )
        if key is not None:
            hold_text(key, "key", where)
        if source is not None:
            hold_text(source, "source", where)
            hold_text(position, "position", where)
        block = read_rows(X, y, sample_weight, time, where=where)
        body = b"" if block.plain else written(block, where)
        size = len(body) or block.X.nbytes
        hold_size(size, where)
        keys = [] if key is None else [(f"k{key}", digest or block.digest())]
        return Request(block, body, size, keys, source, position)

    def settle(self) -> None:
        """Decide on all requests that wait by now; what is wrong with one is noted there."""
        with self._queue.exclusive():
            self._queue.settle()

    def pass_by(self, source: str, position: str) -> None:
        """Note where to go on reading a source, of rows that were refused.

        Parameters
        ----------
        source, position : str
            As for ``learn``.

        Raises
        ------
        ParameterError
            If these are no words.
        StoreError
            If the disk is full or fails: then it is as it was.
        """
        where = f"{self._journal.where}.pass_by"
        for name, word in (("source", source), ("position", position)):
            hold_text(word, name, where)
        with self._queue.writing():
            self._keeper.pass_by(source, position)

    # -- delayed labels -------------------------------------------------------------------------

    def ask(self, X: TableLike, *, seconds: float = _DAY) -> tuple[Array, list[str]]:
        """Answers for rows whose own answers come later: the rows are kept until then.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default one day
            How long they wait, at most 30 days.

        Returns
        -------
        said : ndarray of shape (n,) or (n, c)
        ids : list of str
            One a row, for ``answer``. They are on the disk.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing was kept.
        BusyError
            If more than ``most_pending`` rows would wait: then nothing is stored.
        StoreError
            If the disk is full or fails: then nothing was kept.
        """
        return self.asked(X, seconds=seconds)[1:]

    def asked(self, X: TableLike, *, seconds: float = _DAY) -> tuple[int, Array, list[str]]:
        """What ``ask`` returns, and before it the version that has answered."""
        where = f"{self._journal.where}.ask"
        block = read_rows(X, None, where=where)
        hold_written(block, where)  # each row will be, by itself
        seconds = validation.in_range(seconds, "seconds", where, low=0.0, high=_LONGEST)
        version, learner = self._keeper.published
        with bounded(self.most_features):
            said = said_of(learner, block.X)
        ids = [secrets.token_urlsafe(16) for _ in range(len(block))]
        self._queue.hold_idle()
        self._queue.wait(Request(block, ids=ids, until=self._keeper.now() + seconds))
        return version, said, ids

    def answer(
        self,
        ids: Sequence[str],
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        time: TimeLike | None = None,
    ) -> Receipt:
        """Learn rows that were asked, by their ids; one that was answered before is not again.

        Parameters
        ----------
        ids : sequence of str
            All are learned, or none.
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As in ``learn``; when the answers came, for a learner that forgets by time.

        Returns
        -------
        receipt : Receipt
            ``again`` if all of them were answered before.

        Raises
        ------
        ParameterError
            If an id is unknown, or its time was over; or if the rows have other columns than each
            other, and so cannot be learned together.
        KeyReusedError
            If a row was answered before, and otherwise.
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
        with self._queue.exclusive():
            self._queue.hold_open()
            self._keeper.hold_ready()
            labels = Block(np.empty((len(names), 0)), *parts)
            found = match(self._journal, self._keeper.now(), names, labels, where)
            learned = self._queue.wait(found.request(where)) if found.rows else None
            return found.receipt(names, learned)

    @property
    def waiting(self) -> int:
        """How many rows wait for their answers."""
        with self._queue.reading():
            return self._journal.waiting(self._keeper.now())

    # -- predictions ----------------------------------------------------------------------------

    def predict(self, X: TableLike) -> Array:
        """Answers for rows, by the learner as it was when it last learned."""
        return said_of(self._keeper.answering, X)

    def predict_proba(self, X: TableLike) -> Array:
        """The classes' probabilities, of a learner that has them."""
        said: Array = self._keeper.answering.predict_proba(X)
        return said

    def predict_one(self, x: ArrayLike | Mapping[str, object]) -> Any:
        """The answer for one row."""
        return self._keeper.answering.predict_one(x)

    @property
    def answering(self) -> "Learner | Pipeline":
        """A learner that says what this one says now, and goes on saying it; it is not to learn."""
        return self._keeper.answering

    @property
    def published(self) -> "tuple[int, Learner | Pipeline]":
        """The present version, and the learner that answers with it: see ``answering``."""
        self._queue.land()
        return self._keeper.published

    # -- snapshots and rollback -----------------------------------------------------------------

    @property
    def versions(self) -> list[Version]:
        """The snapshots, the oldest first; ``rollback`` goes to any block from the first on."""
        with self._queue.reading():
            return [
                Version(each.sequence, each.seen, each.at, each.why, each.size)
                for each in self._journal.snapshots()
            ]

    def snapshot(self) -> int:
        """Take a snapshot now; the version.

        Raises
        ------
        StoreError
            If the disk is full or fails.
        """
        with self._queue.writing():
            self._keeper.snapshot("asked")
            return self._journal.sequence

    def rollback(self, *, to: int) -> int:
        """Be again as after a block, to the last bit; the new version.

        What came later is not learned again. Keys stay known, and positions stay as they are: rows
        that were rolled back do not come again by themselves. The way back is kept too:
        ``rollback(to=…)`` of a later version.

        Parameters
        ----------
        to : int
            A version, from the oldest of ``versions`` to the present one.

        Raises
        ------
        ParameterError
            If there is no such version, or it is no longer kept.
        StoreError
            If the disk is full or fails: then all is as it was.
        """
        with self._queue.writing():
            where = f"{self._journal.where}.rollback"
            to = validation.whole(to, "to", where, low=0)
            oldest, latest = self._journal.snapshots()[0].sequence, self._journal.sequence
            if not oldest <= to <= latest:
                raise ParameterError(
                    f"{where}: `to` must be a version that is kept, from {oldest:,} to the present "
                    f"one, {latest:,}, got {to:,}. `versions`, and /state of a service, lists "
                    "the snapshots; `keep` is how many there are."
                )
            self._keeper.rollback(to)
            return self._journal.sequence

    @property
    def written(self) -> "Learner | Pipeline | None":
        """The learner as it was last written down, to be looked at; None if it is large."""
        return self._keeper.written

    def model(self) -> "Learner | Pipeline":
        """A copy of the learner, to learn elsewhere or to be saved by ``op.save``.

        Even if its file is lost, or cannot be written any more, as long as it is what was
        acknowledged.

        Raises
        ------
        StoreError
            If that is not known, and cannot be read.
        """
        with self._queue.exclusive():
            self._queue.settle()
            return self._keeper.copied()

    @property
    def last_snapshot(self) -> tuple[int, float]:
        """How many rows had been learned when the last snapshot was taken, and when it was."""
        return self._keeper.last_snapshot

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
        self._queue.land()
        return dict(self._keeper.positions)

    @property
    def ready(self) -> bool:
        """Whether it can learn, as far as is known."""
        return self._keeper.ready

    @property
    def trouble(self) -> str | None:
        """What is wrong, even if it can learn; None if all is well."""
        return self._keeper.trouble

    @property
    def most_features(self) -> int | None:
        """So many features may come to the learner; None for any number."""
        return self._keeper.policy.most_features

    def watch(self, watcher: Watcher) -> None:
        """Have each block told that is learned from now on, once it is on the disk.

        Parameters
        ----------
        watcher : callable
            Called with the block and with what was said of its rows before, by whoever has the
            turn: it must be quick, and call no verb that learns. It may return a function for what
            may take longer: called after the rows are settled, though a ``learn`` in this thread
            returns only then, and left out if an interrupt comes in between.
        """
        self._keeper.watch = watcher

    def hold_like(self, model: "Learner | Pipeline") -> None:
        """Refuse a learner of another class, or of other parameters, than this one.

        Parameters
        ----------
        model : learner or Pipeline

        Raises
        ------
        ParameterError, TypeMismatchError
        """
        where = self._journal.where
        self._keeper.charge.hold_like(Charge.of(model, where).learner, where)

    def hold_in_place(self) -> None:
        """Refuse where the file is not where it was opened.

        Raises
        ------
        StoreError
        """
        self._journal.hold_in_place()

    # -- closing --------------------------------------------------------------------------------

    def turn(self, seconds: float) -> AbstractContextManager[bool]:
        """Within this context nobody else does anything to the file, if that came about in time.

        Parameters
        ----------
        seconds : float
            How long to wait for others.
        """
        return self._queue.turn(seconds)

    def close(self) -> None:
        """Decide on what waits, take a snapshot if rows were learned since, and let the file go."""
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Durable {self._named} at {self.path}: {self.rows_seen:,} rows, version "
            f"{self.version:,}{', closed' * bool(self._queue.closed)}>"
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
    most_features: int | None = None,
    most_pending: int = 1 << 20,
    replacements: Mapping[str, object] | None = None,
    clock: Callable[[], float] = time.time,
    watch: Callable[["Learner | Pipeline"], Watcher] | None = None,
) -> Durable:
    """A learner that loses nothing: each row is on the disk before it is acknowledged.

    Everything stands in one SQLite file: the rows since some snapshots ago, in the blocks in which
    they were learned, the snapshots, keys of requests, positions of sources, and rows that wait for
    their answers. After a crash, opened again, it is the learner that it was: to the last bit, if
    onepass, NumPy and the machine are the same. A small file beside it, ``.lock``, says who has it.

    A process that is forked has no part in it: there it only answers, as it did then.

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
        So many snapshots are kept, and the log since the oldest of them.
    key_seconds : float, default one week
        How long idempotency keys are remembered.
    most_features : int, optional
        So many features, classes and answers a row may come to the learner, and features are
        those that a Pipeline makes; rows that would bring more are refused, and so are blocks that
        come to more than 16,777,216 numbers, and labels of more than 256 characters. Least squares
        take the square of their features in memory. By default as many as come.
    most_pending : int, default 1,048,576
        Max rows that wait for their labels; ``ask`` refuses more. Rows wait 30 days at most.
    replacements : mapping of str to object, optional
        Functions and networks that no file holds, as ``op.load`` takes them.
    clock : callable, default ``time.time``
        Read once: later steps of a clock change nothing.
    watch : callable, optional
        Called with the learner, for answers alone; it returns a function that is called with each
        block of rows that is learned, and with what was said of them before: once they are on the
        disk, and on opening with those that are learned again from there. It may return a
        function for what may take longer: called after the rows are settled, though a ``learn``
        in the same thread returns only then, and left out if an interrupt comes in between.

    Returns
    -------
    learner : Durable
        A context manager; ``close`` it in the end.

    Raises
    ------
    InUseError
        If another process has the file, or this one has it open.
    DamagedError
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
    if most_features is not None:
        validation.whole(most_features, "most_features", where, low=1)
    validation.whole(most_pending, "most_pending", where, low=1)
    path = _file_path(path, where)
    given = None if model is None else Charge.of(model, where)
    policy = Policy(
        snapshot_rows,
        snapshot_seconds,
        keep,
        key_seconds,
        replacements or {},
        clock,
        watch,
        most_features,
        most_pending,
    )
    journal = Journal(path, where)
    try:
        keeper = Keeper(journal, policy)
        if not journal.empty:
            keeper.resume()
            if given is not None:
                keeper.charge.hold_like(given.learner, where)
        elif given is not None:
            keeper.begin(given)
        else:
            raise StoreError(  # noqa: TRY301  the file is to be let go
                f"{where}: {os.fspath(path)} must be there, or a `model` to begin with, got "
                "neither. Give a learner, such as op.RLSRegressor()."
            )
        return Durable(journal, keeper)
    except BaseException:
        journal.close()
        raise


def _file_path(path: str | os.PathLike[str], where: str) -> str:
    try:
        found: str | bytes = os.fspath(path)
    except TypeError:
        found = b""
    if not isinstance(found, str) or not found or "\0" in found:
        raise ParameterError(
            f"{where}: `path` must be the path of a file, got {path!r:.100}. Give one, such as "
            "'flow.db'."
        )
    return found
