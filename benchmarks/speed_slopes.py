"""Speed of SGD and the perceptron, over arrays and one row at a time."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Floats, named
from limits import Limits
from river.linear_model import LinearRegression, LogisticRegression
from river.linear_model import Perceptron as RiverPerceptron
from river.optim import SGD
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from turns import Way, Work, turns

import onepass as op

try:
    from vowpalwabbit import Workspace
except ImportError:  # not on every machine
    Workspace = None

STEP = 1e-4
BLOCK = 1024
ROWS = {10: 40_000, 20: 200_000, 200: 40_000, 2000: 4_096}
WRITTEN = {20: 20_000, 200: 4_096, 2000: 512}
"""Rows for Vowpal Wabbit, whose examples take a hundred times the memory of a row."""
PLAIN: dict[str, Any] = {"penalty": None, "alpha": 0.0, "fit_intercept": False, "shuffle": False}
STEPS: dict[str, Any] = {**PLAIN, "learning_rate": "constant", "eta0": STEP}
OURS: dict[str, Any] = {"step": "constant", "step_size": STEP, "fit_intercept": False}
KINDS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
    "SGD, squared loss": (
        partial(op.SGDRegressor, **OURS),
        partial(SGDRegressor, **STEPS),
        lambda: LinearRegression(SGD(STEP), intercept_lr=0.0),
    ),
    "SGD, logistic loss": (
        partial(op.SGDClassifier, "logistic", **OURS),
        partial(SGDClassifier, "log_loss", **STEPS),
        lambda: LogisticRegression(SGD(STEP), intercept_lr=0.0),
    ),
    "perceptron": (op.Perceptron, partial(Perceptron, **PLAIN), RiverPerceptron),
}
"""Factories of onepass, scikit-learn and River, with equal steps and no intercept."""
PARTS = "scikit-learn, partial_fit in blocks"
PREDICT_LEARN = "scikit-learn, predict and partial_fit in blocks"
WHOLE = "in one block"
HALF = "float32"
BUILT = "Vowpal Wabbit, prepared examples"
CACHED = "Vowpal Wabbit, cache file"
NOTE = (
    f"Blocks of {BLOCK} rows. scikit-learn predicts a block before learning it, onepass each "
    "row just before it is learned. Vowpal Wabbit uses float32; its learning step includes a "
    "prediction. "
)
NO_WABBIT = "Vowpal Wabbit has no perceptron."


@cache
def stream(kind: str, p: int) -> tuple[Floats, Any]:
    """Return rows of p features with noisy targets or classes."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    y = X @ rng.normal(size=p) / np.sqrt(p) + rng.normal(size=len(X))
    return X, y if kind == "SGD, squared loss" else (y > 0).astype(int)


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """Run all benchmarks of this file."""
    for p in (20, 200):
        for kind in KINDS:
            yield learning(kind, p, rounds, limits.bandwidth)
            yield test_then_train(kind, p, rounds)
    yield learning("SGD, squared loss", 2000, rounds, limits.bandwidth)
    for kind in KINDS:
        yield single(kind, rounds)
    yield single_precision(rounds)


def learning(kind: str, p: int, rounds: int, bandwidth: float) -> Work:
    """Measure learning only."""
    X, y = stream(kind, p)
    ours, theirs, _ = KINDS[kind]
    classes = {} if kind == "SGD, squared loss" else {"classes": [0, 1]}
    ways: dict[str, Way] = {
        "onepass, partial_fit in blocks": lambda n: blocks(ours(), X[:n], y[:n]),
        WHOLE: lambda n: ours().partial_fit(X[:n], y[:n]),
        PARTS: lambda n: blocks(theirs(), X[:n], y[:n], **classes),
    }
    with tempfile.TemporaryDirectory() as folder:
        ways |= wabbits(kind, p, Path(folder))
        found = turns(ways, rounds, least=BLOCK, most=len(X))
    numbers = {}
    if kind != "perceptron":  # scikit-learn predicts another class for the first row
        one, two = (blocks(make(), X[:BLOCK], y[:BLOCK], **classes) for make in (ours, theirs))
        off = float(np.abs(one.coef_ - two.coef_).max() / np.abs(one.coef_).max())
        numbers["largest difference to scikit-learn's weights, relative"] = off
    return Work(
        f"{kind}, learning only, {p} features", "rows", "onepass, partial_fit in blocks", found,
        1.0, ("reading the rows once", bandwidth / (8.0 * p)), (WHOLE,),
        NOTE + (NO_WABBIT if kind == "perceptron" else ""),
        numbers,
    )  # fmt: skip


