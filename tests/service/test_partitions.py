"""Partitions of a topic that several processes share, each learned by a durable learner."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_cluster import PARTITIONS, KafkaCluster
from waiting import until

import onepass as op
from onepass.errors import MergeError, ParameterError, StoreError
from onepass.service import PartitionedLearner, merge_partitions
from raising import raises

KILLS = int(os.environ.get("ONEPASS_KAFKA_KILLS", "5"))


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as found:
        yield found


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Short timeouts, but longer than the 3 s that the mock cluster delays the first member."""
    path = tmp_path / "client.properties"
    path.write_text("session.timeout.ms=4000\nheartbeat.interval.ms=200\n")
    return str(path)


def linear() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6))


def rows(n: int, seed: int = 0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    return [{"a": a, "b": b, "y": a - b + e} for a, b, e in rng.normal(size=(n, 3)).tolist()]


def numbers(*learners: PartitionedLearner) -> list[int]:
    """The partitions that learners have open."""
    return sorted(number for each in learners for number in each.partitions)


def seen(*learners: PartitionedLearner) -> int:
    return sum(each.rows_seen for one in learners for each in one.partitions.values())


def test_partitions_move_between_learners(
    cluster: KafkaCluster, tmp_path: Path, config: str
) -> None:
    """The learner of a partition moves with it, and the merged learner equals one pass."""
    url = cluster.url(group="plant", config=config)
    cluster.send([*rows(400), {"a": "text", "y": 1}])
    with PartitionedLearner(url, linear(), tmp_path / "flow") as first:
        until(lambda: seen(first) == 400)
        assert (numbers(first), first.errors) == ([*range(PARTITIONS)], [])
        with PartitionedLearner(url, linear(), tmp_path / "flow", copy_seconds=0.1) as second:
            until(lambda: len(first.partitions) == len(second.partitions) == PARTITIONS / 2)
            assert numbers(first, second) == [*range(PARTITIONS)]
            cluster.send(rows(200, 1))
            until(lambda: seen(first, second) == 600)
        until(lambda: numbers(first) == [*range(PARTITIONS)])
        cluster.send(rows(100, 2))
        until(lambda: seen(first) == 700)
        assert first.errors == []
        assert first.rows_refused + second.rows_refused == 1
        assert "'a' must contain numbers" in (first.refused + second.refused)[0]
    single = op.RLSRegressor(ridge=1e-6)
    for some in (rows(400), rows(200, 1), rows(100, 2)):
        single.partial_fit([[r["a"], r["b"]] for r in some], [r["y"] for r in some])
    merged: Any = merge_partitions(tmp_path / "flow", "flow")
    assert merged.rows_seen_ == 700
    np.testing.assert_allclose(merged.learner_.coef_, single.coef_, rtol=1e-10)
    again: Any = merge_partitions(tmp_path / "flow", "flow")
    assert (again.learner_.coef_ == merged.learner_.coef_).all()


def test_file_in_use_delays_its_partition(
    cluster: KafkaCluster, tmp_path: Path, config: str
) -> None:
    """As when a process was suspended, and the group has excluded it."""
    cluster.send(rows(40))
    url = cluster.url(group="plant", config=config)
    with (
        op.durable(tmp_path / "flow-2.db", linear()) as former,
        PartitionedLearner(url, linear(), tmp_path) as learner,
    ):
        until(lambda: seen(learner) == 30)
        assert numbers(learner) == [0, 1, 3]
        assert "must be open in one process at a time" in learner.errors[0]
        former.close()
        until(lambda: seen(learner) == 40)
        assert learner.errors == []


def test_one_model_per_key(cluster: KafkaCluster, tmp_path: Path, config: str) -> None:
    for i in range(90):
        slope = i % 3 + 1
        cluster.send([{"a": float(i), "y": slope * i}], partition=slope, key=f"device {slope}")
    model = op.Keyed(op.RLSRegressor(ridge=1e-9), by="device")
    url = cluster.url(group="plant", config=config, key="device")
    with PartitionedLearner(url, model, tmp_path) as learner:
        until(lambda: seen(learner) == 90)
    merged: Any = merge_partitions(tmp_path, "flow")
    assert sorted(merged.keys()) == ["device 1", "device 2", "device 3"]
    found = merged.predict([{"a": 10.0, "device": f"device {n}"} for n in (1, 2, 3)])
    np.testing.assert_allclose(found, [10.0, 20.0, 30.0], atol=1e-5)


def test_missing_topic_is_reported(cluster: KafkaCluster, tmp_path: Path, config: str) -> None:
    url = cluster.url(group="plant", config=config)
    with PartitionedLearner(url, linear(), tmp_path) as learner:
        until(lambda: learner.errors)
        assert "unknown topic" in learner.errors[0].lower()
        cluster.send(rows(4))
        until(lambda: seen(learner) == 4)
        until(lambda: learner.errors == [])
        assert not learner.wait(0.01)
    assert learner.wait()


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    url = "kafka://localhost:9092/flow?target=y"
    with raises(ParameterError, remedy="Add &group=NAME, with the"):
        PartitionedLearner(url, linear(), tmp_path)
    with pytest.raises(ParameterError, match="must not name the field of the time"):
        PartitionedLearner(f"{url}&group=g&time=at", linear(), tmp_path)
    with raises(ParameterError, argument="copy_seconds"):
        PartitionedLearner(f"{url}&group=g", linear(), tmp_path, copy_seconds=-1.0)
    with pytest.raises(TypeError, match="snapshot_row"):
        PartitionedLearner(f"{url}&group=g", linear(), tmp_path, snapshot_row=1)
    unmergeable = op.SGDRegressor()
    with pytest.raises(MergeError):
        PartitionedLearner(f"{url}&group=g", unmergeable, tmp_path)
    with pytest.raises(StoreError, match="must contain learners of the topic 'flow'"):
        merge_partitions(tmp_path, "flow")


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
def test_killed_processes_lose_and_repeat_no_message(tmp_path: Path) -> None:
    """``ONEPASS_KAFKA_KILLS`` is the number of kills."""
    from kafka_kills import killed

    found = killed(tmp_path, KILLS)
    assert not found.error
    assert found.kills >= KILLS
    assert found.rows > 100
