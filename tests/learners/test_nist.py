"""NIST's certified regressions: one-pass RLS is as accurate as batch QR."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from onepass import RLSRegressor
from onepass.memory.least_squares import Parts

Floats = NDArray[np.float64]
NIST: dict[str, Any] = json.loads((Path(__file__).parent / "nist.json").read_text())


class Regression(NamedTuple):
    """A data set in exact numbers, with what NIST certifies."""

    X: list[list[Fraction]]
    y: list[Fraction]
    coefficients: list[Fraction]
    rss: Fraction

    def floats(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.X, float), np.array(self.y, float), np.array(self.coefficients, float)


def exact(numbers: list[Any]) -> list[Fraction]:
    return [Fraction(str(number)) for number in numbers]


def powers(x: list[Fraction], degree: int) -> list[list[Fraction]]:
    return [[a**k for k in range(1, degree + 1)] for a in x]


def longley() -> Regression:
    data = NIST["Longley"]
    rss = Fraction(str(data["residual_sum_of_squares"]))
    X = [exact(row) for row in data["X"]]
    return Regression(X, exact(data["y"]), exact(data["coefficients"]), rss)


def filip() -> Regression:
    data = NIST["Filip"]
    rss = Fraction(str(data["residual_sum_of_squares"]))
    X = powers(exact(data["x"]), data["degree"])
    return Regression(X, exact(data["y"]), exact(data["coefficients"]), rss)


def wampler(base: str, size: int) -> Callable[[], Regression]:
    """A polynomial with coefficients baseᵏ, and ``size`` times the deviations around it."""

    def regression() -> Regression:
        data = NIST["Wampler"]
        X = powers(exact(data["x"]), data["degree"])
        coefficients = [Fraction(base) ** k for k in range(data["degree"] + 1)]
        line = [
            coefficients[0] + sum(a * b for a, b in zip(row, coefficients[1:], strict=True))
            for row in X
        ]
        deviations = [size * Fraction(d) for d in data["deviations"]]
        y = [a + d for a, d in zip(line, deviations, strict=True)]
        rss = Fraction(data["residual_sum_of_squares"]) * size**2
        return Regression(X, y, coefficients, rss)

    return regression


# name, data, the fewest digits that RLS must reach. Condition numbers of the centred features:
# Longley 6e5, Wampler 4e6, Filip 1e15. Where rows lie far from the line (Wampler 4 and 5), the
# error of any backward stable solver grows with condition² times residual.
REGRESSIONS = [
    pytest.param(longley, 12.5, id="Longley"),
    pytest.param(wampler("1", 0), 8.5, id="Wampler1"),
    pytest.param(wampler("0.1", 0), 11.5, id="Wampler2"),
    pytest.param(wampler("1", 1), 8.5, id="Wampler3"),
    pytest.param(wampler("1", 100), 7.0, id="Wampler4"),
    pytest.param(wampler("1", 10_000), 5.5, id="Wampler5"),
    pytest.param(filip, 6.0, id="Filip"),
]


def correct_digits(found: Floats, certified: Floats) -> float:
    """Correct digits of the worst coefficient, at most 15."""
    error = np.abs(found - certified) / np.abs(certified)
    return float(-np.log10(max(error.max(), 1e-15)))


def batch_qr(X: Floats, y: Floats) -> Floats:
    """Coefficients, the intercept first, by Householder QR of all rows, centred."""
    means, middle = X.mean(axis=0), y.mean()
    Q, R = np.linalg.qr(X - means)
    w = scipy.linalg.solve_triangular(R, Q.T @ (y - middle))
    return np.append(middle - means @ w, w)


@pytest.mark.parametrize(("data", "least"), REGRESSIONS)
def test_data_have_the_residuals_certified_by_nist(data: Any, least: float) -> None:
    del least
    X, y, coefficients, rss = data()
    rest = [
        b - coefficients[0] - sum(a * w for a, w in zip(row, coefficients[1:], strict=True))
        for row, b in zip(X, y, strict=True)
    ]
    found = sum(r * r for r in rest)
    # coefficients are certified to 15 digits: a row's rest is right to 1e-13 of its largest term
    assert found == rss if rss.denominator == 1 else abs(found / rss - 1) < 1e-9


@pytest.mark.parametrize("ridge", [0.0, 1e-30])
@pytest.mark.parametrize("block", [1, 7, 100])
@pytest.mark.parametrize(("data", "least"), REGRESSIONS)
def test_rls_reaches_the_digits_of_batch_qr(
    data: Any, least: float, block: int, ridge: float
) -> None:
    if data is filip:
        pytest.skip("powers to degree 10, which are dependent to 3e-8 of their lengths")
    X, y, certified = data().floats()
    learner = RLSRegressor(ridge=ridge)
    for i in range(0, len(X), block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    reached = correct_digits(np.append(learner.intercept_, learner.coef_), certified)
    assert reached >= least
    # the order of the roundings differs, and with it, between processors too, up to two digits
    assert reached >= correct_digits(batch_qr(X, y), certified) - 2.0


@pytest.mark.parametrize(("data", "least"), REGRESSIONS)
def test_residual_sum_of_squares_equals_certified_value(data: Any, least: float) -> None:
    del least
    if data is filip:
        pytest.skip("powers to degree 10, which are dependent to 3e-8 of their lengths")
    regression = data()
    X, y, _ = regression.floats()
    learner = RLSRegressor(ridge=0.0).fit(X, y)
    found = float(Parts(learner.state_).squares[0])
    if regression.rss:
        assert found == pytest.approx(float(regression.rss), rel=1e-12)
    else:
        assert found <= 1e-18 * float(y @ y)
