"""Kafka topics: each message is learned once, or refused with a reason."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_cluster import PARTITIONS, KafkaCluster
from kafka_cluster import kafka as kafka_client
from waiting import until
from web_server import Server

import onepass as op
from onepass.errors import MissingExtraError, ParameterError
from onepass.service import Durable, kafka
from onepass.service import consumer as consumer_module
from onepass.service.consumer import SourceConsumer, source
from onepass.service.monitoring import Gauges
from raising import raises


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as found:
        yield found


@contextmanager
def fed(
    path: Path, url: str, model: Any = None
) -> Iterator[tuple[Durable, SourceConsumer, Gauges]]:
    """A learner, the consumer of a topic, and metrics."""
    file = path / "m.db"
    with op.durable(file, None if file.exists() else model or linear()) as found:
        gauges = Gauges(found.frozen_copy)
        consumer = SourceConsumer(found, source(url), gauges.refuse)
        try:
            yield found, consumer, gauges
        finally:
            consumer.close()


def linear() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6))


def rows(n: int, seed: int = 0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    return [{"a": a, "b": b, "y": 2 * a + 3 * b + 1} for a, b in rng.normal(size=(n, 2)).tolist()]


def whys(gauges: Gauges) -> str:
    return "\n".join(each["why"] for each in gauges.refused)


def test_topic_is_learned_and_resumed(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Old messages, new ones, and those that arrive while the consumer is closed."""
    cluster.send(rows(2500))
    with fed(tmp_path, cluster.url()) as (durable, consumer, gauges):
        until(lambda: durable.rows_seen == 2500)
        for row in rows(20, 1):
            before = durable.rows_seen
            cluster.send([row])
            until(lambda before=before: durable.rows_seen == before + 1)  # type: ignore[misc]
        until(lambda: consumer.lag == 0)
        assert (consumer.error, gauges.rows_refused) == (None, 0)
    cluster.send(rows(5, 2))
    with fed(tmp_path, cluster.url()) as (durable, _, _):
        until(lambda: durable.rows_seen == 2525)
        assert sorted(durable.positions) == [f"kafka:flow/{n}" for n in range(PARTITIONS)]
        assert durable.positions["kafka:flow/0"] == str(625 + 20 + 2 - 1)
        batch = op.RLSRegressor(ridge=1e-6)
        for some in (rows(2500), rows(20, 1), rows(5, 2)):
            batch.partial_fit([[r["a"], r["b"]] for r in some], [r["y"] for r in some])
        np.testing.assert_allclose(durable.model().learner_.coef_, batch.coef_, atol=1e-9)


POISON: list[tuple[Any, str]] = [
    ({"a": "text", "b": 1, "y": 2}, "'a' must contain numbers"),
    ({"a": "12", "b": 1, "y": 2}, "'a' must contain numbers"),
    ({"a": 1, "b": 2}, "must have a target in its field 'y', got none"),
    ({"a": 1, "b": 2, "y": None}, "got none"),
    ({"a": 1, "b": 2, "y": ""}, "got none"),
    ({"a": 1, "b": 2, "y": float("nan")}, "got nan"),
    ({"a": 1, "b": 2, "y": float("inf")}, "finite"),
    ({"a": float("nan"), "b": 2, "y": 1}, "finite"),
    ({"a": 10**400, "b": 2, "y": 1}, "finite"),
    ({"a": None, "b": 2, "y": 1}, "finite"),
    ({"a": 1, "b": [2], "y": 1}, "got a list or an object in a field"),
    ({"a": 1, "b": {"c": 1}, "y": 1}, "got a list or an object in a field"),
    ([1, 2], "must be a JSON object, got list"),
    (None, "must be a JSON object, got NoneType"),
    (b"", "must be a JSON object, got NoneType"),
    (b"{", "must be a JSON object"),
    (b"\xff\xfe\xfd", "must be a JSON object"),
    (b"[" * 100_000, "must be a JSON object"),
    ({"a": 1, "b": 2, "y": 1, "note": "x" * (1 << 20)}, "at most 1,048,576 bytes"),
]


