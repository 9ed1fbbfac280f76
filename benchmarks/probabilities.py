"""Log loss and reliability of probabilities, and coverage of conformal intervals and sets.

**Probabilities**: each model learns the first 70 % of a table in one pass, and predicts the rest.
The reference is scikit-learn's LogisticRegression, fitted to the same rows as a batch. All models
get standardised features. *bank-like* is simulated: 20,000 rows, skewed and categorical features,
17 % of positive labels. **Conformal**: ``op.Conformal`` learns a stream in one pass; each row is
predicted before it is learned. Writes the tables and the figure of docs/results/probabilities.md:

    python benchmarks/probabilities.py [--redraw]
"""

import argparse
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import river.datasets
from cells import write
from figures import DOCS, picture
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from streams import features
from tables import RESULTS
from threadpoolctl import threadpool_limits

import onepass as op
from onepass.evaluate.figures import COLOURS, GREY, new_figure

PATH = RESULTS / "probabilities.json"
COMMAND = "python benchmarks/probabilities.py"
TRAINED = 0.7  # share of the rows that are learned
BINS = 10
WINDOW = 500  # rows of the local coverage
SHOWN = ("RLSClassifier", "SGDClassifier, hinge", "StreamingLDA", "LogisticRegression, batch")
MODELS: dict[str, Callable[[], Any]] = {
    "RLSClassifier": op.RLSClassifier,
    "SGDClassifier, hinge": lambda: op.SGDClassifier("hinge"),
    "SGDClassifier, logistic": lambda: op.SGDClassifier("logistic"),
    "Perceptron": lambda: op.Perceptron(fit_intercept=True),
    "ORFitClassifier": lambda: op.ORFitClassifier(memory=40, noise=10.0, fit_intercept=True),
    "NearestClassMean": op.NearestClassMean,
    "ARTIPCAClassifier": op.ARTIPCAClassifier,
    "StreamingLDA": op.StreamingLDA,
    "StreamingQDA": lambda: op.StreamingQDA(reg_param=0.02),
}


def bank_like() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    n = 20_000
    groups = np.eye(5)[rng.integers(0, 5, n)]
    skewed = np.exp(rng.normal(size=(n, 4)))
    X = np.column_stack([rng.normal(size=(n, 6)), skewed, groups, rng.random((n, 3)) < 0.1])
    z = X @ (0.6 * rng.normal(size=X.shape[1]))
    z -= np.quantile(z, 0.9) - 0.3
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)


def phishing() -> tuple[Any, Any]:
    rows = list(river.datasets.Phishing())
    return np.array([list(x.values()) for x, _ in rows], float), np.array([int(y) for _, y in rows])


TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "elec2": lambda: features("elec2", ())[:2],
    "occupancy": lambda: features("occupancy", ())[:2],
    "digits": lambda: load_digits(return_X_y=True),
    "bank-like": bank_like,
    "phishing": phishing,
}


def probabilities(X: Any, y: Any) -> dict[str, Any]:
    """Accuracy, log loss and reliability of all models on the last rows of a table."""
    n = int(TRAINED * len(y))
    scale = op.features.Scale()
    scale.learn_transform(X[:n])
    Z, classes = scale.transform(X), np.unique(y)
    found = {}
    batch = ("LogisticRegression, batch", lambda: LogisticRegression(max_iter=2000))
    for name, make in (*MODELS.items(), batch):
        model = make()
        learn = getattr(model, "partial_fit", model.fit)
        P = learn(Z[:n], y[:n]).predict_proba(Z[n:])
        found[name] = {
            "accuracy": float((classes[P.argmax(axis=1)] == y[n:]).mean()),
            "log loss": float(log_loss(y[n:], P, labels=classes)),
            "reliability": reliability(P, y[n:, None] == classes),
        }
    return {"rows": len(y), "models": found}


