"""Least squares of libraries for Polars: whole frames, sliding windows, one model per key.

Each class learns the rows of a frame from the prior w ~ N(0, I / ridge), without an intercept. With
``window`` it fits only the last rows of that number, without a prior; with ``by`` it fits one model
per value of that column. ``run`` is timed. ``before`` returns the prediction of each row by the
weights before it, for comparison, also if the library predicts after learning the row: such a
library has AFTER in its name.
"""

import importlib.util
import os
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

for variable in ("POLARS_MAX_THREADS", "POLARS_ONLINE_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"  # before these libraries are imported

AFTER = "predicts after learning"


def frame(X: Floats, y: Floats | None = None, keys: Any = None) -> Any:
    """Return a Polars frame with columns x0, x1, …, and optionally ``y`` and ``key``."""
    import polars as pl  # noqa: PLC0415  not on every machine

    more = {name: values for name, values in (("y", y), ("key", keys)) if values is not None}
    columns = {name: np.ascontiguousarray(X[:, j]) for j, name in enumerate(names(X))}
    return pl.DataFrame({**columns, **more})


def names(X: Floats) -> list[str]:
    """Return names of the columns of X."""
    return [f"x{j}" for j in range(X.shape[1])]


def online_settings(X: Floats) -> dict[str, Any]:
    """Return settings of polars-online: no intercept, and a prediction from the second row on."""
    return {
        "targets": ["y"],
        "features": names(X),
        "fit_intercept": False,
        "min_weight": 0.0,
        "max_error_inflation": float("inf"),
    }


class PolarsOnline:
    """polars-online: ``rls``, and ``ewridge`` solved at each row for windows."""

    package: ClassVar[str] = "polars_online"

    @classmethod
    def name(cls, window: int | None = None) -> str:
        return "polars-online rls" if window is None else "polars-online ewridge"

    def __init__(
        self, X: Floats, y: Floats, ridge: float, window: int | None = None, keys: Any = None
    ) -> None:
        from polars_online import ModelBank, spec  # noqa: PLC0415  not on every machine

        self._bank, self._frame = ModelBank, frame(X, y, keys)
        more = {"half_life": float("inf"), "group": None if keys is None else "key"}
        if window is None:
            self._spec = spec.rls("m", delta=ridge, **more, **online_settings(X))
        else:
            more |= {"window_size": float(window), "ridge": ridge, "solve_every": 0}
            self._spec = spec.ewridge("m", **more, **online_settings(X))
        self._learned: Any = None

    def run(self, n: int) -> Any:
        self._learned = self._bank([self._spec])
        return self._learned.fit_predict(self._frame.head(n))["m"]

    def before(self, n: int) -> Floats:
        return np.asarray(self.run(n).struct.field("pred_y").to_numpy())

    def weights(self) -> Floats:
        """Return the weights after the last run, shape (p,)."""
        return np.asarray(self._learned.coef()["coef"].to_numpy())


class PolarsDS:
    """polars-ds, which begins with a batch of as many rows as features, or with a whole window."""

    package: ClassVar[str] = "polars_ds"

    @classmethod
    def name(cls, window: int | None = None) -> str:
        kind = "recursive_lin_reg" if window is None else "rolling_lin_reg"
        return f"polars-ds {kind} ({AFTER})"

    def __init__(
        self, X: Floats, y: Floats, ridge: float, window: int | None = None, keys: Any = None
    ) -> None:
        import polars_ds  # noqa: PLC0415  not on every machine

        del keys
        self._X, self._frame = X, frame(X, y)
        settings = {"target": "y", "l2_reg": ridge}
        if window is None:
            found = polars_ds.recursive_lin_reg(*names(X), start_with=X.shape[1], **settings)
        else:
            found = polars_ds.rolling_lin_reg(*names(X), window_size=window, **settings)
        self._expression = found.alias("m")

    def run(self, n: int) -> Any:
        return self._frame.head(n).select(self._expression)["m"]

    def before(self, n: int) -> Floats:
        none = [np.nan] * self._X.shape[1]
        found = [none if w is None else w for w in self.run(n).struct.field("coeffs").to_list()]
        return following(np.array(found), self._X[:n])


class PolarsOLS:
    """polars-ols."""

    package: ClassVar[str] = "polars_ols"

    @classmethod
    def name(cls, window: int | None = None) -> str:
        return f"polars-ols {'rls' if window is None else 'rolling_ols'} ({AFTER})"

    def __init__(
        self, X: Floats, y: Floats, ridge: float, window: int | None = None, keys: Any = None
    ) -> None:
        import polars_ols  # noqa: PLC0415  not on every machine

        self._X, self._frame, self._keyed = X, frame(X, y, keys), keys is not None
        if window is None:
            self._learn = polars_ols.compute_recursive_least_squares
            settings = polars_ols.RLSKwargs(
                initial_state_covariance=1.0 / ridge,
                initial_state_mean=[0.0] * X.shape[1],
                null_policy="ignore",
            )
            self._settings = {"rls_kwargs": settings}
        else:
            self._learn = polars_ols.compute_rolling_least_squares
            rolling = polars_ols.RollingKwargs(
                window_size=window, alpha=ridge or None, null_policy="ignore"
            )
            self._settings = {"rolling_kwargs": rolling}

    def run(self, n: int, mode: str = "predictions") -> Any:
        expression = self._learn("y", *names(self._X), mode=mode, **self._settings)
        if self._keyed:
            expression = expression.over("key")
        return self._frame.head(n).select(expression.alias("m"))["m"]

    def before(self, n: int) -> Floats:
        return following(self.run(n, "coefficients").struct.unnest().to_numpy(), self._X[:n])


def following(weights: Floats, X: Floats) -> Floats:
    """Predict each row by the weights after the row before it."""
    return np.r_[np.nan, (weights[:-1] * X[1:]).sum(axis=1)]


def installed(kinds: Iterable[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Return the libraries that are installed, and the names of those that are not."""
    here = [kind for kind in kinds if importlib.util.find_spec(kind.package)]
    return here, tuple(kind.package.replace("_", "-") for kind in kinds if kind not in here)
