"""A Kafka topic as a source of rows: the value of each message is a JSON object, and one row.

Numbers and booleans become numbers, text stays text, and null and empty text are missing values.
The address defines the roles of the fields::

    kafka://HOST:9092,HOST:9092/TOPIC?target=FIELD

``target`` and the other roles are described in :mod:`.source`; ``time=message.timestamp`` selects
the timestamp of the message, and the default of ``name`` is ``kafka:TOPIC``. In addition:

============= ====================================================================================
``key``       field that contains the key of the message, as text, such as the ``by`` of ``Keyed``
``config``    file of properties that are passed to librdkafka, one ``name=value`` per line, such as
              ``security.protocol=SASL_SSL``, ``sasl.username`` and ``sasl.password``
``group``     consumer group that assigns the partitions to processes; only for
              :class:`.PartitionedLearner`
============= ====================================================================================

Each partition is one part. Its position is the offset of the last message that was read; offsets
are not committed to Kafka. Messages that were deleted before they were read (retention) are counted
as rejected, with a message. Partitions that are added to the topic are read from their beginning.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from onepass.errors import SourceError, import_extra
from onepass.service.source import AddressForm, Entry, SourceBatch, build_batch

_T = TypeVar("_T")
_FORM = AddressForm(
    "kafka://HOST:9092/TOPIC?target=FIELD",
    ("target",),
    ("key", "group", "config"),
    "Pass hosts and one topic; write credentials into the file `config`",
)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_TIMESTAMP = "message.timestamp"
_TIMEOUT = 5.0  # seconds for a response of Kafka
_CHECK_INTERVAL = 2.0  # seconds between checks of the connection and the number of partitions
_MAX_MESSAGES = 1000  # messages read at once
_DEFAULTS = {"log_level": 0, "queued.max.messages.kbytes": 8192}  # per client


class KafkaTopic:
    """A Kafka topic, or one of its partitions, as a source.

    Parameters
    ----------
    url : str
        Address, as described in the module's docstring.
    partition : int, optional
        The partition to read; all by default, and then the address must not have a group.

    Attributes
    ----------
    topic : str
    group : str or None
    consumer : confluent_kafka.Consumer

    Raises
    ------
    ParameterError
        If the address or the file ``config`` is invalid.
    MissingExtraError
        If the package confluent-kafka is not installed.
    """

    def __init__(self, url: str, partition: int | None = None) -> None:
        parts, parameters = _FORM.parse(url)
        self.topic, self.group = parts.path.strip("/"), parameters.get("group")
        hosts, topic = parts.netloc, _TOPIC.fullmatch(self.topic)
        if not hosts or "@" in hosts or not topic or parts.fragment:
            raise _FORM.error("a user or password, no host, or an invalid topic")
        if partition is None and self.group is not None:
            remedy = "Omit the group, or use onepass.service.PartitionedLearner"
            raise _FORM.error("a `group`, although one learner reads all partitions", remedy)
        self._roles = _FORM.roles(parameters, f"kafka:{self.topic}")
        self._key, self._only = parameters.get("key"), partition
        self.name = self._roles.name if partition is None else self._part(partition)
        self.has_time = self._roles.time is not None
        self._kafka = import_extra("confluent_kafka", extra="kafka")
        self._why = ""  # last error of the connection
        self.consumer = self._connected(hosts, parameters.get("config"))
        self._partitions: list[int] = []
        self._at: dict[int, str | None] | None = None  # positions of the client, if known
        self._check_at, self._turn = 0.0, 0

    def _connected(self, servers: str, config: str | None) -> Any:
        fixed = {
            "bootstrap.servers": servers,
            "group.id": self.group or "onepass",  # of no effect without `subscribe`
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "range",  # librdkafka 2.16 crashes with sticky ones
        }
        try:
            text = Path(config).read_text(encoding="utf-8") if config else ""
            lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
            pairs = [line.partition("=") for line in lines]
            found = {name.strip(): value.strip() for name, _, value in pairs}
            for name in fixed.keys() & found:
                raise _FORM.error(f"a file `config` that sets {name}", "Remove this property")
            settings = {**_DEFAULTS, **found, **fixed, "error_cb": self._failed}
            return self._kafka.Consumer(settings)
        except (self._kafka.KafkaException, OSError, UnicodeDecodeError) as error:
            got = f"a file `config` that is invalid: {_text(error)}"
            raise _FORM.error(got, f"Correct {config}") from None

    # -- the client --------------------------------------------------------------------------------

    def partitions(self) -> list[int]:
        """Return the numbers of the partitions of the topic.

        Raises
        ------
        SourceError
            If the topic does not exist or cannot be reached.
        """
        topics = self.call(lambda: self.consumer.list_topics(self.topic, _TIMEOUT).topics)
        if topics[self.topic].error is not None:
            raise self._error(topics[self.topic].error)
        return sorted(topics[self.topic].partitions)

    def poll(self, seconds: float) -> list[Any]:
        """Wait for messages, and return them.

        Raises
        ------
        SourceError
            If messages cannot be read.
        """
        consume = self.consumer.consume
        found: list[Any] = self.call(lambda: consume(1, seconds))
        if found:
            found += self.call(lambda: consume(_MAX_MESSAGES - 1, 0))
        for message in found:
            if message.error() is not None:
                raise self._error(message.error())
        return found

    def call(self, command: Callable[[], _T]) -> _T:
        """Call the client, and convert its errors to SourceError."""
        try:
            return command()
        except (self._kafka.KafkaException, RuntimeError) as error:
            self.consumer.poll(0)  # calls _failed with the cause
            why, self._why = self._why, ""
            raise self._error(f"{_text(error)}{why}") from error

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close()

    def _error(self, got: object) -> SourceError:
        return SourceError(
            "the source must be a Kafka topic that can be read, got: "
            f"{_text(got).rstrip('.')}. Check that Kafka runs, and the address.",
            self.name,
        )

    def _failed(self, error: object) -> None:
        self._why = f" ({_text(error)})"

    # -- reading -----------------------------------------------------------------------------------

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of up to a thousand messages of a partition as they arrive."""
        at = dict(start)
        while True:
            assigned, self._at = self._at, None  # unknown until all batches were consumed
            if time.monotonic() >= self._check_at:
                self._partitions = [n for n in self.partitions() if self._only in {None, n}]
                self._check_at = time.monotonic() + _CHECK_INTERVAL
            if assigned != self._own(at):
                yield from self._assign(at)
            messages = self.poll(seconds)
            by_number: dict[int, list[Any]] = {}
            for message in messages:
                by_number.setdefault(message.partition(), []).append(message)
            self._turn += 1  # each partition is first in turn, also if the first one fails
            for number in sorted(by_number, key=lambda n: (n + self._turn) % len(self._partitions)):
                yield self._batch(number, by_number[number], at)
            self._at = self._own(at)
            if not messages:
                return

    def _part(self, number: int) -> str:
        return f"{self._roles.name}/{number}"

    def _own(self, at: Mapping[str, str]) -> dict[int, str | None]:
        """Return the positions of the partitions to read."""
        return {number: at.get(self._part(number)) for number in self._partitions}

    def _offsets(self, number: int, at: Mapping[str, str], **how: Any) -> tuple[int, int, int]:
        """Return offsets: of the first message, after the position, and after the last message."""
        where = self._kafka.TopicPartition(self.topic, number)
        first, end = self.call(lambda: self.consumer.get_watermark_offsets(where, **how))
        return first, int(at.get(self._part(number), max(first, 0) - 1)) + 1, end

    def _assign(self, at: dict[str, str]) -> Iterator[SourceBatch]:
        """Seek to positions, and yield empty batches with the numbers of deleted messages."""
        assigned = []
        for number in self._partitions:
            part = self._part(number)
            first, following, end = self._offsets(number, at, timeout=_TIMEOUT)
            if following > end:
                raise SourceError(
                    f"the partition must reach message {following - 1}, which was read, "
                    f"but it ends before {end}: the topic was recreated, or Kafka has "
                    "lost messages. Reading continues after that message; to learn the "
                    "topic from its beginning, set another `name` in the address.",
                    part,
                )
            offset = max(first, following)
            assigned.append(self._kafka.TopicPartition(self.topic, number, offset))
            if removed := offset - following:
                why = (
                    f"{part}: messages must exist until they are read, but {removed:,} messages "
                    f"after {following - 1} were deleted. Increase the topic's retention."
                )
                at[part] = str(first - 1)
                yield self._batch(number, [], at, removed=(removed, why))
        self.call(lambda: self.consumer.assign(assigned))

    def _batch(
        self, number: int, messages: list[Any], at: dict[str, str], **more: Any
    ) -> SourceBatch:
        """Convert messages of a partition, and move its position."""
        part = self._part(number)
        if messages:
            at[part] = str(messages[-1].offset())
        offsets = [self._offsets(each, at, cached=True) for each in self._partitions]
        return build_batch(
            map(self._entry, messages), self._roles, _value, own_time=_TIMESTAMP, part=part,
            position=at[part], lag=sum(max(0, end - next_) for _, next_, end in offsets), **more,
        )  # fmt: skip

    def _entry(self, message: Any) -> Entry:
        value, offset, at = message.value() or b"", str(message.offset()), message.timestamp()[1]
        return Entry(f"entry {offset}", offset, len(value), lambda: self._fields(message), at)

    def _fields(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message, and its key."""
        try:
            fields = json.loads(message.value() or b"null")
            if self._key is not None and isinstance(fields, dict):
                fields[self._key] = (message.key() or b"").decode()
        except (ValueError, RecursionError) as error:
            raise SourceError(f"must be a JSON object with a key in UTF-8, got: {error}.") from None
        if not isinstance(fields, dict):
            raise SourceError(f"must be a JSON object, got {type(fields).__name__}.")
        return fields


def _text(error: object) -> str:
    """Return the text of an error of confluent-kafka, or of another one."""
    found = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(found.str() if hasattr(found, "str") else error)


def _value(value: Any, text: bool) -> Any:  # noqa: FBT001  passed by position
    """Convert a JSON value to a number, text or None."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, (list, dict)):
        raise SourceError(
            "must contain only numbers, text, booleans and null, got a list or an object in a "
            "field. Name the field in `drop`."
        )
    if text:
        return json.dumps(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf
