"""Redis streams: each entry is learned once, or refused with a reason."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis_server import RedisServer
from waiting import until

import onepass as op
from onepass.errors import ParameterError
from onepass.service import Durable, consumer, redis
from onepass.service.consumer import SourceConsumer, source
from onepass.service.monitoring import Gauges


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    """A client of an empty Redis."""
    with server.client() as found:
        found.flushall()
        yield found


@contextmanager
def fed(
    path: Path, url: str, model: Any = None
) -> Iterator[tuple[Durable, SourceConsumer, Gauges]]:
    """A learner, the consumer of a stream, and metrics."""
    with op.durable(
        path / "m.db", None if (path / "m.db").exists() else model or linear()
    ) as found:
        gauges = Gauges(found.frozen_copy)
        feeder = SourceConsumer(found, source(url), gauges.refuse)
        try:
            yield found, feeder, gauges
        finally:
            feeder.close()


def linear() -> Any:
    return op.Pipeline(op.features.Encode(), op.RLSRegressor(ridge=1e-6))


def entries(n: int, seed: int = 0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    return [{"a": a, "b": b, "y": 2 * a + 3 * b + 1} for a, b in rng.normal(size=(n, 2)).tolist()]


def send(client: Any, *rows: dict[Any, Any]) -> list[bytes]:
    pipeline = client.pipeline(transaction=False)
    for row in rows:
        pipeline.xadd("flow", row)
    return pipeline.execute()  # type: ignore[no-any-return]


def whys(gauges: Gauges) -> str:
    return "\n".join(each["why"] for each in gauges.refused)


def test_stream_is_learned_and_resumed(server: RedisServer, client: Any, tmp_path: Path) -> None:
    """Old entries, new ones, and those that arrive while the consumer is closed."""
    send(client, *entries(2500))
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: durable.rows_seen == 2500)
        assert durable.version == 3
        for row in entries(20, 1):
            before = durable.rows_seen
            send(client, row)
            until(lambda before=before: durable.rows_seen == before + 1)  # type: ignore[misc]
        assert (feeder.error, gauges.rows_refused, feeder.lag) == (None, 0, 0)
        np.testing.assert_allclose(durable.predict([{"a": 1.0, "b": 1.0}]), [6.0], atol=1e-5)
    last = send(client, *entries(5, 2))[-1].decode()
    with fed(tmp_path, server.url()) as (durable, _, _):
        until(lambda: durable.rows_seen == 2525)
        name = f"redis://127.0.0.1:{server.port}/0?stream=flow"
        assert durable.positions == {name: f"{last}/2525"}
        batch = op.RLSRegressor(ridge=1e-6)
        for rows in (entries(2500), entries(20, 1), entries(5, 2)):
            batch.partial_fit([[r["a"], r["b"]] for r in rows], [r["y"] for r in rows])
        np.testing.assert_allclose(durable.model().learner_.coef_, batch.coef_, atol=1e-9)


POISON: list[tuple[dict[Any, Any], str]] = [
    ({"a": "text", "b": 1, "y": 2}, "'a' must contain numbers"),
    ({"a": 1, "b": 2}, "must have a target in its field 'y', got none"),
    ({"a": 1, "b": 2, "y": ""}, "got none"),
    ({"a": 1, "b": 2, "y": "nan"}, "got nan"),
    ({"a": 1, "b": 2, "y": "inf"}, "finite"),
    ({"a": 1, "b": 2, "y": "much"}, "`y` must contain numbers"),
    ({"a": "nan", "b": 2, "y": 1}, "finite"),
    ({"a": "", "b": 2, "y": 1}, "finite"),
    ({"a": "1e999", "b": 2, "y": 1}, "finite"),
    ({"a": "1_0", "b": 2, "y": 1}, "'a' must contain numbers"),
    ({"b": 2, "y": 1}, "finite"),
    ({"y": 1}, "finite"),
    ({b"\xff\xfe": 1, "a": 1, "b": 2, "y": 1}, "UTF-8"),
    ({"a": b"\x80\x81", "b": 2, "y": 1}, "UTF-8"),
    ({"a": 1, "b": 2, "y": b"\xc3"}, "UTF-8"),
    ({"a": 1, "b": 2, "y": 1, "note": "x" * (1 << 20)}, "at most 1,048,576 bytes"),
]


def test_invalid_entries_are_counted_and_skipped(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    good = entries(300)
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        send(client, *good[:3])
        until(lambda: durable.rows_seen == 3)
        for i, (row, why) in enumerate(POISON, 1):  # alone
            send(client, row)
            until(lambda i=i: gauges.rows_refused == i)  # type: ignore[misc]
            assert why in gauges.refused[-1]["why"], row
        name = next(iter(durable.positions))
        until(lambda: durable.positions[name].endswith(f"/{3 + len(POISON)}"))
        assert (durable.rows_seen, feeder.error) == (3, None)
    mixed = [good[3]]
    for i, (row, _) in enumerate(POISON):  # among others
        mixed += [row, *good[4 + 5 * i : 9 + 5 * i]]
    send(client, *mixed)
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: durable.rows_seen == 4 + 5 * len(POISON))
        until(lambda: gauges.rows_refused == len(POISON))
        assert feeder.error is None
        learned = durable.model().learner_
        expected = op.RLSRegressor(ridge=1e-6)
        rows = good[: durable.rows_seen]
        expected.partial_fit([[r["a"], r["b"]] for r in rows], [r["y"] for r in rows])
        np.testing.assert_allclose(learned.coef_, expected.coef_, atol=1e-9)


def test_entries_are_not_skipped_before_the_first_learned_row(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    """So that a wrong address does not consume a stream."""
    send(client, *entries(40))
    with fed(tmp_path, server.url(target="z")) as (durable, feeder, gauges):
        until(lambda: feeder.error)
        assert "all are rejected" in str(feeder.error)
        assert "'z'" in str(feeder.error)
        assert (durable.positions, durable.rows_seen, gauges.rows_refused) == ({}, 0, 0)
    with fed(tmp_path, server.url()) as (durable, _, _):
        until(lambda: durable.rows_seen == 40)


def test_consumer_starts_with_the_first_valid_entry(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    send(client, {"a": 1}, {"a": 2})
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: feeder.error)
        send(client, *entries(1))
        until(lambda: durable.rows_seen == 1)
        until(lambda: feeder.error is None)
        assert gauges.rows_refused == 2


@pytest.mark.parametrize("how", ["trim", "all", "delete"])
def test_entries_removed_before_reading_are_counted(
    server: RedisServer, client: Any, tmp_path: Path, how: str
) -> None:
    rows = entries(3000)
    with fed(tmp_path, server.url()) as (durable, _, _):
        send(client, *rows[:10])
        until(lambda: durable.rows_seen == 10)
    _remove(client, rows[10:60], how)
    send(client, *rows[60:])
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: _place(durable) == 3000)
        until(lambda: feeder.lag == 0)
        lost = {"trim": 30, "all": 50, "delete": 1}[how]
        until(lambda: gauges.rows_refused >= lost)
        assert (durable.rows_seen, gauges.rows_refused) == (3000 - lost, lost)
        assert f"but {lost:,} entries after" in whys(gauges)
        assert feeder.error is None


def test_entries_removed_while_reading_are_learned_or_counted(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    """Each entry is learned or counted as refused."""
    rows = entries(4000)
    send(client, rows.pop())
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: durable.rows_seen == 1)
        for i in range(40):
            _remove(client, rows[100 * i : 100 * i + 100], ("trim", "all", "delete")[i % 3])
        until(lambda: _place(durable) == 4000)
        until(lambda: durable.rows_seen + gauges.rows_refused >= 4000)
        assert durable.rows_seen + gauges.rows_refused == 4000
        assert feeder.error is None


def _remove(client: Any, rows: list[dict[str, float]], how: str) -> None:
    """Add rows, and remove some of them at once."""
    names = send(client, *rows)
    if how == "trim":
        client.xtrim("flow", minid=names[30], approximate=False)
    elif how == "all":
        client.xtrim("flow", maxlen=0, approximate=False)
    else:
        client.xdel("flow", names[7])


def _place(durable: Durable) -> int:
    """The number of entries at the consumer's position."""
    return int(next(iter(durable.positions.values()), "/0").partition("/")[2])


