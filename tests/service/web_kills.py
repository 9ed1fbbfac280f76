"""Kill a service that learns over HTTP, at any step or moment, while its clients go on.

The service is what ``onepass serve`` runs, in a process that is forked from one that has it loaded.
Clients send rows with keys, now and then once more; they ask and answer later, let questions go
unanswered, predict, and have snapshots taken. Each tries again until it has heard. In the end each
row that was acknowledged must stand in the block that was told, and what was said of it before must
be what the unbroken learner says, to the last bit.
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
from fates import ANY, LONGEST, Fate, Fates, Found, Learned, meet, named, names_of
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


def carried_out(plan: Plan) -> int:
    """Serve, in the process that is killed; the exit code."""
    from onepass.cli import main
    from onepass.service import writer

    meet(plan.step, plan.nth)
    writer._EXPIRY_INTERVAL = 0.2  # what is too old is let go more often than each minute
    words = f"--port {plan.port} --snapshot-rows 40 --snapshots 3 --log error --quiet"
    return main(["serve", str(plan.model), "--data", str(plan.path.parent), *words.split()])


def fork_server_of_plans() -> ForkServer:
    """Of processes that serve."""
    prepare = """
import web_kills
import onepass.cli.serve, onepass.cli.app, onepass.features, onepass.serialization.models, uvicorn
import onepass.service.http.app, onepass.service.http.connection, onepass.service.http.server
"""
    return ForkServer(prepare, "web_kills.carried_out(web_kills.Plan(**given))")


# -- in the process that kills ---------------------------------------------------------------------


class Sender(threading.Thread):
    """A client that goes on until it is told to end, and notes what it was told.

    Parameters
    ----------
    number : int
        It tells its rows from those of others.
    url : str
    over : threading.Event
        Ends it, after what it is at.
    """

    def __init__(self, number: int, url: str, over: threading.Event) -> None:
        super().__init__(name=f"sender {number}")
        self.acknowledged: list[tuple[Any, Any, LearnResult]] = []
        self.error = ""
        self._number, self._over = number, over
        self._client = Client(url, timeout=20.0, retry_timeout=LONGEST)
        self._rng = np.random.default_rng(number)

    def run(self) -> None:
        i = 0
        try:
            with self._client:
                while not self._over.is_set():
                    self._turn(i)
                    i += 1
        except Exception as error:  # noqa: BLE001  told in the end
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


def killed(folder: Path, fates: Fates, found: Found, rng: Any) -> None:
    """Kill a service until it has met all its fates."""
    with fork_server_of_plans() as fork_server:
        while fates and not found.error:
            place = folder / f"round{found.rounds}"
            place.mkdir()
            _round(place, fates, found, fork_server, rng)
            if not found.error:
                shutil.rmtree(place)


def _round(folder: Path, fates: Fates, found: Found, fork_server: ForkServer, rng: Any) -> None:
    """Kill a service some times, until its last process ends as it should."""
    plan = Plan(str(folder), free_port())
    op.save(linear(), plan.model)
    over = threading.Event()
    url = f"http://127.0.0.1:{plan.port}"
    senders = [Sender(1000 * found.rounds + n, url, over) for n in range(CLIENTS)]
    for each in senders:
        each.start()
    lives = 0
    while not found.faults and (fate := fates.take(lives=lives, there=plan.path.exists())):
        _live(plan, fate, found, fork_server, rng)
        lives += 1
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
    held(plan, senders, predictions, found)


def _live(plan: Plan, fate: Fate, found: Found, fork_server: ForkServer, rng: Any) -> None:
    """One process, until it is killed."""
    fork_server.begin(Plan(plan.folder, plan.port, fate.step, fate.nth))
    if fate.place == ANY:
        if rng.random() < 0.8:  # the others while it begins
            acknowledged_rows(plan.port, fork_server)
        fork_server.ended(0.4 * rng.random())
        found.died(fate, fork_server.end())
    else:
        late = not fork_server.ended(LONGEST)
        found.died(fate, fork_server.end(), late=late)


def acknowledged_rows(port: int, fork_server: ForkServer) -> None:
    """Wait until the service listens, or has ended."""
    while not fork_server.ended(0.01):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return


def held(plan: Plan, senders: list[Sender], predictions: Any, found: Found) -> None:
    """Hold what was learned to what was sent and told."""
    log, before, model = found.compare(plan.path, linear())
    sent = [
        list(chain.from_iterable(names_of(X, y) for X, y, _ in each.acknowledged))
        for each in senders
    ]
    found.account(named(log), sent)
    response = _acknowledged(log, before)
    for X, y, result in (acknowledged for each in senders for acknowledged in each.acknowledged):
        for name, one in zip(names_of(X, y), result.predictions, strict=True):
            if response.get(name) != (result.version, one.tobytes()):
                found.faults.append(f"what was told of a row is not in block {result.version}")
    if any(each.acknowledged for each in senders):
        X, y = (np.concatenate([getattr(each.block, part) for each in log]) for part in "Xy")
        batch = linear().partial_fit(X, y)
        if not np.allclose(model.coef_, batch.coef_, rtol=0, atol=1e-8):
            found.faults.append("the weights are not those of a batch solution")
        if model.predict(np.eye(WIDTH)).tobytes() != predictions.tobytes():
            found.faults.append("the service did not answer as the learner in its file")


def _acknowledged(log: list[Learned], predictions: list[Any]) -> dict[bytes, tuple[int, bytes]]:
    """Of each row its block, and what was to be said of it before."""
    return {
        name: (each.sequence, one.tobytes())
        for each, answers in zip(log, predictions, strict=True)
        for name, one in zip(names_of(each.block.X, each.block.y), answers, strict=True)
    }
