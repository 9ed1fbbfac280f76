"""Kill a service that learns over HTTP, at any step or moment, while its clients continue.

The service is what ``onepass serve`` runs, in a process that is forked from one that has it loaded.
Clients send rows with keys, sometimes twice; they send labels later
or never, predict, and request snapshots. Each retries until it has a response. In the end each
acknowledged row is in the block of its version, and its prediction equals that of an uninterrupted
learner bit for bit.
"""

import shutil
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from kill_checks import (
    ANY_MOMENT,
    STEP_TIMEOUT,
    KillPoint,
    KillReport,
    KillSchedule,
    LoggedBlock,
    kill_at,
    logged_row_keys,
    row_keys,
)
from ports import free_port

import onepass as op
from fork_server import ForkServer
from onepass.errors import ServiceError
from onepass.service.client import Client
from onepass.service.requests import LearnResult

WIDTH, CLIENTS = 4, 4
RIDGE = 1e-6
NAME = "rls"
STEPS = {
    "created": 1,
    "in place": 1,
    "begun": 20,
    "entry": 12,
    "keys": 12,
    "pending rows": 4,
    "labels": 4,
    "snapshot": 5,
    "pruned snapshots": 4,
    "trimmed log": 4,
    "swept keys": 3,
    "before commit": 20,
    "after commit": 20,
    "published": 12,
    "acknowledged": 12,
}
"""What ``Journal.reached`` names, and how often each is reached at most before the kill."""


@dataclass(frozen=True)
class Plan:
    """A service, and where it is killed."""

    folder: str
    port: int
    step: str = ""
    nth: int = 1

    @property
    def path(self) -> Path:
        return Path(self.folder, "data", f"{NAME}.db")

    @property
    def model(self) -> Path:
        return Path(self.folder, f"{NAME}.onepass")


def linear() -> Any:
    return op.RLSRegressor(ridge=RIDGE)


def execute(plan: Plan) -> int:
    """Serve, in the process that is killed; the exit code."""
    from onepass.cli import main
    from onepass.service import writer

    kill_at(plan.step, plan.nth)
    writer._EXPIRY_INTERVAL = 0.2  # what is too old is let go more often than each minute
    words = f"--port {plan.port} --snapshot-rows 40 --snapshots 3 --log error --quiet"
    return main(["serve", str(plan.model), "--data", str(plan.path.parent), *words.split()])


def plan_fork_server() -> ForkServer:
    """Of processes that serve."""
    prepare = """
import web_kills
import onepass.cli.serve, onepass.cli.app, onepass.features, onepass.serialization.models, uvicorn
import onepass.service.http.app, onepass.service.http.connection, onepass.service.http.server
"""
    return ForkServer(prepare, "web_kills.execute(web_kills.Plan(**given))")


# -- the killing process ---------------------------------------------------------------------------


class Sender(threading.Thread):
    """A client that learns until it is stopped, and records the results.

    Parameters
    ----------
    number : int
        Seed of its rows.
    url : str
    over : threading.Event
        Stops it after the current request.
    """

    def __init__(self, number: int, url: str, over: threading.Event) -> None:
        super().__init__(name=f"sender {number}")
        self.acknowledged: list[tuple[Any, Any, LearnResult]] = []
        self.error = ""
        self._number, self._over = number, over
        self._client = Client(url, timeout=20.0, retry_timeout=STEP_TIMEOUT)
        self._rng = np.random.default_rng(number)

    def run(self) -> None:
        i = 0
        try:
            with self._client:
                while not self._over.is_set():
                    self._turn(i)
                    i += 1
        except Exception as error:  # noqa: BLE001  reported at the end
            self.error = f"{self.name}, turn {i}: {error!r}"

    def _turn(self, i: int) -> None:
        self._learn(i)
        if i % 3 == 0:
            self._late(i)
        if i % 4 == 1:
            self._ask(self._rows(1)[0], seconds=0.1)  # nobody answers it
        if i % 5 == 2:
            self._client.snapshot(NAME)
        assert np.isfinite(self._client.predict(NAME, self._rows(3)[0])).all()

    def _learn(self, i: int) -> None:
        X, y = self._rows((1, 1, 3, 2)[i % 4])
        result = self._client.learn(NAME, X, y, key=f"{self._number}-{i}")
        self.acknowledged.append((X, y, result))
        if i % 2:  # as one who has not heard
            _same(self._client.learn(NAME, X, y, key=f"{self._number}-{i}"), result)

    def _late(self, i: int) -> None:
        X, y = self._rows(2)
        ids = self._ask(X)[1]
        result = self._client.learn_labels(NAME, ids, y)
        self.acknowledged.append((X, y, result))
        if i % 2:
            _same(self._client.learn_labels(NAME, ids, y), result)

    def _ask(self, X: Any, **given: Any) -> tuple[Any, list[str]]:
        """Ask until the service responds: the client does not repeat it, as rows are stored."""
        end = time.monotonic() + 60
        while True:
            try:
                return self._client.predict_pending(NAME, X, **given)
            except ServiceError as error:
                if error.status not in {0, 502, 503, 504} or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _rows(self, n: int) -> tuple[Any, Any]:
        X = self._rng.normal(size=(n, WIDTH))
        return X, X @ np.arange(WIDTH) + self._rng.normal(size=n)


