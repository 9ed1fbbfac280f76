"""Models of benchmarks/streams.py with up to four settings each; the first is the default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from river import forest, linear_model, optim, preprocessing, tree
from sklearn.base import BaseEstimator, RegressorMixin

import onepass as op
from onepass.forgetting.auto import FACTORS
from onepass.integrations.river import adopt

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """Factory of a model, its candidate settings, and whether it supports several outputs."""

    build: Callable[..., Any]
    settings: Sequence[Setting]
    several: bool = True

    def make(self, setting: Setting, y: Any) -> Any:
        """Return a new model for targets like ``y``."""
        if self.build in THEIRS and np.ndim(y) == 2:
            return OneModelPerOutput([self.build(**setting) for _ in range(y.shape[1])])
        return self.build(**setting)


def worded(setting: Setting) -> str:
    """Format a setting."""
    parts = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in setting.items()}
    return ", ".join(f"{name}={value}" for name, value in parts.items())


class OneModelPerOutput(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """One model per output, for models with a single output."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = models

    def test_then_train(self, X: Any, y: Any) -> Any:
        predictions = [model.test_then_train(X, y[:, j]) for j, model in enumerate(self.models)]
        return np.column_stack(predictions)


def scaled(learner: Any) -> op.Pipeline:
    return op.Pipeline(op.features.Scale(), learner)


def rls(*, prior: float = 1.0, **settings: Any) -> Any:
    return op.RLSRegressor(prior=prior, **settings)


def rls_classes(*, prior: float = 1.0, **settings: Any) -> Any:
    return op.RLSClassifier(prior=prior, **settings)


def orfit(noise: float = 1.0) -> Any:
    return scaled(op.ORFitRegressor(noise=noise, fit_intercept=True))


def orfit_classes(noise: float = 1.0) -> Any:
    return scaled(op.ORFitClassifier(noise=noise, fit_intercept=True))


def sgd(**settings: Any) -> Any:
    return scaled(op.SGDRegressor(**settings))


def sgd_classes(**settings: Any) -> Any:
    return scaled(op.SGDClassifier(**settings))


def perceptron(**settings: Any) -> Any:
    return scaled(op.Perceptron(**settings))


def linear(step: float = 0.01) -> Any:
    model = linear_model.LinearRegression(optimizer=optim.SGD(step), intercept_lr=step)
    return adopt(preprocessing.StandardScaler() | model)


def logistic(step: float = 0.01) -> Any:
    model = linear_model.LogisticRegression(optimizer=optim.SGD(step), intercept_lr=step)
    return adopt(preprocessing.StandardScaler() | model)


def grown(kind: Any, **fixed: Any) -> Callable[..., Any]:
    """Return a factory of a River tree or forest."""

    def build(**settings: Any) -> Any:
        return adopt(kind(**fixed, **settings))

    return build


TREE = grown(tree.HoeffdingTreeRegressor)
ADAPTIVE = grown(tree.HoeffdingAdaptiveTreeRegressor, seed=1)
FOREST = grown(forest.ARFRegressor, n_models=3, seed=1)
THEIRS = {linear, logistic, TREE, ADAPTIVE, FOREST}

STEPS = [{}, {"step": 0.001}, {"step": 0.003}, {"step": 0.1}]
SIZES = [{}, {"step_size": 0.3}, {"step_size": 0.1}, {"step_size": 0.03}]
PRIORS = [{"prior": 1.0}, {"prior": 0.01}, {"prior": 10.0}, {"prior": 100.0}]
NOISES = [{"noise": 1.0}, {"noise": 0.1}, {"noise": 10.0}, {"noise": 100.0}]
LAMBDAS = [{"forgetting": value} for value in (0.99, 0.9995, 0.998, 0.95)]
AUTO = [{"forgetting": "auto"}]
RLS_FACTORS = [{"forgetting": factor} for factor in FACTORS]  # candidates in hindsight
GROWTH = [{}, {"grace_period": 50}, {"delta": 1e-3}, {"grace_period": 50, "delta": 1e-3}]
FORESTS = [{}, {"max_features": None}, {"lambda_value": 1}, {"grace_period": 20}]

MODELS: dict[str, dict[str, Kind]] = {
    "regression": {
        "onepass RLS": Kind(rls, PRIORS),
        "onepass RLS, forgetting 0.99": Kind(rls, LAMBDAS),
        "onepass RLS, forgetting auto": Kind(rls, AUTO),
        "onepass ORFit, noise 1": Kind(orfit, NOISES),
        "onepass SGD": Kind(sgd, SIZES),
        "River LinearRegression": Kind(linear, STEPS),
        "River HoeffdingTree": Kind(TREE, GROWTH),
        "River HoeffdingAdaptiveTree": Kind(ADAPTIVE, GROWTH),
        "River ARF, 3 trees": Kind(FOREST, FORESTS, several=False),  # takes minutes
    },
    "classification": {
        "onepass RLS": Kind(rls_classes, PRIORS),
        "onepass RLS, forgetting 0.99": Kind(rls_classes, LAMBDAS),
        "onepass RLS, forgetting auto": Kind(rls_classes, AUTO),
        "onepass ORFit, noise 1": Kind(orfit_classes, NOISES),
        "onepass SGD": Kind(sgd_classes, SIZES),
        "onepass Perceptron": Kind(perceptron, [{}, {"fit_intercept": True}]),
        "River LogisticRegression": Kind(logistic, STEPS),
        "River HoeffdingTree": Kind(grown(tree.HoeffdingTreeClassifier), GROWTH),
        "River HoeffdingAdaptiveTree": Kind(
            grown(tree.HoeffdingAdaptiveTreeClassifier, seed=1), GROWTH
        ),
        "River ARF, 3 trees": Kind(grown(forest.ARFClassifier, n_models=3, seed=1), FORESTS),
    },
}
HINDSIGHT = {
    "regression": Kind(rls, RLS_FACTORS),
    "classification": Kind(rls_classes, RLS_FACTORS),
}
"""Candidates of the best fixed factor in hindsight."""
