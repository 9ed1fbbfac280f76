"""A Kafka topic as a source of rows: the value of each message is a JSON object, and one row.

Numbers and booleans become numbers, text stays text, and null and empty text are missing values.
The address defines the roles of the fields::

    kafka://HOST:9092,HOST:9092/TOPIC?target=FIELD

``target`` and the other roles are described in :mod:`.source`; ``time=message.timestamp`` selects
the timestamp of the message, and the default of ``name`` is ``kafka:TOPIC``. In addition:

============= ====================================================================================
``key``       field that contains the key of the message, as text, such as the ``by`` of ``Keyed``
``config``    file of properties of librdkafka, one ``name=value`` per line, such as
              ``security.protocol=SASL_SSL``, ``sasl.username`` and ``sasl.password``
``group``     consumer group that assigns the partitions to processes; only for
              :class:`.PartitionedLearner`
============= ====================================================================================

Each partition is one part. Its position is the offset of the last message that was read; offsets
are not committed to Kafka. Messages that were deleted before they were read (retention) are counted
as rejected, with a message. Partitions that are added to the topic are read from their beginning.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onepass.errors import ParameterError, SourceError, import_extra
from onepass.service.source import WHERE, AddressForm, Entry, Roles, SourceBatch, build_batch

__all__ = ["Address", "KafkaTopic", "TopicClient"]

_T = TypeVar("_T")
_FORM = AddressForm(
    "kafka://HOST:9092/TOPIC?target=FIELD",
    ("target",),
    ("key", "group", "config"),
    "Write credentials into the file `config`, such as sasl.username=NAME",
)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_TIMESTAMP = "message.timestamp"
_TIMEOUT = 5.0  # seconds for a response of Kafka
_CHECK_INTERVAL = 2.0  # seconds between checks of the connection and the number of partitions
_MAX_MESSAGES = 1000  # messages read at once


@dataclass(frozen=True)
class Address(Roles):
    """Address of a topic, and the roles of its fields.

    Parameters
    ----------
    servers : str
        Addresses of brokers, separated by commas.
    topic : str
    key : str or None
        Field that contains the key of the message.
    group : str or None
        Consumer group.
    config : str or None
        File of properties of librdkafka.
    """

    servers: str
    topic: str
    key: str | None
    group: str | None
    config: str | None

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse an address.

        Raises
        ------
        ParameterError
            If the address is invalid.
        """
        parts, parameters = _FORM.parse(url)
        topic = parts.path.strip("/")
        if "@" in parts.netloc:
            raise _FORM.error("a user or password")
        if not (parts.netloc and _TOPIC.fullmatch(topic)) or parts.fragment:
            raise _FORM.error("no host, or an invalid topic", "Pass a host and one topic")
        key, group, config = map(parameters.get, ("key", "group", "config"))
        roles = _FORM.roles(parameters, f"kafka:{topic}")
        return cls(**roles, servers=parts.netloc, topic=topic, key=key, group=group, config=config)

    def properties(self) -> dict[str, str]:
        """Read the file ``config``.

        Raises
        ------
        ParameterError
            If the file cannot be read.
        """
        try:
            text = Path(self.config).read_text(encoding="utf-8") if self.config else ""
        except (OSError, UnicodeDecodeError) as error:
            raise _FORM.error(
                f"a file `config` that cannot be read: {error}", "Correct its path"
            ) from None
        lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
        return {name.strip(): value.strip() for name, _, value in (e.partition("=") for e in lines)}