def _same(again: LearnResult, first: LearnResult) -> None:
    assert again.repeated
    assert again.version == first.version
    assert again.predictions.tobytes() == first.predictions.tobytes()


def killed(folder: Path, schedule: KillSchedule, found: KillReport, rng: Any) -> None:
    """Kill a service until the schedule is empty."""
    with plan_fork_server() as fork_server:
        while schedule and not found.error:
            place = folder / f"round{found.rounds}"
            place.mkdir()
            _round(place, schedule, found, fork_server, rng)
            if not found.error:
                shutil.rmtree(place)


def _round(
    folder: Path, schedule: KillSchedule, found: KillReport, fork_server: ForkServer, rng: Any
) -> None:
    """Kill a service some times, until its last process ends as it should."""
    plan = Plan(str(folder), free_port())
    op.save(linear(), plan.model)
    over = threading.Event()
    url = f"http://127.0.0.1:{plan.port}"
    senders = [Sender(1000 * found.rounds + n, url, over) for n in range(CLIENTS)]
    for each in senders:
        each.start()
    kills = 0
    while not found.faults and (
        point := schedule.next_point(kills=kills, exists=plan.path.exists())
    ):
        _live(plan, point, found, fork_server, rng)
        kills += 1
    fork_server.begin(Plan(plan.folder, plan.port))
    time.sleep(0.2 * rng.random())
    over.set()
    for each in senders:
        each.join()
    with Client(url) as client:
        predictions = client.predict(NAME, np.eye(WIDTH))
    code = fork_server.end(signal.SIGTERM)
    if code != 128 + signal.SIGTERM:
        found.faults.append(f"exit code {code} in the end")
    found.faults += [each.error for each in senders if each.error]
    check_result(plan, senders, predictions, found)


def _live(
    plan: Plan, point: KillPoint, found: KillReport, fork_server: ForkServer, rng: Any
) -> None:
    """One process, until it is killed."""
    fork_server.begin(Plan(plan.folder, plan.port, point.step, point.nth))
    if point.place == ANY_MOMENT:
        if rng.random() < 0.8:  # the others while it begins
            wait_until_listening(plan.port, fork_server)
        fork_server.ended(0.4 * rng.random())
        found.count_kill(point, fork_server.end())
    else:
        late = not fork_server.ended(STEP_TIMEOUT)
        found.count_kill(point, fork_server.end(), late=late)


def wait_until_listening(port: int, fork_server: ForkServer) -> None:
    """Wait until the service listens, or has ended."""
    while not fork_server.ended(0.01):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return


def check_result(plan: Plan, senders: list[Sender], predictions: Any, found: KillReport) -> None:
    """Compare the learned rows and predictions with the acknowledged ones."""
    log, before, model = found.compare(plan.path, linear())
    sent = [
        list(chain.from_iterable(row_keys(X, y) for X, y, _ in each.acknowledged))
        for each in senders
    ]
    found.count_rows(logged_row_keys(log), sent)
    response = _acknowledged(log, before)
    for X, y, result in (acknowledged for each in senders for acknowledged in each.acknowledged):
        for name, one in zip(row_keys(X, y), result.predictions, strict=True):
            version, predicted = response.get(name, (0, np.nan))
            if version != result.version or not np.allclose(predicted, one, rtol=1e-9, atol=1e-12):
                found.faults.append(f"what was said of a row is not in block {result.version}")
    if any(each.acknowledged for each in senders):
        X, y = (np.concatenate([getattr(each.block, part) for each in log]) for part in "Xy")
        batch = linear().partial_fit(X, y)
        if not np.allclose(model.coef_, batch.coef_, rtol=0, atol=1e-8):
            found.faults.append("the weights are not those of a batch solution")
        if model.predict(np.eye(WIDTH)).tobytes() != predictions.tobytes():
            found.faults.append("the service did not answer as the learner in its file")


def _acknowledged(log: list[LoggedBlock], predictions: list[Any]) -> dict[bytes, tuple[int, Any]]:
    """Of each row its block, and what was to be said of it before."""
    return {
        name: (each.sequence, one)
        for each, answers in zip(log, predictions, strict=True)
        for name, one in zip(row_keys(each.block.X, each.block.y), answers, strict=True)
    }
