"""By hand: the service that one writes oneself, as a peer of ``onepass serve`` for ``load.py``.

    BY_HAND=FOLDER uvicorn by_hand:site --app-dir benchmarks

Starlette and msgspec on uvicorn. It predicts with weights, learns a row by recursive least squares
in NumPy, and commits it to SQLite before it answers. It is what is quickly written: it checks no
rows, recovers nothing, knows no keys, and while the disk works nobody else is answered.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["site"]

PREDICTING, LEARNING = 100, 10  # features, as of load.py


class Tensor(msgspec.Struct):
    """A tensor of the Open Inference Protocol."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class Asked(msgspec.Struct):
    """A request."""

    inputs: list[Tensor]


class Learner:
    """Recursive least squares, and its file."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "rows.db", isolation_level=None)
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            self._db.execute(f"PRAGMA {setting}")
        self._db.execute("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, body BLOB)")
        self._w, self._P = np.zeros(LEARNING), np.eye(LEARNING)
        self.version = 0

    def learn(self, x: Any, y: float, body: bytes) -> float:
        """Learn a row that is on the disk then; what was said of it before."""
        said = float(x @ self._w)
        g = self._P @ x
        g /= 1 + x @ g
        self._w += g * (y - said)
        self._P -= np.outer(g, x @ self._P)
        self._db.execute("INSERT INTO log (body) VALUES (?)", (body,))
        self.version += 1
        return said


_DECODER, _ENCODER = msgspec.json.Decoder(Asked), msgspec.json.Encoder()
_WEIGHTS = np.random.default_rng(0).normal(size=PREDICTING)
_LEARNER = Learner(Path(os.environ["BY_HAND"]))


async def infer(request: Request) -> Response:
    """Predict rows."""
    (tensor,) = _DECODER.decode(await request.body()).inputs
    X = np.array(tensor.data).reshape(tensor.shape)
    return _answer(request, 1, (X @ _WEIGHTS).tolist())


async def learn(request: Request) -> Response:
    """Learn a row."""
    body = await request.body()
    row, answer = _DECODER.decode(body).inputs
    said = _LEARNER.learn(np.array(row.data), answer.data[0], body)
    return _answer(request, _LEARNER.version, [said])


def _answer(request: Request, version: int, said: list[float]) -> Response:
    told = {
        "model_name": request.path_params["name"],
        "model_version": str(version),
        "outputs": [{"name": "y", "datatype": "FP64", "shape": [len(said)], "data": said}],
    }
    return Response(_ENCODER.encode(told), media_type="application/json")


site = Starlette(
    routes=[
        Route("/v2/models/{name}/infer", infer, methods=["POST"]),
        Route("/v2/models/{name}/learn", learn, methods=["POST"]),
    ]
)