def test_invalid_messages_are_counted_and_skipped(cluster: KafkaCluster, tmp_path: Path) -> None:
    good = rows(300)
    cluster.producer = cluster.client(**{"message.max.bytes": 4_000_000})
    with fed(tmp_path, cluster.url()) as (durable, consumer, gauges):
        cluster.send(good[:3], partition=2)
        until(lambda: durable.rows_seen == 3)
        for i, (row, why) in enumerate(POISON, 1):  # alone
            cluster.send([row], partition=2)
            until(lambda i=i: gauges.rows_refused == i)  # type: ignore[misc]
            assert why in gauges.refused[-1]["why"], row
            assert f"kafka:flow/2: entry {i + 2}" in gauges.refused[-1]["why"]
        until(lambda: durable.positions == {"kafka:flow/2": str(len(POISON) + 2)})
        assert (durable.rows_seen, consumer.error) == (3, None)
    mixed = [good[3]]
    for i, (row, _) in enumerate(POISON):  # among others
        mixed += [row, *good[4 + 5 * i : 9 + 5 * i]]
    cluster.send(mixed, partition=2)
    with fed(tmp_path, cluster.url()) as (durable, consumer, gauges):
        until(lambda: durable.rows_seen == 4 + 5 * len(POISON))
        until(lambda: gauges.rows_refused == len(POISON))
        assert consumer.error is None