def test_then_train(kind: str, p: int, rounds: int) -> Work:
    """Measure test-then-train."""
    X, y = stream(kind, p)
    ours, theirs, river = KINDS[kind]
    ways: dict[str, Way] = {
        "onepass, test_then_train in blocks": lambda n: test_then_train_blocks(
            ours(), X[:n], y[:n]
        ),
        WHOLE: lambda n: ours().test_then_train(X[:n], y[:n]),
        PREDICT_LEARN: lambda n: predict_then_learn_blocks(theirs(), X[:n], y[:n]),
    }
    ways |= examples(kind, p, with_prediction=True)
    rows = named(X[: ROWS[10] // p])
    targets = y[: len(rows)].tolist()
    ways["River, row by row"] = lambda n: each(river(), cycled(rows, n), cycled(targets, n))
    found = turns(ways, rounds, least=BLOCK, most=len(X))
    return Work(
        f"{kind}, test-then-train, {p} features", "rows", "onepass, test_then_train in blocks",
        found, 1.0, None, (WHOLE,), NOTE + (NO_WABBIT if kind == "perceptron" else ""),
    )  # fmt: skip


def single(kind: str, rounds: int) -> Work:
    """Measure predict_one followed by learn_one."""
    X, y = stream(kind, 10)
    ours, _, river = KINDS[kind]
    dicts, rows, targets = named(X), list(X), y.tolist()
    ways: dict[str, Way] = {
        "onepass, dicts": lambda n: each(ours(), dicts[:n], targets),
        "onepass, arrays": lambda n: each(ours(), rows[:n], targets),
        "River, dicts": lambda n: each(river(), dicts[:n], targets),
    }
    found = turns(ways, rounds, least=64, most=len(X))
    name = f"{kind}, one row at a time, 10 features"
    return Work(
        name,
        "rows",
        "onepass, dicts",
        found,
        1.0,
        aside=("onepass, arrays",),
    )


def single_precision(rounds: int) -> Work:
    """Measure float32 rows; the weights are float64."""
    X, y = stream("SGD, squared loss", 200)
    halves = X.astype(np.float32)
    ours = KINDS["SGD, squared loss"][0]
    ways: dict[str, Way] = {
        HALF: lambda n: ours().test_then_train(halves[:n], y[:n]),
        "float64": lambda n: ours().test_then_train(X[:n], y[:n]),
    }
    found = turns(ways, rounds, least=BLOCK, most=len(X))
    return Work("SGD, rows of float32, 200 features", "rows", HALF, found, 1.0)


def blocks(model: Any, X: Floats, y: Any, **settings: Any) -> Any:
    """Learn in blocks."""
    for i in range(0, len(X), BLOCK):
        model.partial_fit(X[i : i + BLOCK], y[i : i + BLOCK], **settings)
    return model


def test_then_train_blocks(model: Any, X: Floats, y: Any) -> None:
    """Predict and learn blocks, equivalent to single rows."""
    for i in range(0, len(X), BLOCK):
        model.test_then_train(X[i : i + BLOCK], y[i : i + BLOCK])


def predict_then_learn_blocks(model: Any, X: Floats, y: Any) -> None:
    """Predict a block, then learn it, after fitting the first row."""
    model.partial_fit(X[:1], y[:1], *([[0, 1]] if y.dtype.kind == "i" else []))
    for i in range(0, len(X), BLOCK):
        model.predict(X[i : i + BLOCK])
        model.partial_fit(X[i : i + BLOCK], y[i : i + BLOCK])


def each(model: Any, rows: Any, targets: Any) -> None:
    """Predict and learn row by row."""
    for x, y in zip(rows, targets, strict=False):
        model.predict_one(x)
        model.learn_one(x, y)


def cycled(rows: list[Any], n: int) -> list[Any]:
    """Return n elements, repeating the list if necessary."""
    return (rows * (n // len(rows) + 1))[:n]


# -- Vowpal Wabbit ---------------------------------------------------------------------------------


def wabbits(kind: str, p: int, folder: Path) -> dict[str, Way]:
    """Return methods of its Python package, with a cache file and with prepared examples."""
    if Workspace is None or kind == "perceptron":
        return {}
    data, cache_file = folder / "rows.txt", folder / "rows.cache"
    data.write_text("\n".join(lines(kind, p)) + "\n", encoding="utf-8")
    read = ["--cache_file", str(cache_file), "--data", str(data)]
    Workspace(arg_list=[*options(kind), *read]).finish()  # writes the cache

    def cached(n: int) -> None:
        for left in range(n, 0, -WRITTEN[p]):
            several = ["--examples", str(min(left, WRITTEN[p]))]
            Workspace(arg_list=[*options(kind), *read, *several]).finish()

    found = examples(kind, p, with_prediction=False)
    if p < 2000:  # with few rows, start-up would dominate
        found[CACHED] = cached
    return found


def examples(kind: str, p: int, *, with_prediction: bool) -> dict[str, Way]:
    """Return a method that learns prepared examples, optionally reading each prediction."""
    if Workspace is None or kind == "perceptron":
        return {}
    model = Workspace(arg_list=options(kind))
    built = [model.parse(line) for line in lines(kind, p)]

    def learn(n: int) -> None:
        for example in cycled(built, n):
            model.learn(example)
            if with_prediction:
                example.get_simplelabel_prediction()

    return {BUILT: learn}


def options(kind: str) -> list[str]:
    """Return options for plain SGD with a constant step size."""
    loss = "logistic" if kind == "SGD, logistic loss" else "squared"
    steps = ["--sgd", "--power_t", "0", "--learning_rate", str(STEP), "--noconstant"]
    return ["--quiet", "--loss_function", loss, *steps]


def lines(kind: str, p: int) -> list[str]:
    """Return rows in its text format."""
    X, y = stream(kind, p)
    targets = y if kind == "SGD, squared loss" else 2 * y - 1
    return [
        f"{t:.9g} |" + "".join(f" {j}:{v:.9g}" for j, v in enumerate(x))
        for x, t in zip(X[: WRITTEN[p]].tolist(), targets.tolist(), strict=False)
    ]
