"""Losses: values, slopes and derivatives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepass.learners.losses import (
    MARGIN_LOSSES,
    REGRESSION_LOSSES,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Misclassified,
    Squared,
)

REAL = [kind() for kind in REGRESSION_LOSSES.values()]
MARGIN = [kind() for kind in MARGIN_LOSSES.values()]
scores = st.floats(-50, 50)


@pytest.mark.parametrize(
    ("loss", "score", "target", "value", "slope"),
    [
        (Squared(), 3.0, 1.0, 2.0, 2.0),
        (Absolute(), 3.0, 1.0, 2.0, 1.0),
        (Absolute(), 1.0, 1.0, 0.0, 0.0),
        (Huber(2.0), 2.0, 1.0, 0.5, 1.0),
        (Huber(2.0), -4.0, 1.0, 8.0, -2.0),
        (EpsilonInsensitive(0.5), 3.0, 1.0, 1.5, 1.0),
        (EpsilonInsensitive(0.5), 1.5, 1.0, 0.0, 0.0),
        (Hinge(), 0.25, 1.0, 0.75, -1.0),
        (Hinge(), 1.0, 1.0, 0.0, 0.0),
        (Hinge(), 0.25, -1.0, 1.25, 1.0),
        (Logistic(), 0.0, 1.0, math.log(2.0), -0.5),
        (Misclassified(), -2.0, 1.0, 2.0, -1.0),
        (Misclassified(), 2.0, 1.0, 0.0, 0.0),
        (Misclassified(), 0.0, 1.0, 0.0, 0.0),  # sign(0) = +1
        (Misclassified(), 0.0, -1.0, 0.0, 1.0),
    ],
)
def test_values_and_slopes_equal_hand_computed_ones(
    loss: Loss, score: float, target: float, value: float, slope: float
) -> None:
    assert loss.value(score, target) == value
    assert loss.slope(score, target) == slope


@pytest.mark.parametrize("loss", REAL + MARGIN, ids=lambda loss: type(loss).__name__)
@given(score=scores, target=st.floats(-5, 5))
def test_slope_is_a_subgradient(loss: Loss, score: float, target: float) -> None:
    if loss in MARGIN:
        target = math.copysign(1.0, target)
    slope, here = loss.slope(score, target), loss.value(score, target)
    for other in (score - 1.0, score - 1e-3, score + 1e-3, score + 2.0):
        assert loss.value(other, target) >= here + slope * (other - score) - 1e-9


@pytest.mark.parametrize("loss", REAL + MARGIN, ids=lambda loss: type(loss).__name__)
def test_slope_equals_finite_difference(loss: Loss) -> None:
    h = 1e-6
    for score in (-3.3, -0.77, 0.31, 0.83, 4.1):  # away from the kinks
        for target in (-1.0, 1.0):
            change = loss.value(score + h, target) - loss.value(score - h, target)
            assert loss.slope(score, target) == pytest.approx(change / (2 * h), abs=1e-6)


def test_gradient_of_cumulative_perceptron_loss_is_equation_7() -> None:
    rng = np.random.default_rng(0)
    X, y, beta = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], 40), rng.normal(size=3)
    loss = Misclassified()

    def cumulative(at: np.ndarray) -> float:  # (6)
        return sum(loss.value(float(x @ at), a) for x, a in zip(X, y, strict=True))

    wrong = np.where(X @ beta >= 0, 1.0, -1.0) != y
    expected = -(y[wrong, None] * X[wrong]).sum(axis=0)  # (7)
    slopes = np.array([loss.slope(float(x @ beta), a) for x, a in zip(X, y, strict=True)])
    np.testing.assert_allclose(slopes @ X, expected, rtol=0, atol=1e-12)  # (8), summed
    h = 1e-6
    difference = [
        (cumulative(beta + h * e) - cumulative(beta - h * e)) / (2 * h) for e in np.eye(3)
    ]
    np.testing.assert_allclose(difference, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("target", [-1.0, 1.0])
@pytest.mark.parametrize("score", [-1e308, -1e4, -800.0, 800.0, 1e4, 1e308])
def test_logistic_loss_at_extreme_scores_is_linear(score: float, target: float) -> None:
    margin = score * target
    assert Logistic().value(score, target) == max(0.0, -margin)
    assert Logistic().slope(score, target) == (0.0 if margin > 0 else -target)


@given(score=st.floats(-700, 700))
def test_logistic_slopes_of_both_labels_differ_by_one(score: float) -> None:
    gap = Logistic().slope(score, -1.0) - Logistic().slope(score, 1.0)
    assert gap == pytest.approx(1.0, abs=1e-15)


def test_limits_of_epsilon_and_delta_are_plain_losses() -> None:
    for score in (-2.0, 0.0, 0.3, 5.0):
        assert EpsilonInsensitive(0.0).slope(score, 0.3) == Absolute().slope(score, 0.3)
        assert EpsilonInsensitive(0.0).value(score, 0.3) == Absolute().value(score, 0.3)
        assert Huber(1e9).slope(score, 0.3) == Squared().slope(score, 0.3)
