"""Learners of the partitions of a Kafka topic, which several processes share.

Each partition has its own durable learner, in the file ``TOPIC-NUMBER.db`` of a folder that all
processes share. The consumer group only assigns partitions to processes: a process that is assigned
a partition opens its file and reads from the position in it; a process from which a partition is
revoked finishes its rows, and closes the file. Rows and the position after them are committed in
one transaction, and the lock of the file permits one process at a time: a process that still has
the file open, although the group has excluded it, delays the next one. So each message is learned
exactly once, also if processes are killed or suspended at any time.

A process copies its learners to the files ``TOPIC-NUMBER.onepass`` at intervals, and when it closes
them; :func:`merge_partitions` merges these.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import clone

from onepass import validation
from onepass.errors import ParameterError, StoreError, calling
from onepass.serialization.models import load, save
from onepass.service.consumer import SourceConsumer, check_times
from onepass.service.durable import Durable, durable
from onepass.service.kafka import KafkaTopic
from onepass.service.model import copied_learner

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

_WHERE = "PartitionedLearner"
_END = -1  # offset of librdkafka
_POLL = 0.25  # seconds to wait for assignments, and between attempts to open a file


@dataclass
class _Partition:
    """An assigned partition."""

    durable: Durable
    consumer: SourceConsumer
    file: Path
    copied: int = -1
    """Version of the learner in ``file``."""

    def copy(self) -> None:
        """Save the learner, if it has changed."""
        version = self.durable.version
        if version != self.copied:
            save(self.durable.model(), self.file)
            self.copied = version


class PartitionedLearner:
    """Learns the partitions of a Kafka topic that a consumer group assigns to this process.

    Each partition has its own learner, which moves with the partition from process to process. Each
    message is learned exactly once by the learner of its partition, in order. A thread learns until
    ``close``. To learn one model per key of the messages, use ``key=FIELD`` in the address and
    ``op.Keyed(model, by=FIELD)``.

    Parameters
    ----------
    url : str
        Address ``kafka://HOST:9092/TOPIC?target=FIELD&group=NAME``; see
        :mod:`onepass.service.kafka`.
    model : learner or Pipeline
        Learner of each partition, copied for a partition without a file; must support ``merge``.
    workdir : path-like
        Folder that all processes of the group share, with working file locks; created if it does
        not exist.
    copy_seconds : float, default 10
        Seconds between copies of the learners to the files that ``merge_partitions`` reads.
    **options
        Options of ``op.durable``, such as ``snapshot_rows``.

    Attributes
    ----------
    rows_refused : int
        Number of messages that this process has rejected or that were deleted before it read them.
    refused : deque of str
        The last reasons.

    Raises
    ------
    TypeError
        If an option is unknown.
    ParameterError
        If the address is invalid or has no group, or if only one of learner and address has times.
    MergeError, TypeMismatchError
        If the learner cannot be merged or stored.
    MissingExtraError
        If the package confluent-kafka is not installed.

    Examples
    --------
    Run this in several processes:

    >>> import onepass as op
    >>> from onepass.service import PartitionedLearner, merge_partitions
    >>> url = "kafka://localhost:9092/flow?target=y&group=plant"
    >>> model = op.Pipeline(op.features.Encode(), op.RLSRegressor())
    >>> with PartitionedLearner(url, model, "flow") as learner:  # doctest: +SKIP
    ...     learner.wait()

    Read the result in any process:

    >>> merge_partitions("flow", "flow").predict([{"km": 4.0}])  # doctest: +SKIP
    array([9.])
    """

    def __init__(
        self,
        url: str,
        model: Learner | Pipeline,
        workdir: str | os.PathLike[str],
        *,
        copy_seconds: float = 10.0,
        **options: Any,
    ) -> None:
        signature(durable).bind("", None, **options)  # raises an error for unknown options
        self._topic = topic = KafkaTopic(url, 0)
        if topic.group is None:
            raise ParameterError(
                "the address must name the consumer group, got no `group`. Add "
                "&group=NAME, with the same name in all processes.",
                _WHERE,
            )
        with calling(_WHERE):
            validation.in_range(copy_seconds, "copy_seconds", low=0.0)
            self._model = copied_learner(model)
        clone(self._model).merge(clone(self._model))  # raises an error if it cannot be merged
        check_times(self._model, topic)
        self._folder = Path(workdir)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._url, self._options = url, options
        self._copy_seconds, self._copy_at = copy_seconds, 0.0
        self._lock = Lock()
        self.rows_refused = 0
        self.refused: deque[str] = deque(maxlen=100)
        self._assigned: set[int] = set()
        self._open: dict[int, _Partition] = {}
        self._errors: dict[int | None, str] = {}  # by partition; None: of the group
        self._end = Event()
        self._thread = Thread(target=self._work, name=f"group {topic.group}", daemon=True)
        self._thread.start()

    @property
    def partitions(self) -> dict[int, Durable]:
        """The durable learners of the partitions that this process has open, by number."""
        return {number: each.durable for number, each in sorted(self._open.copy().items())}

    @property
    def errors(self) -> list[str]:
        """Why partitions are not assigned, opened or read, now; empty without an error."""
        found = [each.consumer.error for each in self._open.copy().values()]
        return [error for error in (*self._errors.copy().values(), *found) if error is not None]

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until ``close`` is called; return whether it was, or False after some seconds."""
        return self._end.wait(seconds)

    def close(self) -> None:
        """Finish the current rows, close all files, and leave the group."""
        self._end.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        consumer = self._topic.consumer
        consumer.subscribe(
            [self._topic.topic],
            on_assign=self._assign,
            on_revoke=lambda _, found: self._release([each.partition for each in found]),
        )
        while not self._end.is_set():
            try:
                self._topic.poll(_POLL)  # calls on_assign and on_revoke; returns no messages
                self._maintain()
            except Exception as error:  # noqa: BLE001  reported and retried
                self._errors[None], self._copy_at = str(error) or repr(error), 0.0
                self._end.wait(_POLL)
        self._release([*self._open])
        consumer.close()

    def _assign(self, consumer: Any, found: list[Any]) -> None:
        """Note assigned partitions, from which the consumer of the group must not read."""
        for each in found:
            each.offset = _END
        consumer.assign(found)
        consumer.pause(found)
        self._assigned.update(each.partition for each in found)

    def _maintain(self) -> None:
        """Open assigned partitions, and copy learners and check the connection if due."""
        for number in self._assigned - self._open.keys():
            try:
                self._open[number] = self._opened(number)
                self._errors.pop(number, None)
            except Exception as error:  # noqa: BLE001  such as LockedError; retried
                self._errors[number] = str(error) or repr(error)
        if (now := time.monotonic()) >= self._copy_at:
            self._copy_at = now + self._copy_seconds
            self._topic.partitions()  # raises an error without a connection
            for each in self._open.values():
                each.copy()
            self._errors.pop(None, None)

    def _opened(self, number: int) -> _Partition:
        stem = f"{self._topic.topic}-{number}"
        learner = durable(self._folder / f"{stem}.db", self._model, **self._options)
        try:
            consumer = SourceConsumer(learner, KafkaTopic(self._url, number), self._refuse)
        except BaseException:
            learner.close()
            raise
        return _Partition(learner, consumer, self._folder / f"{stem}.onepass")

    def _release(self, numbers: list[int]) -> None:
        """Close partitions, all at the same time."""
        self._assigned.difference_update(numbers)
        for number in numbers:
            self._errors.pop(number, None)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._close, self._open.keys() & numbers))

    def _close(self, number: int) -> None:
        """Finish the current rows, save the learner, and close its file."""
        each = self._open.pop(number)
        try:
            with each.durable:
                each.consumer.close()
                each.copy()
        except Exception as error:  # noqa: BLE001  all rows are in the partition's file
            self._errors[number] = str(error) or repr(error)

    def _refuse(self, rows: int, why: str) -> None:
        with self._lock:
            self.rows_refused += rows
            self.refused.append(why)


