"""librdkafka's mock cluster: brokers in this process that speak Kafka's protocol over TCP.

Clients in this and other processes connect to ``servers``. Topics have four partitions, and are
created when the first message is sent.
"""

import json
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import pytest

kafka = pytest.importorskip("confluent_kafka")
QUIET = logging.getLogger("kafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
PARTITIONS = 4


class KafkaCluster:
    """A cluster that ends with the ``with`` block.

    Parameters
    ----------
    brokers : int
    """

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers

    def __enter__(self) -> Self:
        settings = {"test.mock.num.brokers": self._brokers, "bootstrap.servers": ""}
        self._cluster = kafka.Producer(settings, logger=QUIET)
        brokers = self._cluster.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in brokers)
        self.producer = self.client()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        del self.producer, self._cluster

    def client(self, **settings: Any) -> Any:
        """A producer, which connects over TCP."""
        return kafka.Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 1, **settings}, logger=QUIET
        )

    def url(self, topic: str = "flow", **parameters: Any) -> str:
        query = "&".join(
            f"{name}={value}" for name, value in ({"target": "y"} | parameters).items()
        )
        return f"kafka://{self.servers}/{topic}?{query}"

    def send(
        self, rows: Iterable[Any], topic: str = "flow", *, partition: int | None = None, **more: Any
    ) -> None:
        """Send rows as JSON, or bytes as they are; by default row ``i`` to partition ``i % 4``."""
        for i, row in enumerate(rows):
            value = row if isinstance(row, bytes) or row is None else json.dumps(row).encode()
            number = i % PARTITIONS if partition is None else partition
            self.producer.produce(topic, value, partition=number, **more)
        assert self.producer.flush(30) == 0
