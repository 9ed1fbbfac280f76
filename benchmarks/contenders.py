"""Recursive least squares of several libraries behind one interface: predict a row, then learn it.

Each contender gets the same prior, w ~ N(0, I / ridge), the same rows, no intercept and the same
forgetting factor; exceptions are documented in its class. ``rows`` converts the rows to the format
of the library beforehand, outside the timed part. Libraries for Polars, which learn whole frames,
are in ``frames.py``.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import filterpy.kalman
import numpy as np
import padasip
import pandas as pd
from bayesianbandits import NormalRegressor
from numpy.typing import NDArray
from reservoirpy.nodes import RLS
from river.linear_model import BayesianLinearRegression

import onepass as op

Floats = NDArray[np.float64]


class Contender(Protocol):
    """Interface of a library in the benchmarks."""

    def rows(self, X: Floats) -> Sequence[Any]:
        """Convert rows to the library's format, one by one."""

    def predict(self, x: Any) -> float:
        """Predict a row."""

    def learn(self, x: Any, y: float) -> None:
        """Learn a row."""

    def weights(self) -> Floats:
        """Return the weights, shape (p,)."""


class Loop(Contender):
    """The textbook recursion with P (p × p) in NumPy, for one or several outputs."""

    name: ClassVar[str] = "NumPy loop"

    def __init__(self, p: int, ridge: float, forgetting: float = 1.0, *outputs: int) -> None:
        self.P, self.w, self.forgetting = np.eye(p) / ridge, np.zeros((p, *outputs)), forgetting

    def rows(self, X: Floats) -> Sequence[Any]:
        return list(X)

    def predict(self, x: Floats) -> float:
        return float(x.dot(self.w))

    def learn(self, x: Floats, y: Any, weight: float = 1.0) -> None:
        """Learn a row; a negative weight removes it."""
        u = self.P.dot(x)  # faster than @ for small arrays
        gain = u / (self.forgetting / weight + x.dot(u))
        error = y - x.dot(self.w)
        self.w += gain * error if self.w.ndim == 1 else gain[:, None] * error
        self.P -= gain[:, None] * u
        if self.forgetting < 1.0:
            self.P /= self.forgetting

    def weights(self) -> Floats:
        return self.w


class Ours(Contender):
    """onepass, one row at a time as an array."""

    name: ClassVar[str] = "onepass, arrays"

    def __init__(self, p: int, ridge: float, **settings: Any) -> None:
        del p  # inferred from the first row
        self.model = op.RLSRegressor(ridge, fit_intercept=False, **settings)

    def rows(self, X: Floats) -> Sequence[Any]:
        return list(X)

    def predict(self, x: Any) -> float:
        predictions: float = self.model.predict_one(x)
        return predictions

    def learn(self, x: Any, y: float) -> None:
        self.model.learn_one(x, y)

    def weights(self) -> Floats:
        return np.asarray(self.model.coef_)


class OursDicts(Ours):
    """onepass, one row at a time as a dict of named features."""

    name: ClassVar[str] = "onepass, dicts"

    def rows(self, X: Floats) -> Sequence[Any]:
        return named(X)


class OursBlocks(Ours):
    """onepass, test-then-train over an array, equivalent to learning row by row."""

    name: ClassVar[str] = "onepass, blocks"

    def test_then_train(self, X: Floats, y: Floats) -> Floats:
        """Predict and learn all rows; return the predictions."""
        return np.asarray(self.model.test_then_train(X, y))


class River(Contender):
    """River's Bayesian linear regression, rows as dicts.

    ``smoothing`` gives the prior the weight 1 and each row 1 − λ: the prior counts 1 / (1 − λ)
    times as much as in other libraries, and decays at the same rate.
    """

    name: ClassVar[str] = "River BayesianLinearRegression"

    def __init__(self, p: int, ridge: float, forgetting: float = 1.0) -> None:
        self.p = p
        smoothing = None if forgetting == 1.0 else forgetting
        self.model = BayesianLinearRegression(alpha=ridge, beta=1.0, smoothing=smoothing)

    def rows(self, X: Floats) -> Sequence[Any]:
        return named(X)

    def predict(self, x: dict[str, float]) -> float:
        return float(self.model.predict_one(x))

    def learn(self, x: dict[str, float], y: float) -> None:
        self.model.learn_one(x, y)

    def weights(self) -> Floats:
        unit = named(np.eye(self.p))
        return np.array([self.model.predict_one(x) for x in unit])

    def predict_block(self, X: pd.DataFrame) -> Any:
        """Predict a block before any of its rows is learned."""
        return self.model.predict_many(X)

    def learn_block(self, X: pd.DataFrame, y: Floats) -> None:
        self.model.learn_many(X, pd.Series(y))

    def frames(self, X: Floats, width: int) -> list[Any]:
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        return [frame.iloc[i : i + width] for i in range(0, len(X), width)]