def test_messages_are_not_skipped_before_the_first_learned_row(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    cluster.send(rows(40))
    with fed(tmp_path, cluster.url(target="z")) as (durable, consumer, gauges):
        until(lambda: consumer.error)
        assert "all are rejected" in str(consumer.error)
        assert (durable.positions, durable.rows_seen, gauges.rows_refused) == ({}, 0, 0)
    with fed(tmp_path, cluster.url()) as (durable, _, _):
        until(lambda: durable.rows_seen == 40)


def test_partition_of_invalid_messages_delays_no_other(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    for partition in (0, 3):
        cluster.send([{"a": 1}] * 5, partition=partition)
    cluster.send(rows(10), partition=1)
    with fed(tmp_path, cluster.url()) as (durable, consumer, gauges):
        until(lambda: gauges.rows_refused == 10)
        until(lambda: durable.rows_seen == 10)
        until(lambda: consumer.error is None)
        until(lambda: len(durable.positions) == 3)


def test_messages_deleted_before_reading_are_counted(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The mock cluster retains 5 MiB per partition."""
    with fed(tmp_path, cluster.url(drop="note")) as (durable, _, _):
        cluster.send(rows(5), partition=1)
        until(lambda: durable.rows_seen == 5)
    for row in rows(20):
        cluster.send([row | {"note": "x" * 500_000}], partition=1)
    first, _, end = source(cluster.url())._offsets(1, {}, timeout=5)  # type: ignore[attr-defined]
    assert 5 < first < end == 25
    with fed(tmp_path, cluster.url(drop="note")) as (durable, consumer, gauges):
        until(lambda: durable.positions["kafka:flow/1"] == "24")
        until(lambda: gauges.rows_refused == first - 5)
        assert (durable.rows_seen, consumer.error) == (5 + end - first, None)
        assert f"but {first - 5} messages after 4 were deleted" in whys(gauges)


def test_recreated_topic_is_reported(tmp_path: Path) -> None:
    with KafkaCluster() as cluster:
        cluster.send(rows(10), partition=0)
        with fed(tmp_path, cluster.url()) as (durable, _, _):
            until(lambda: durable.rows_seen == 10)
    with KafkaCluster() as cluster:
        cluster.send(rows(3), partition=0)
        with fed(tmp_path, cluster.url()) as (durable, consumer, _):
            until(lambda: consumer.error)
            assert "must reach message 9, which was read, but it ends before 3" in str(
                consumer.error
            )
            cluster.send(rows(9), partition=0)
            until(lambda: durable.rows_seen == 12)
            until(lambda: consumer.error is None)
        with fed(tmp_path, cluster.url(name="again")) as (durable, _, _):
            until(lambda: durable.rows_seen == 24)


def test_missing_topic_and_unreachable_brokers_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT", 0.5)
    with KafkaCluster() as cluster:
        with fed(tmp_path, cluster.url()) as (durable, consumer, gauges):
            until(lambda: consumer.error)
            assert "Unknown topic" in str(consumer.error)
            cluster.send(rows(4))
            until(lambda: durable.rows_seen == 4)
            until(lambda: consumer.error is None)
            cluster.__exit__(None, None, None)
            until(lambda: consumer.error)
            assert "must be a Kafka topic that can be read" in str(consumer.error)
            assert gauges.rows_refused == 0
        cluster.__enter__()


def test_errors_of_the_connection_lose_and_repeat_no_message(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors come while messages are queued in the client."""
    monkeypatch.setattr(kafka, "_CHECK_INTERVAL", 0.0)
    monkeypatch.setattr(kafka, "_MAX_MESSAGES", 7)
    monkeypatch.setattr(consumer_module, "_MIN_DELAY", 0.001)
    original, count = kafka.KafkaTopic.partitions, 0

    def failing(topic: kafka.KafkaTopic) -> list[int]:
        nonlocal count
        count += 1
        return original(topic) if count % 12 else topic.call(_failing)

    monkeypatch.setattr(kafka.KafkaTopic, "partitions", failing)
    config = tmp_path / "client.properties"
    config.write_text("fetch.wait.max.ms=20\n")
    cluster.send(rows(400))
    with fed(tmp_path, cluster.url(config=config)) as (durable, _, _):
        until(lambda: sum(map(int, durable.positions.values())) == 400 - PARTITIONS)
        assert durable.rows_seen == 400
        assert count > 24


def _failing() -> list[int]:
    raise kafka_client.KafkaException(kafka_client.KafkaError(-195))


def test_values_keep_their_types(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Text stays text, booleans are numbers, and fields in ``text`` become text."""
    cluster.send(
        [{"zip": 12, "code": "7", "on": i % 2 == 0, "meta": {}, "y": i} for i in range(4)],
        partition=0,
    )
    url = cluster.url(text="zip", drop="meta")
    with fed(tmp_path, url) as (durable, _, gauges):
        until(lambda: durable.rows_seen == 4)
        names = durable.model().features_[0].get_feature_names_out().tolist()
        assert names == ["zip=12", "code=7", "on"]
        assert gauges.rows_refused == 0


def test_times_are_timestamps_or_fields(cluster: KafkaCluster, tmp_path: Path) -> None:
    begun, hour = 1795388746800, 3_600_000
    for i in range(2):
        row = {"a": i + 1, "y": 2, "timestamp": f"2026-01-01T0{i}:00:00"}
        cluster.send([row], partition=0, timestamp=begun + i * hour)
    alone = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
    apart = np.array([0, hour], "datetime64[ms]")
    alone.partial_fit([[1.0], [2.0]], [2.0, 2.0], time=apart)
    for when in ("message.timestamp", "timestamp"):
        model = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
        place = tmp_path / when
        place.mkdir()
        url = cluster.url(time=when, **({} if when == "timestamp" else {"drop": "timestamp"}))
        with fed(place, url, model) as (durable, _, _):
            until(lambda durable=durable: durable.rows_seen == 2)  # type: ignore[misc]
            np.testing.assert_allclose(durable.model().coef_, alone.coef_, atol=1e-12)


def test_key_of_a_message_selects_a_model(cluster: KafkaCluster, tmp_path: Path) -> None:
    for i in range(60):
        slope = i % 3 + 1
        row = {"a": float(i), "y": slope * i}
        cluster.send([row], partition=i % 4, key=f"device {slope}")
    model = op.Keyed(op.RLSRegressor(ridge=1e-9), by="device")
    with fed(tmp_path, cluster.url(key="device"), model) as (durable, _, _):
        until(lambda: durable.rows_seen == 60)
        found = durable.predict([{"a": 10.0, "device": f"device {n}"} for n in (1, 2, 3)])
        np.testing.assert_allclose(found, [10.0, 20.0, 30.0], atol=1e-5)


def test_topic_is_served(cluster: KafkaCluster, tmp_path: Path) -> None:
    """``onepass serve --source``: state, lag, and a restart."""
    op.save(linear(), tmp_path / "flow.onepass")
    cluster.send([*rows(50), {"a": "text", "y": 1}])

    def state() -> dict[str, Any]:
        found = server.send("GET", "/state")[1]["models"][0]
        return {name: found[name] for name in ("rows_seen", "rows_refused", "error", "positions")}

    place = str(tmp_path / "flow.onepass")
    with Server(tmp_path / "data", place, "--source", cluster.url()) as server:
        positions = {f"kafka:flow/{n}": "12" if n < 3 else "11" for n in range(PARTITIONS)}
        expected = {"rows_seen": 50, "rows_refused": 1, "error": None, "positions": positions}
        until(lambda: state() == expected)
        assert 'onepass_source_lag{model="flow",source="kafka:flow"} 0.0' in str(
            server.send("GET", "/metrics")[1]
        )
        server.kill()
        cluster.send(rows(4, 1))
        server.start()
        until(lambda: state()["rows_seen"] == 54)


PLAIN = "kafka://localhost:9092/flow?target=y"


def test_parts_of_an_address() -> None:
    found = kafka.KafkaTopic("kafka://a:9092,b:9093/the.flow?target=y&key=id&group=plant", 3)
    assert (found.topic, found.group, found.name) == ("the.flow", "plant", "kafka:the.flow/3")
    assert source(PLAIN + "&name=plant").name == "plant"


@pytest.mark.parametrize(
    "url",
    [
        "kafka://localhost:9092/flow",
        "kafka://localhost:9092/?target=y",
        "kafka://localhost:9092/a/b?target=y",
        "kafka://localhost:9092/..?target=y",
        "kafka:///flow?target=y",
        PLAIN + "&stream=z",
        PLAIN + "&target=z",
        PLAIN + "&key=",
        PLAIN + "#there",
        PLAIN + "&group=g",
        PLAIN.replace("localhost", "me:secret@localhost"),
        PLAIN + "&config=/does/not/exist",
    ],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ParameterError, match=r"address must .* got .*\. \w") as caught:
        source(url)
    assert "secret" not in str(caught.value)


def test_properties_are_read_from_a_file(cluster: KafkaCluster, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("# of the client\n\nclient.id = onepass\nfetch.wait.max.ms=20\n")
    cluster.send(rows(3))
    with fed(tmp_path, cluster.url(config=config)) as (durable, _, _):
        until(lambda: durable.rows_seen == 3)
    for text, why in (
        ("sasl.mechanism=PLAIN\nno.such.property=secret", "no.such.property"),
        ("group.id=secret", "sets group.id"),
    ):
        config.write_text(text)
        with pytest.raises(ParameterError, match=why) as caught:
            source(cluster.url(config=config))
        assert "secret" not in str(caught.value)


def test_tls_and_sasl_are_passed_to_the_consumer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client accepts the properties, and gets their values unchanged, without a broker."""
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "probe",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "onepass",
        "sasl.password": "a=b#c, 'd' \"e\"",
        "session.timeout.ms": "10000",
    }
    config, passed = tmp_path / "client.properties", {}
    config.write_text("\n".join(f"{name}={value}" for name, value in properties.items()))

    def consumer(settings: dict[str, Any]) -> Any:
        passed.update(settings)
        return original(settings)

    original = kafka_client.Consumer
    monkeypatch.setattr(kafka_client, "Consumer", consumer)
    source(f"{PLAIN}&config={config}").close()
    assert {name: passed[name] for name in properties} == properties


def test_missing_package_raises_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with raises(MissingExtraError, remedy="pip install 'onepass[kafka]'"):
        source(PLAIN)