def reliability(P: Any, right: Any) -> list[list[float]]:
    """Mean probability, share and number of rows of each bin of probabilities of classes."""
    p, hit = (P[:, 1], right[:, 1]) if P.shape[1] == 2 else (P.ravel(), right.ravel())
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    rows = [bins == b for b in range(BINS)]
    return [[float(p[i].mean()), float(hit[i].mean()), int(i.sum())] for i in rows if i.any()]


def abrupt() -> tuple[Any, Any]:
    """A linear function that changes three times, with noise that changes too."""
    rng = np.random.default_rng(0)
    X, w, part = rng.normal(size=(20_000, 5)), rng.normal(size=(4, 5)), np.arange(20_000) // 5_000
    noise = (1 + 2 * (part % 2)) * rng.normal(size=len(X))
    return X, np.einsum("ij,ij->i", X, w[part]) + noise


def price() -> tuple[Any, Any]:
    X, _, _ = features("elec2", ())
    return np.delete(X, 1, axis=1), X[:, 1]


STREAMS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "elec2": lambda: features("elec2", ())[:2],
    "elec2, price": price,
    "vic-elec": lambda: features("vic-elec", ())[:2],
    "bikeshare": lambda: features("bikeshare", ())[:2],
    "occupancy": lambda: features("occupancy", ())[:2],
    "abrupt, simulated": abrupt,
}


def conformal(X: Any, y: Any, alpha: float) -> dict[str, Any]:
    """Coverage of a stream, its range over windows, and the mean size of intervals or sets."""
    kind = op.RLSClassifier if y.dtype.kind in "iu" else op.RLSRegressor
    learner = op.Pipeline(op.features.Scale(), kind(forgetting=0.999))
    model, local, sizes = op.Conformal(learner, alpha), [], []
    for i in range(0, len(y), WINDOW):
        rows = slice(i, i + WINDOW)
        if i and kind is op.RLSRegressor:
            sizes.append(float(2 * model.quantiles_[0] / y.std()))
        elif i:
            sizes.append(float(model.predict_set(X[rows]).sum(axis=1).mean()))
        before = float(model.covered_[0]) if i else 0.0
        model.partial_fit(X[rows], y[rows])
        local.append((float(model.covered_[0]) - before) / len(y[rows]))
    return {
        "coverage": model.coverage_,
        "lowest": min(local),
        "highest": max(local),
        "size": float(np.mean(sizes)),
        "unit": "standard deviations" if kind is op.RLSRegressor else "labels",
    }


def draw(found: Any) -> None:
    """Draw the reliability diagrams to docs/reliability.png."""
    with new_figure((8.6, 2.3), None) as figure:
        for axes, (name, one) in zip(
            figure.subplots(1, len(found["tables"]), sharey=True),
            found["tables"].items(),
            strict=True,
        ):
            axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls=(0, (3, 2)))
            for colour, model in zip(COLOURS, SHOWN, strict=False):
                x, share, _ = np.array(one["models"][model]["reliability"]).T
                axes.plot(x, share, color=colour, lw=1.2, marker="o", ms=2.4, label=model)
            axes.set_title(name, loc="left", fontsize=8.5)
            axes.set_xlabel("probability", fontsize=7)
        figure.axes[0].set_ylabel("share of rows", fontsize=7)
        figure.axes[0].legend(frameon=False, fontsize=5.4, handlelength=1.2, borderpad=0.1)
        picture(figure, DOCS / "reliability.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--redraw", action="store_true", help="draw the figure of stored results")
    if not parser.parse_args().redraw:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            streams = {name: make() for name, make in STREAMS.items()}
            found = {
                "command": COMMAND,
                "tables": {name: probabilities(*make()) for name, make in TABLES.items()},
                "conformal": {
                    name: {str(alpha): conformal(*rows, alpha) for alpha in (0.1, 0.05)}
                    for name, rows in streams.items()
                },
            }
        write(PATH, found)
    draw(json.loads(PATH.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
