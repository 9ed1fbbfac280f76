"""Speed of slopes and mistakes: SGD and the perceptron, over arrays and one row at a time."""

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
"""Rows that Vowpal Wabbit is given: its examples take a hundred times the room of a row."""
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
"""Of each, ours, scikit-learn's and River's: the same steps, and no intercept."""
PARTS = "scikit-learn, partial_fit in blocks"
SAID = "scikit-learn, predict and partial_fit in blocks"
WHOLE = "in one block"
HALF = "float32"
BUILT = "Vowpal Wabbit, examples made beforehand"
CACHED = "Vowpal Wabbit, its cache file"
NOTE = (
    f"Blocks of {BLOCK} rows. scikit-learn says a block before it learns it, onepass each row just "
    "before it is learned. Vowpal Wabbit takes rows of float32; learning an example also says it. "
)
NO_WABBIT = "It has no perceptron."


@cache
def stream(kind: str, p: int) -> tuple[Floats, Any]:
    """Rows of p features, and noisy answers or classes."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(ROWS[p], p))
    y = X @ rng.normal(size=p) / np.sqrt(p) + rng.normal(size=len(X))
    return X, y if kind == "SGD, squared loss" else (y > 0).astype(int)


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """All of this file."""
    for p in (20, 200):
        for kind in KINDS:
            yield learning(kind, p, rounds, limits.bandwidth)
            yield said(kind, p, rounds)
    yield learning("SGD, squared loss", 2000, rounds, limits.bandwidth)
    for kind in KINDS:
        yield single(kind, rounds)
    yield single_precision(rounds)


def learning(kind: str, p: int, rounds: int, bandwidth: float) -> Work:
    """Learning alone."""
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
    if kind != "perceptron":  # of whose first row scikit-learn says the other class
        one, two = (blocks(make(), X[:BLOCK], y[:BLOCK], **classes) for make in (ours, theirs))
        off = float(np.abs(one.coef_ - two.coef_).max() / np.abs(one.coef_).max())
        numbers["largest difference to scikit-learn's weights, relative"] = off
    return Work(
        f"{kind}, learning alone, {p} features", "rows", "onepass, partial_fit in blocks", found,
        1.0, ("reading the rows once", bandwidth / (8.0 * p)), (WHOLE,),
        NOTE + (NO_WABBIT if kind == "perceptron" else ""),
        numbers,
        lead=p == 200,
    )  # fmt: skip


def said(kind: str, p: int, rounds: int) -> Work:
    """Test-then-train."""
    X, y = stream(kind, p)
    ours, theirs, river = KINDS[kind]
    ways: dict[str, Way] = {
        "onepass, test_then_train in blocks": lambda n: told(ours(), X[:n], y[:n]),
        WHOLE: lambda n: ours().test_then_train(X[:n], y[:n]),
        SAID: lambda n: tested(theirs(), X[:n], y[:n]),
    }
    ways |= examples(kind, p, answered=True)
    rows = named(X[: ROWS[10] // p])
    answers = y[: len(rows)].tolist()
    ways["River, row by row"] = lambda n: each(river(), cycled(rows, n), cycled(answers, n))
    found = turns(ways, rounds, least=BLOCK, most=len(X))
    return Work(
        f"{kind}, test-then-train, {p} features", "rows", "onepass, test_then_train in blocks",
        found, 1.0, None, (WHOLE,), NOTE + (NO_WABBIT if kind == "perceptron" else ""),
    )  # fmt: skip


def single(kind: str, rounds: int) -> Work:
    """One row at a time: predict_one, then learn_one."""
    X, y = stream(kind, 10)
    ours, _, river = KINDS[kind]
    dicts, rows, answers = named(X), list(X), y.tolist()
    ways: dict[str, Way] = {
        "onepass, dicts": lambda n: each(ours(), dicts[:n], answers),
        "onepass, arrays": lambda n: each(ours(), rows[:n], answers),
        "River, dicts": lambda n: each(river(), dicts[:n], answers),
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
        lead=True,
    )


def single_precision(rounds: int) -> Work:
    """Rows of float32; the weights are kept in float64."""
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
    """Learn blocks."""
    for i in range(0, len(X), BLOCK):
        model.partial_fit(X[i : i + BLOCK], y[i : i + BLOCK], **settings)
    return model


def told(model: Any, X: Floats, y: Any) -> None:
    """Say and learn blocks, each row as if it came alone."""
    for i in range(0, len(X), BLOCK):
        model.test_then_train(X[i : i + BLOCK], y[i : i + BLOCK])


def tested(model: Any, X: Floats, y: Any) -> None:
    """Say a block, then learn it; the first only if it can be said."""
    model.partial_fit(X[:1], y[:1], *([[0, 1]] if y.dtype.kind == "i" else []))
    for i in range(0, len(X), BLOCK):
        model.predict(X[i : i + BLOCK])
        model.partial_fit(X[i : i + BLOCK], y[i : i + BLOCK])


def each(model: Any, rows: Any, answers: Any) -> None:
    """Say and learn one row after the other."""
    for x, y in zip(rows, answers, strict=False):
        model.predict_one(x)
        model.learn_one(x, y)


def cycled(things: list[Any], n: int) -> list[Any]:
    """So many, again from the first where there are too few."""
    return (things * (n // len(things) + 1))[:n]


# -- Vowpal Wabbit ---------------------------------------------------------------------------------


def wabbits(kind: str, p: int, folder: Path) -> dict[str, Way]:
    """Its Python package, fed by its cache file and by examples made beforehand."""
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

    found = examples(kind, p, answered=False)
    if p < 2000:  # of fewer rows the start would be most of it
        found[CACHED] = cached
    return found


def examples(kind: str, p: int, *, answered: bool) -> dict[str, Way]:
    """Examples made beforehand, learned one after the other; and what was said of each."""
    if Workspace is None or kind == "perceptron":
        return {}
    model = Workspace(arg_list=options(kind))
    built = [model.parse(line) for line in lines(kind, p)]

    def learn(n: int) -> None:
        for example in cycled(built, n):
            model.learn(example)
            if answered:
                example.get_simplelabel_prediction()

    return {BUILT: learn}


def options(kind: str) -> list[str]:
    """Plain steps of one size, as the others take."""
    loss = "logistic" if kind == "SGD, logistic loss" else "squared"
    steps = ["--sgd", "--power_t", "0", "--learning_rate", str(STEP), "--noconstant"]
    return ["--quiet", "--loss_function", loss, *steps]


def lines(kind: str, p: int) -> list[str]:
    """Rows as its own text."""
    X, y = stream(kind, p)
    answers = y if kind == "SGD, squared loss" else 2 * y - 1
    return [
        f"{t:.9g} |" + "".join(f" {j}:{v:.9g}" for j, v in enumerate(x))
        for x, t in zip(X[: WRITTEN[p]].tolist(), answers.tolist(), strict=False)
    ]