def test_removal_of_read_entries_is_harmless(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    seen = 0
    for i in range(4):
        names = send(client, *entries(1500, i))
        seen += 1500
        with fed(tmp_path, server.url()) as (durable, feeder, gauges):
            until(lambda: durable.rows_seen == seen)  # noqa: B023
            client.xdel("flow", *names[5:9])
            client.xtrim("flow", minid=names[(-1, 700)[i % 2]], approximate=False)
            send(client, entries(1)[0])
            seen += 1
            until(lambda: durable.rows_seen == seen)  # noqa: B023
            if i == 2:
                client.xtrim("flow", maxlen=0, approximate=False)
            assert _place(durable) == seen
            assert (gauges.rows_refused, whys(gauges), feeder.error) == (0, "", None)


@pytest.mark.parametrize("reading", [True, False])
def test_recreated_stream_is_read_from_its_beginning(
    server: RedisServer, client: Any, tmp_path: Path, *, reading: bool
) -> None:
    """The consumer reads the new entries, reports it, and repeats none."""
    send(client, *entries(10))
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: durable.rows_seen == 10)
        if reading:
            client.delete("flow")
            until(lambda: feeder.error)
            assert "there is no stream of this name" in str(feeder.error)
            send(client, *entries(5, 1))
            until(lambda: durable.rows_seen == 15)
            until(lambda: feeder.error is None)
            assert "recreated" in whys(gauges)
    if not reading:
        client.delete("flow")
        send(client, *entries(5, 1))
        with fed(tmp_path, server.url()) as (durable, feeder, gauges):
            until(lambda: durable.rows_seen == 15)
            until(lambda: "recreated" in whys(gauges))
            assert gauges.rows_refused == 0


