"""States for the page: realistic, empty, and hostile ones."""

import math
from typing import Any

import numpy as np

NOW = 1795388746.8

WHY = """\
RLSRegressor.learn: `X` holds nan in row 0, column 'vibration'. Drop the row, or impute it before learning.
RLSRegressor.learn: `X` must have 8 columns, as in the first block, got 7. Start a new learner for a new set of features.
flow.learn: the key 'sensor-3/1795-0' must be sent with the rows of its first request (version 7), got other rows. Use a new key for other rows.
""".splitlines()  # noqa: E501  each as it is


def lively(name: str = "flow", rows: int = 48_210, seed: int = 0, **over: Any) -> dict[str, Any]:
    """A model with realistic numbers."""
    rng = np.random.default_rng(seed)
    at = np.unique(np.linspace(1, rows, min(rows, 400)).astype(int))
    share = at / rows
    moved = np.where(share > 0.62, 0.55 * np.exp(-(share - 0.62) * 22), 0.0)
    learning = 3.4 * np.exp(-share * 30)
    window = 0.79 + learning + moved + 0.03 * np.sin(share * 40) + rng.normal(0, 0.012, at.size)
    whole = np.cumsum(window) / np.arange(1, at.size + 1)
    seconds = np.arange(300, -1, -3)
    beat = 812 + 60 * np.sin(seconds / 23) + rng.normal(0, 18, seconds.size)
    beat[55:60] = 0.0
    predicted = 12_034 + 900 * np.sin(seconds / 41) + rng.normal(0, 260, seconds.size)
    state: dict[str, Any] = {
        "name": name,
        "class": "RLSRegressor",
        "parameters": "ridge=1e-06, forgetting=0.9999",
        "ready": True,
        "error": None,
        "version": 16_070,
        "rows_seen": rows,
        "rows_refused": 3,
        "nbytes": 51_148,
        "labels_pending": 2,
        "prequential_error": {
            "name": "mean absolute error",
            "all": float(whole[-1]),
            "window": float(window[-1]),
            "window_rows": 1000,
            "r2": 0.947,
            "baseline": {"name": "mean of earlier targets", "all": 4.2, "window": 4.18},
            "curve": [
                [
                    int(n),
                    *values,
                    NOW - 0.2 * (rows - int(n)),
                    4.1 + 0.2 * math.sin(int(n) / rows * 9),
                ]
                for n, *values in zip(at, whole.tolist(), window.tolist(), strict=True)
            ],
        },
        "rates": {
            "learned": float(beat[-1]),
            "predicted": float(predicted[-1]),
            "curve": np.stack([seconds, beat, predicted], axis=1).astype(int).tolist(),
        },
        "latency": {
            "learn": {"p50": 0.0003, "p99": 0.00214},
            "predict": {"p50": 4.1e-5, "p99": 0.00031},
        },
        "drift": [{"rows": int(0.632 * rows), "at": NOW - 0.2 * 0.368 * rows, "detector": "adwin"}],
        "refused": [
            {
                "at": NOW - age,
                "first": NOW - age - 60 * i,
                "times": i + 1,
                "rows": i + 1,
                "why": each,
            }
            for i, (age, each) in enumerate(zip((14.2, 4021.0, 90_210.0), WHY, strict=True))
        ],
        "snapshots": [
            _snapshot(0, 0, 93_000.0, "beginning", 328),
            _snapshot(8_004, 24_012, 3900.0, "time", 51_322),
            _snapshot(9_911, 29_733, 1300.0, "rollback to 9880", 51_322),
            _snapshot(15_120, 45_360, 64.0, "time", 51_322),
        ],
        "detectors": {"adwin": True},
        "positions": {
            "redis://localhost:6379/readings": "1795388746123-0",
            "redis://localhost:6379/late": "1795388745870-3",
        },
    }
    return {**state, **over}


def _snapshot(version: int, rows: int, age: float, why: str, nbytes: int) -> dict[str, Any]:
    return {"version": version, "rows_seen": rows, "at": NOW - age, "why": why, "nbytes": nbytes}