class Padasip(Contender):
    """padasip's FilterRLS, from zero weights."""

    name: ClassVar[str] = "padasip FilterRLS"

    def __init__(self, p: int, ridge: float, forgetting: float = 1.0) -> None:
        self.model = padasip.filters.FilterRLS(p, mu=forgetting, eps=ridge, w="zeros")

    def rows(self, X: Floats) -> Sequence[Any]:
        return list(X)

    def predict(self, x: Floats) -> float:
        return float(self.model.predict(x))

    def learn(self, x: Floats, y: float) -> None:
        self.model.adapt(y, x)

    def weights(self) -> Floats:
        return np.asarray(self.model.w)


class ReservoirPy(Contender):
    """reservoirpy's RLS node, without its bias, which is not a least-squares intercept."""

    name: ClassVar[str] = "reservoirpy RLS"

    def __init__(self, p: int, ridge: float, forgetting: float = 1.0) -> None:
        self.model = RLS(
            alpha=ridge, fit_bias=False, forgetting=forgetting, input_dim=p, output_dim=1
        )
        self.model.initialize(np.zeros((1, p)), np.zeros((1, 1)))

    def rows(self, X: Floats) -> Sequence[Any]:
        return [x[None] for x in X]

    def predict(self, x: Floats) -> float:
        return float(self.model.step(x[0])[0])

    def learn(self, x: Floats, y: float) -> None:
        self.model.partial_fit(x, np.array([[y]]))

    def weights(self) -> Floats:
        return np.asarray(self.model.Wout)[:, 0]

    def predict_block(self, X: Floats) -> Any:
        """Predict a block before any of its rows is learned."""
        return self.model.run(X)

    def learn_block(self, X: Floats, y: Floats) -> None:
        self.model.partial_fit(X, y[:, None])

    def frames(self, X: Floats, width: int) -> list[Any]:
        return [X[i : i + width] for i in range(0, len(X), width)]


class Bandits(Contender):
    """bayesianbandits' NormalRegressor, known noise; ``rule`` is one of its forgetting rules."""

    name: ClassVar[str] = "bayesianbandits NormalRegressor"

    def __init__(self, p: int, ridge: float, rule: Any = None) -> None:
        self.p = p
        self.model = NormalRegressor(alpha=ridge, beta=1.0, forgetting=rule, random_state=0)

    def rows(self, X: Floats) -> Sequence[Any]:
        return [x[None] for x in X]

    def predict(self, x: Floats) -> float:
        return float(self.model.predict(x)[0])

    def learn(self, x: Floats, y: float) -> None:
        self.model.partial_fit(x, np.array([y]))

    def weights(self) -> Floats:
        return np.asarray(self.model.coef_)

    def predict_block(self, X: Floats) -> Any:
        """Predict a block before any of its rows is learned."""
        return self.model.predict(X)

    def learn_block(self, X: Floats, y: Floats) -> None:
        self.model.partial_fit(X, y)

    def frames(self, X: Floats, width: int) -> list[Any]:
        return [X[i : i + width] for i in range(0, len(X), width)]


class FilterPy(Contender):
    """filterpy's Kalman filter of a constant state; its fading memory is forgetting."""

    name: ClassVar[str] = "filterpy KalmanFilter"

    def __init__(self, p: int, ridge: float, forgetting: float = 1.0) -> None:
        self.model = filterpy.kalman.KalmanFilter(dim_x=p, dim_z=1)
        self.model.P = np.eye(p) / ridge
        self.model.Q = np.zeros((p, p))
        self.forgets = forgetting < 1.0
        self.model.alpha = forgetting**-0.5

    def rows(self, X: Floats) -> Sequence[Any]:
        return [x[None] for x in X]

    def predict(self, x: Floats) -> float:
        return float((x @ self.model.x)[0, 0])

    def learn(self, x: Floats, y: float) -> None:
        self.model.update(np.array([[y]]), H=x)
        if self.forgets:  # otherwise the prediction step has no effect
            self.model.predict()

    def weights(self) -> Floats:
        return np.asarray(self.model.x)[:, 0]


def named(X: Floats) -> list[dict[str, float]]:
    """Convert rows to dicts of Python floats."""
    names = [f"x{j}" for j in range(X.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in X.tolist()]


def one_by_one(contender: Contender, rows: Sequence[Any], y: Floats) -> Floats:
    """Predict each row, then learn it; return the predictions."""
    predictions = np.empty(len(rows))
    for i, (x, t) in enumerate(zip(rows, y.tolist(), strict=True)):
        predictions[i] = contender.predict(x)
        contender.learn(x, t)
    return predictions