def test_stream_that_ends_before_the_position_is_reported(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    send(client, *entries(10))
    with fed(tmp_path, server.url()) as (durable, _, _):
        until(lambda: durable.rows_seen == 10)
    client.delete("flow")
    client.xadd("flow", entries(1)[0], id="7-0")
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: feeder.error)
        assert "ends at 7-0" in str(feeder.error)
        assert "another `name`" in str(feeder.error)
        send(client, *entries(2, 1))
        until(lambda: durable.rows_seen == 12)
        until(lambda: feeder.error is None)
        assert "recreated" in whys(gauges)
    with fed(tmp_path, server.url(name="again")) as (durable, _, _):
        until(lambda: durable.rows_seen == 15)
        assert durable.positions["again"].endswith("/3")


def test_missing_stream_is_awaited(server: RedisServer, client: Any, tmp_path: Path) -> None:
    with fed(tmp_path, server.url()) as (durable, feeder, _):
        until(lambda: feeder.error)
        assert "there is no stream of this name" in str(feeder.error)
        client.set("flow", "text")
        until(lambda: "WRONGTYPE" in str(feeder.error))
        client.delete("flow")
        send(client, *entries(1))
        until(lambda: durable.rows_seen == 1)
        until(lambda: feeder.error is None)


def test_consumer_reconnects_to_an_unreachable_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreachable at the start, killed, and stopped so that it does not respond."""
    monkeypatch.setattr(redis, "_TIMEOUT", 0.6)
    server = RedisServer(tmp_path / "redis")
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: "refused" in str(feeder.error))
        with server:
            for i in range(1, 4):
                send(server.client(), *entries(4, i))
                until(lambda i=i: durable.rows_seen == 4 * i)  # type: ignore[misc]
                until(lambda: feeder.error is None)
                server.kill()
                until(lambda: feeder.error)
                server.start()
            until(lambda: feeder.error is None)
            assert server.process
            server.process.send_signal(signal.SIGSTOP)
            until(lambda: "Timeout" in str(feeder.error))
            server.process.send_signal(signal.SIGCONT)
            until(lambda: feeder.error is None)
        until(lambda: feeder.error)
        assert gauges.rows_refused == 0


def test_passwords_are_used_and_not_shown(tmp_path: Path) -> None:
    options = ("--requirepass", "correct-horse")
    with RedisServer(tmp_path / "redis", *options) as server:
        send(server.client(password="correct-horse"), *entries(3))  # noqa: S106
        for before, why in ((":wrong-horse@", "invalid username-password"), ("", "Authentication")):
            with fed(tmp_path, server.url(before=before)) as (durable, feeder, _):
                until(lambda: feeder.error)
                assert why in str(feeder.error)
                assert "horse" not in str(feeder.error)
        with fed(tmp_path, server.url(before=":correct-horse@")) as (durable, feeder, gauges):
            send(server.client(password="correct-horse"), {"a": "x"})  # noqa: S106
            until(lambda: durable.rows_seen == 3 and gauges.rows_refused == 1)
            seen = f"{durable.positions} {whys(gauges)} {feeder.source!r} {feeder.source.name}"
            assert "horse" not in seen
    assert all(b"horse" not in each.read_bytes() for each in tmp_path.glob("m.db*"))


def test_user_with_minimal_permissions_can_read(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    client.execute_command(
        "ACL", "SETUSER", "reader", "on", ">horse", "resetkeys", "~flow", "nocommands",
        "+xinfo|stream", "+xrange", "+xread", "+multi", "+exec",
    )  # fmt: skip
    send(client, *entries(3))
    with fed(tmp_path, server.url(before="reader:horse@")) as (durable, feeder, _):
        until(lambda: durable.rows_seen == 3)
        send(client, *entries(1))
        until(lambda: durable.rows_seen == 4)
        assert feeder.error is None
    with fed(tmp_path, server.url(before="reader:horse@", stream="other")) as (_, feeder, _):
        until(lambda: feeder.error)
        assert "permission" in str(feeder.error).lower()


def test_redis_over_tls(tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",  # noqa: S607
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out",
         "cert.pem"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate")
    plain = RedisServer(tmp_path / "redis")
    secure = RedisServer(tmp_path / "redis")
    plain.options = (
        "--tls-port", str(secure.port), "--tls-auth-clients", "no", "--tls-cert-file",
        str(tmp_path / "cert.pem"), "--tls-key-file", str(tmp_path / "key.pem"),
    )  # fmt: skip
    with plain:
        send(plain.client(), *entries(3))
        url = secure.url().replace("redis:", "rediss:")
        for error in (url, plain.url().replace("redis:", "rediss:"), f"{url}&ca=none.pem"):
            with fed(tmp_path, error) as (durable, feeder, _):
                until(lambda: feeder.error)
                assert "must be a Redis stream that can be read" in str(feeder.error)
        with fed(tmp_path, f"{url}&ca={tmp_path / 'cert.pem'}") as (durable, feeder, _):
            until(lambda: durable.rows_seen == 3)
            assert next(iter(durable.positions)).startswith("rediss://")


@pytest.mark.parametrize(
    ("labels", "text", "classes"),
    [("1 0 1", "", [0, 1]), ("yes no yes", "", ["no", "yes"]), ("1 no 2", "y", ["1", "2", "no"])],
)
def test_labels_are_numbers_or_text(
    server: RedisServer, client: Any, tmp_path: Path, labels: str, text: str, classes: list[Any]
) -> None:
    send(client, *({"a": i, "y": label} for i, label in enumerate(labels.split())))
    more = {"text": text} if text else {}
    with fed(tmp_path, server.url(**more), op.RLSClassifier()) as (durable, _, gauges):
        until(lambda: durable.rows_seen == 3)
        found = durable.model().classes_
        assert found.tolist() == classes
        assert found.dtype.kind == ("i" if classes[0] == 0 else "U")
        assert gauges.rows_refused == 0


def test_text_fields_and_dropped_fields(server: RedisServer, client: Any, tmp_path: Path) -> None:
    send(client, *({"zip": z, "seq": i, "y": i} for i, z in enumerate(["A1", "12", "0012", "12"])))
    with fed(tmp_path, server.url(text="zip,none", drop="seq")) as (durable, _, gauges):
        until(lambda: durable.rows_seen == 4)
        names = durable.model().features_[0].get_feature_names_out().tolist()
        assert names == ["zip=A1", "zip=12", "zip=0012"]
        assert gauges.rows_refused == 0


def test_times_are_ids_or_fields(server: RedisServer, client: Any, tmp_path: Path) -> None:
    """Times are those of the ids, or of a field with dates or numbers."""
    hourly = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
    client.xadd("flow", {"a": 1, "y": 2}, id="1795388746800-0")
    client.xadd("flow", {"a": 2, "y": 2}, id="1795392346800-0")
    with fed(tmp_path, server.url(time="id"), hourly) as (durable, _, gauges):
        until(lambda: durable.rows_seen == 2)
        apart = np.array(["2026-11-22T23:05:46.8", "2026-11-23T00:05:46.8"], "datetime64[us]")
        alone = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
        alone.partial_fit([[1.0], [2.0]], [2.0, 2.0], time=apart)
        np.testing.assert_allclose(durable.model().coef_, alone.coef_, atol=1e-12)
    for half_life, times in (
        (60.0, ("0", "60")),
        ("60s", ("2026-01-01", "2026-01-01T01:01:00+01:00")),
    ):
        client.flushall()
        model = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life=half_life))
        send(client, *({"a": i, "y": 2, "at": at} for i, at in enumerate(times)),
             {"a": 1, "y": 2}, {"a": 1, "y": 2, "at": "soon"})  # fmt: skip
        place = tmp_path / str(half_life)
        place.mkdir()
        with fed(place, server.url(time="at"), model) as (durable, _, gauges):
            until(lambda: durable.rows_seen == 2)
            until(lambda: gauges.rows_refused == 2)
            assert "in its field 'at', got none" in whys(gauges)
            assert "in its field 'at', got 'soon'" in whys(gauges)
            assert durable.model().n_features_in_ == 1


def test_entries_whose_id_is_no_time_are_skipped(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    """Other entries are learned."""
    hourly = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
    model = op.Pipeline(op.features.Encode(), hourly)
    client.xadd("flow", {"a": 1, "y": 2}, id="1700000000000-0")
    client.xadd("flow", {"a": 2, "y": 3}, id="253402300800000-0")
    client.xadd("flow", {"a": 2, "y": 3}, id=f"{2**63}-0")
    with fed(tmp_path, server.url(time="id"), model) as (durable, feeder, gauges):
        until(lambda: gauges.rows_refused == 2)
        assert durable.rows_seen == 1
        assert feeder.error is None
        assert "must have an id that is a time" in whys(gauges)


def test_times_require_a_learner_that_forgets_by_time(tmp_path: Path) -> None:
    url = "redis://localhost/0?stream=flow&target=y"
    with (
        op.durable(tmp_path / "m.db", linear()) as durable,
        pytest.raises(ParameterError, match="must not name the field of the time"),
    ):
        SourceConsumer(durable, source(f"{url}&time=id"), Gauges(durable.frozen_copy).refuse)
    hourly = op.RLSRegressor(forgetting=op.forgetting.Exponential(half_life="1h"))
    with (
        op.durable(tmp_path / "h.db", hourly) as durable,
        pytest.raises(ParameterError, match="must name the field of the time"),
    ):
        SourceConsumer(durable, source(url), Gauges(durable.frozen_copy).refuse)


def test_consumer_waits_while_the_disk_is_full(
    server: RedisServer, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry is refused or skipped; all are learned once there is space."""
    monkeypatch.setattr(consumer, "_MAX_DELAY", 0.2)
    send(client, *entries(3))
    with fed(tmp_path, server.url()) as (durable, feeder, gauges):
        until(lambda: durable.rows_seen == 3)
        db = durable._journal._db
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        most = db.execute("PRAGMA max_page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        send(client, {"a": "x"}, *entries(900, 1), {"a": "text", "b": 1, "y": 1}, *entries(900, 2))
        until(lambda: feeder.error)
        assert "full" in str(feeder.error)
        db.execute(f"PRAGMA max_page_count = {most}")
        until(lambda: durable.rows_seen == 1803)
        until(lambda: feeder.error is None)
        until(lambda: gauges.rows_refused == 2)
        assert gauges.rows_refused == 2  # however often they were tried