class TopicClient:
    """A client of a topic.

    Parameters
    ----------
    address : Address
    **settings
        Properties of librdkafka, which the file ``config`` can change.

    Attributes
    ----------
    consumer : confluent_kafka.Consumer

    Raises
    ------
    ParameterError
        If the file ``config`` cannot be read, or contains invalid properties.
    MissingExtraError
        If the package confluent-kafka is not installed.
    """

    def __init__(self, address: Address, **settings: object) -> None:
        self._address, self._why = address, ""
        self._kafka = kafka = import_extra("confluent_kafka", extra="kafka", where=WHERE)
        fixed = {
            "bootstrap.servers": address.servers,
            "group.id": address.group or "onepass",  # of no effect without `subscribe`
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        found = address.properties()
        if both := fixed.keys() & found:
            got = f"{', '.join(sorted(both))} in the file {address.config}"
            raise _FORM.error(got, "Remove these properties from the file")
        try:
            self.consumer: Any = kafka.Consumer(
                {"log_level": 0, **settings, **found, **fixed, "error_cb": self._failed}
            )
        except (kafka.KafkaException, TypeError, ValueError) as error:
            got = f"invalid properties in the file {address.config}: {_text(error)}"
            raise _FORM.error(got, "Correct the file") from None

    def partitions(self) -> list[int]:
        """Return the numbers of the partitions.

        Raises
        ------
        SourceError
            If the topic does not exist or cannot be reached.
        """
        name = self._address.topic
        topic = self.call(lambda: self.consumer.list_topics(name, _TIMEOUT).topics[name])
        if topic.error is not None:
            raise self.error(topic.error)
        return sorted(topic.partitions)

    def offsets(self, partition: int) -> tuple[int, int]:
        """Return the offsets of the first message of a partition, and after its last message."""
        where = self.at(partition)
        found: tuple[int, int] = self.call(
            lambda: self.consumer.get_watermark_offsets(where, _TIMEOUT)
        )
        return found

    def at(self, partition: int, offset: int = 0) -> Any:
        """Return the ``TopicPartition`` of a partition and an offset."""
        return self._kafka.TopicPartition(self._address.topic, partition, offset)

    def poll(self, seconds: float) -> Any:
        """Wait for a message; return it, or None.

        Raises
        ------
        SourceError
            If messages cannot be read.
        """
        return self.checked(self.call(lambda: self.consumer.poll(seconds)))

    def checked(self, message: Any) -> Any:
        """Return a message; raise SourceError if it is an error."""
        if message is not None and message.error() is not None:
            raise self.error(message.error())
        return message

    def call(self, command: Callable[[], _T]) -> _T:
        """Call the client, and convert its errors to SourceError."""
        try:
            return command()
        except (self._kafka.KafkaException, RuntimeError) as error:
            self.consumer.poll(0)  # calls _failed with the cause
            raise self.error(f"{_text(error)}{self._why}") from error

    def error(self, got: object) -> SourceError:
        """Return the error of a topic that cannot be read."""
        return SourceError(
            f"{self._address.name}: the source must be a Kafka topic that can be read, got: "
            f"{_text(got).rstrip('.')}. Check that Kafka runs, and the address."
        )

    def _failed(self, error: Any) -> None:
        self._why = f" ({_text(error)})"


def _text(error: object) -> str:
    """Return the text of an error of confluent-kafka."""
    found = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(found.str() if hasattr(found, "str") else found)


class KafkaTopic:
    """A Kafka topic, or one of its partitions, as a source.

    Parameters
    ----------
    url : str
        Address, as described in the module's docstring.
    partition : int, optional
        The partition to read; all by default.

    Raises
    ------
    ParameterError
        If the address is invalid, or names a group but no partition is given.
    MissingExtraError
        If the package confluent-kafka is not installed.
    """

    def __init__(self, url: str, partition: int | None = None) -> None:
        self._address = address = Address.of(url)
        if partition is None and address.group is not None:
            raise ParameterError(
                f"{WHERE}: the address must have no `group`, as one learner reads all partitions, "
                f"got {address.group!r}. Omit it, or use onepass.service.PartitionedLearner."
            )
        self._only = partition
        self.name = address.name if partition is None else self._part(partition)
        self.has_time = address.time is not None
        self._client = TopicClient(address, **{"queued.max.messages.kbytes": 8192})
        self._partitions: list[int] = []
        self._at: dict[str, str] | None = None  # positions of the assigned partitions, if known
        self._check_at = 0.0

    def positions(self) -> dict[str, str]:
        """Return the offset of the last message of each partition that is not empty."""
        ends = {n: self._client.offsets(n)[1] for n in self._numbers()}
        return {self._part(n): str(end - 1) for n, end in ends.items() if end}

    def read(self, start: Mapping[str, str], *, seconds: float) -> Iterator[SourceBatch]:
        """Yield batches of up to a thousand messages of a partition as they arrive."""
        at = dict(start)
        while True:
            if time.monotonic() >= self._check_at:
                if self._partitions != (numbers := self._numbers()):
                    self._partitions, self._at = numbers, None
                self._check_at = time.monotonic() + _CHECK_INTERVAL
            if self._at is None or self._at != self._own(at):
                yield from self._assign(at)
            self._at = None  # unknown until all batches were consumed
            messages = self._messages(seconds)
            for number in sorted(messages):
                batch = self._batch(number, messages[number], at)
                yield batch
            self._at = self._own(at)
            if not messages:
                return

    def close(self) -> None:
        """Close the connections."""
        self._client.consumer.close()

    def _numbers(self) -> list[int]:
        return self._client.partitions() if self._only is None else [self._only]

    def _part(self, number: int) -> str:
        return f"{self._address.name}/{number}"

    def _own(self, positions: Mapping[str, str]) -> dict[str, str]:
        """Return the positions of the assigned partitions."""
        parts = map(self._part, self._partitions)
        return {part: positions[part] for part in parts if part in positions}

    def _assign(self, at: dict[str, str]) -> Iterator[SourceBatch]:
        """Seek to positions, and yield empty batches with the numbers of deleted messages."""
        assigned = []
        for number in self._partitions:
            part = self._part(number)
            first, end = self._client.offsets(number)
            following = self._following(at.get(part), first)
            if following > end:
                raise SourceError(
                    f"{part}: the partition must reach message {following - 1}, which was read, "
                    f"but it ends before {end}: the topic was recreated, or Kafka has lost "
                    "messages. Reading continues after that message; to learn the topic from its "
                    "beginning, set another `name` in the address."
                )
            assigned.append(self._client.at(number, max(first, following)))
            if following < first:
                at[part] = str(first - 1)
                why = (
                    f"{part}: messages must exist until they are read, but {first - following:,} "
                    f"messages after {following - 1} were deleted. Increase the topic's retention."
                )
                removed = (first - following, why)
                yield self._built(number, [], at, removed=removed, position=at[part])
        self._client.call(lambda: self._client.consumer.assign(assigned))

    def _following(self, position: str | None, first: int) -> int:
        """Return the offset after a position."""
        if position is None:
            return first
        if not position.isdecimal():
            raise SourceError(
                f"{self.name}: the position must be an offset such as 12, got {position[:100]!r} "
                "from another source. Set another `name` in the address."
            )
        return int(position) + 1

    def _messages(self, seconds: float) -> dict[int, list[Any]]:
        """Wait for messages; return them by partition."""
        client = self._client
        found: dict[int, list[Any]] = {}
        first = client.poll(seconds)
        if first is not None:
            rest = client.call(lambda: client.consumer.consume(_MAX_MESSAGES - 1, 0))
            for message in (first, *map(client.checked, rest)):
                found.setdefault(message.partition(), []).append(message)
        return found

    def _batch(self, number: int, messages: list[Any], at: dict[str, str]) -> SourceBatch:
        """Convert messages of a partition, and set its position."""
        at[self._part(number)] = last = str(messages[-1].offset())
        return self._built(number, messages, at, position=last)

    def _built(
        self, number: int, messages: list[Any], at: Mapping[str, str], **more: Any
    ) -> SourceBatch:
        return build_batch(
            map(self._entry, messages), self._address, _value, own_time=_TIMESTAMP,
            part=self._part(number), lag=sum(self._unread(n, at) for n in self._partitions), **more,
        )  # fmt: skip

    def _unread(self, number: int, at: Mapping[str, str]) -> int:
        """Return the number of messages after the position of a partition, as far as known."""
        where = self._client.at(number)
        first, end = self._client.consumer.get_watermark_offsets(where, cached=True)
        return max(0, int(end) - self._following(at.get(self._part(number)), max(int(first), 0)))

    def _entry(self, message: Any) -> Entry:
        value, offset = message.value() or b"", str(message.offset())
        milliseconds: int = message.timestamp()[1]
        return Entry(
            f"entry {offset}", offset, len(value), lambda: self._fields(message), milliseconds
        )

    def _fields(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message, and its key."""
        try:
            fields = json.loads(message.value() or b"null")
            key = (message.key() or b"").decode()
        except (ValueError, RecursionError) as error:
            raise SourceError(f"must be a JSON object with a key in UTF-8, got: {error}.") from None
        if not isinstance(fields, dict):
            got = "none" if fields is None else type(fields).__name__
            raise SourceError(f"must be a JSON object, got {got}.")
        if self._address.key is not None:
            fields[self._address.key] = key
        return fields


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