def state(*models: Any, **over: Any) -> dict[str, Any]:
    roles = ["admin", "learn", "predict"]
    return {"now": NOW, "onepass": "0.1.0", "roles": roles, "models": list(models), **over}


def unborn(name: str = "new") -> dict[str, Any]:
    """An unfitted model: all optional values are null."""
    return {
        "name": name, "class": "ORFitClassifier", "parameters": "memory=100", "ready": False,
        "error": None, "version": 0, "rows_seen": 0, "rows_refused": 0, "nbytes": 0,
        "labels_pending": 0, "prequential_error": {"name": "accuracy", "all": None, "window": None,
        "window_rows": 0, "r2": None, "baseline": {"name": "most frequent earlier label",
        "all": None, "window": None}, "curve": []},
        "rates": {"learned": 0.0, "predicted": 0.0, "curve": []},
        "latency": {"learn": {"p50": None, "p99": None}, "predict": {"p50": None, "p99": None}},
        "drift": [], "refused": [], "snapshots": [], "detectors": {},
        "positions": {},
    }  # fmt: skip


ATTACK = (
    "<script>window.hurt=1</script><img src=x onerror=window.hurt=1>"
    "</td><svg onload=window.hurt=1>\"'`${window.hurt=1}&lt;b&gt;javascript:window.hurt=1"
)
LONG = "a-very-long-name-" * 60
STRANGE = "\u202eevil\u202c \u202e z\u0336\u0321a\u0337l\u0338go 模型 🚀 \x00 \n\t نموذج"


def hostile() -> dict[str, Any]:
    """Markup, long text and unusual characters in all text fields, and long curves."""
    huge = [
        [i, 1e300 if i % 7 else None, abs(math.sin(i)) * 10 ** (i % 17 - 8), NOW - 5000 + i, 1e9]
        for i in range(5000)
    ]
    names = [ATTACK, LONG, STRANGE, "", "__proto__", "#model=../../state?", "model", "detail"]
    return state(
        *(_misused(i, name, huge) for i, name in enumerate(names)),
        {"name": "nothing else", "ready": False, "error": ATTACK},
        onepass=ATTACK,
    )


def _misused(i: int, name: str, curve: Any) -> dict[str, Any]:
    """A model with this name in all text fields, and long lists."""
    return lively(
        name,
        rows=90 + i,
        seed=i,
        **{"class": name},
        parameters=name,
        error=name if i % 2 else None,
        prequential_error={
            "name": name,
            "all": 1e308,
            "window": 5e-324,
            "window_rows": 10**15,
            "r2": -1e300,
            "baseline": {"name": name, "all": 1e308, "window": 5e-324},
            "curve": curve,
        },
        drift=[{"rows": 7 * j, "at": NOW - j, "detector": name} for j in range(300)],
        refused=[
            {"at": NOW - j, "first": 0, "times": 9**9, "rows": j, "why": name} for j in range(300)
        ],
        snapshots=[_snapshot(j, j, 1e9 * j, name, 2**j) for j in range(60)],
        positions={f"{name}{j}": name for j in range(40)},
    )


def dozen() -> dict[str, Any]:
    """Twelve models of one server."""
    names = (
        "flow", "pressure", "bearing-7_temperature", "demand", "arrival-delay", "fraud", "clicks",
        "churn", "voltage", "routing", "wind", "tides",
    )  # fmt: skip
    models = [
        lively(
            name,
            rows=3_000 + 40_000 * i,
            seed=i,
            version=1_000 * i,
            nbytes=900 * 4**i,
            labels_pending=i % 3,
            rows_refused=i * i % 5,
            drift=[] if i % 2 else lively()["drift"],
        )
        for i, name in enumerate(names)
    ]
    models[3]["error"] = (
        "The disk is full: nothing was learned since 23:04:11. Make room; it goes on by itself."
    )
    models[5] |= {"ready": False, "class": "ORFitClassifier", "parameters": "memory=100"}
    return state(*models)
