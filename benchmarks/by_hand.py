"""Two hand-written services, compared with ``onepass serve`` in ``load.py``.

    BY_HAND=FOLDER uvicorn by_hand:bare --app-dir benchmarks
    BY_HAND=FOLDER uvicorn by_hand:group_commit --app-dir benchmarks

``bare`` reads the body and returns a constant, to measure the cost of Starlette on uvicorn.
``group_commit`` predicts with constant weights and learns by recursive least squares in NumPy. One
writer thread learns all queued rows, commits them to SQLite in one transaction and then responds to
their requests. It looks up idempotency keys, but does not validate rows, recover after a crash or
write snapshots.
"""

import asyncio
import os
import sqlite3
from collections import deque
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["bare", "group_commit"]

PREDICTING, LEARNING = 100, 10  # features, as in load.py


class Tensor(msgspec.Struct):
    """A tensor of the Open Inference Protocol."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class Body(msgspec.Struct):
    """A request of the Open Inference Protocol."""

    inputs: list[Tensor]


class Writer:
    """Recursive least squares, its file, and the thread that writes both."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._w, self._P, self._version = np.zeros(LEARNING), np.eye(LEARNING), 0
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._changed = Condition()
        Thread(target=self._run, daemon=True).start()

    def put(self, *item: Any) -> None:
        """Enqueue a row: event loop, future, x, y, body, key."""
        with self._changed:
            self._waiting.append(item)
            self._changed.notify()

    def _run(self) -> None:
        db = sqlite3.connect(self._folder / "rows.db", isolation_level=None)
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            db.execute(f"PRAGMA {setting}")
        db.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, body BLOB)")
        db.execute("CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, prediction REAL)")
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), 512))]
            db.execute("BEGIN IMMEDIATE")
            results = [(future, self._one(db, *row)) for _, future, *row in group]
            db.execute("COMMIT")
            group[0][0].call_soon_threadsafe(_resolve, results)

    def _one(self, db: Any, x: Any, y: float, body: bytes, key: str | None) -> tuple[int, float]:
        """Predict, learn and log a row, unless its key is stored."""
        if key is not None:
            known = db.execute("SELECT prediction FROM keys WHERE key = ?", (key,)).fetchone()
            if known is not None:
                return self._version, known[0]
        prediction = float(x @ self._w)
        gain = self._P @ x
        gain /= 1 + x @ gain
        self._w += gain * (y - prediction)
        self._P -= np.outer(gain, x @ self._P)
        self._version += 1
        db.execute("INSERT INTO log (body) VALUES (?)", (body,))
        if key is not None:
            db.execute("INSERT INTO keys VALUES (?, ?)", (key, prediction))
        return self._version, prediction


def _resolve(results: list[tuple[asyncio.Future[Any], tuple[int, float]]]) -> None:
    for future, result in results:
        future.set_result(result)


_DECODER, _ENCODER = msgspec.json.Decoder(Body), msgspec.json.Encoder()
_WEIGHTS = np.random.default_rng(0).normal(size=PREDICTING)


async def infer(request: Request) -> Response:
    """Predict rows."""
    (tensor,) = _DECODER.decode(await request.body()).inputs
    X = np.array(tensor.data).reshape(tensor.shape)
    return _response(request, 1, (X @ _WEIGHTS).tolist())


async def learn(request: Request) -> Response:
    """Learn a row."""
    body, loop = await request.body(), asyncio.get_running_loop()
    row, target = _DECODER.decode(body).inputs
    future = loop.create_future()
    key = request.headers.get("idempotency-key")
    _WRITER.put(loop, future, np.array(row.data), target.data[0], body, key)
    version, prediction = await future
    return _response(request, version, [prediction])


def _response(request: Request, version: int, predictions: list[float]) -> Response:
    content = {
        "model_name": request.path_params["name"],
        "model_version": str(version),
        "outputs": [
            {"name": "y", "datatype": "FP64", "shape": [len(predictions)], "data": predictions}
        ],
    }
    return Response(_ENCODER.encode(content), media_type="application/json")


async def constant(request: Request) -> Response:
    """Return the same response to every request."""
    await request.body()
    return _response(request, 1, [0.5])


def _app(infer: Any, learn: Any) -> Starlette:
    return Starlette(
        routes=[
            Route("/v2/models/{name}/infer", infer, methods=["POST"]),
            Route("/v2/models/{name}/learn", learn, methods=["POST"]),
        ]
    )


_WRITER = Writer(Path(os.environ["BY_HAND"]))
bare = _app(constant, constant)
group_commit = _app(infer, learn)