def merge_partitions(
    workdir: str | os.PathLike[str], topic: str, **replacements: object
) -> Learner | Pipeline:
    """Merge the learners of all partitions, in the order of their numbers.

    The learners are those that the processes of :class:`PartitionedLearner` have last copied: each
    has learned the messages of its partition up to some offset. With forgetting, the partitions
    count as streams that ran side by side.

    Parameters
    ----------
    workdir : path-like
        Folder of the learners.
    topic : str
    **replacements
        As for ``op.load``.

    Returns
    -------
    model : learner or Pipeline

    Raises
    ------
    StoreError
        If the folder has no learner of the topic.
    MergeError
        If the learners cannot be merged.
    """
    form = re.compile(rf"{re.escape(topic)}-([0-9]+)\.onepass")
    found = {
        int(m[1]): path for path in Path(workdir).glob("*") if (m := form.fullmatch(path.name))
    }
    if not found:
        raise StoreError(
            f"{workdir} must contain learners of the topic {topic!r}, such as "
            f"{topic}-0.onepass, got none. Check the folder and the topic.",
            "merge_partitions",
        )
    merged: Any
    merged, *others = (load(path, **replacements) for _, path in sorted(found.items()))
    for other in others:
        merged.merge(other, concurrent=True)
    return merged  # type: ignore[no-any-return]
