"""Pending rows: required role, limits and expiry."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from web_server import TOKEN, Server, output, rows, send_request

from onepass.errors import CommitTimeoutError
from onepass.service import Client
from onepass.service.http.auth import Tokens
from onepass.service.http.context import Service
from onepass.service.protocol.limits import Limits
from onepass.service.registry import ModelRegistry
from sampling import examples

INFER, LEARN, LABELS = (f"/v2/models/rls/{verb}" for verb in ("infer", "learn", "labels"))
ROLES = {"predict": "p" * 20, "learn": "l" * 20, "admin": TOKEN}
MOST, MONTH = 8, 30 * 86400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("pending")
    (folder / "tokens").write_text("".join(f"{role} {token}\n" for role, token in ROLES.items()))
    options = ("--tokens", str(folder / "tokens"), "--max-pending", str(MOST))
    with Server(folder / "data", "rls", *options) as running:
        running.token = TOKEN
        yield running


@pytest.mark.parametrize("role", ROLES)
def test_await_label_requires_the_role_learn(server: Server, role: str) -> None:
    """Without ``await_label`` the role predict suffices."""
    with Client(server.url, ROLES[role], retry_timeout=0.0) as client:
        assert client.predict("rls", [[1.0]]).shape == (1,)
    for body in (
        rows([[1.0]], await_label=True, seconds=0),
        rows([[1.0]] * 5000, await_label=True, seconds=0),
    ):
        status, response, _ = send_request(server.port, "POST", INFER, body, token=ROLES[role])
        if role == "predict":
            needed = "role 'learn' for infer with 'await_label'"
            assert (status, needed in response["error"]) == (403, True)
        else:
            assert status == 200 if body["inputs"][0]["shape"][0] == 1 else 429


def test_expiry_of_pending_rows_is_limited_to_a_month(server: Server) -> None:
    status, response, _ = server.send(
        "POST", INFER, rows([[1.0]], await_label=True, seconds=MONTH + 1)
    )
    assert (status, "[0, 2.592e+06]" in response["error"]) == (400, True)
    status, response, _ = server.send("POST", INFER, rows([[1.0]], await_label=True, seconds=MONTH))
    assert status == 200
    label(server, output(response, "id"))


def label(server: Server, ids: list[str]) -> None:
    n = len(ids)
    tensors = [{"name": "id", "shape": [n], "datatype": "BYTES", "data": ids},
               {"name": "y", "shape": [n], "datatype": "FP64", "data": [1] * n}]  # fmt: skip
    assert server.send("POST", LABELS, {"inputs": tensors})[0] == 200


@settings(max_examples=examples(10, 25), print_blob=True)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["predict", "label", "expire"]), st.integers(1, 10)))
)
def test_number_of_pending_rows_is_limited(server: Server, steps: list[tuple[str, int]]) -> None:
    """Requests beyond the limit are refused as a whole; labelled rows no longer count."""
    waiting: list[str] = []
    for step, n in steps:
        if step == "label":
            some, waiting = waiting[:n], waiting[n:]
            if some:
                label(server, some)
            continue
        seconds = 0 if step == "expire" else 3600
        body = rows([[1.0]] * n, await_label=True, seconds=seconds)
        status, response, headers = server.send("POST", INFER, body)
        if len(waiting) + n > MOST:
            assert (status, headers["retry-after"]) == (429, "60")
            assert f"at most {MOST} rows may wait for their labels" in response["error"]
        else:
            assert status == 200
            waiting += output(response, "id") if step == "predict" else []
        assert server.send("POST", INFER, rows([[1.0]]))[0] == 200
        time.sleep(2e-3)  # what is to expire at once has expired
    for first in range(0, len(waiting), 4):
        label(server, waiting[first : first + 4])


def test_pending_rows_are_counted_after_a_restart(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "rls", "--max-pending", "3") as server:
        ids = output(server.send("POST", INFER, rows([[1.0]] * 3, await_label=True))[1], "id")
        server.kill()
        server.start()
        assert server.send("POST", INFER, rows([[1.0]], await_label=True))[0] == 429
        assert server.send("POST", LEARN, rows([[1.0]], [1.0]))[0] == 200
        label(server, ids)
        assert server.send("POST", INFER, rows([[1.0]] * 3, await_label=True))[0] == 200


def test_commit_timeouts_are_commit_timeout_errors(tmp_path: Path) -> None:
    """Also if the clock of the event loop is coarser than its timers."""

    async def late() -> int:
        service = Service(ModelRegistry(tmp_path), Tokens({}), Limits(), None, 0.05)
        futures = [asyncio.get_running_loop().create_future() for _ in range(200)]
        waits = [service.committed(each, "m") for each in futures]
        found = await asyncio.gather(*waits, return_exceptions=True)
        return sum(isinstance(each, CommitTimeoutError) for each in found)

    for run in (asyncio.run, pytest.importorskip("uvloop").run):
        assert run(late()) == 200
