"""RLSRegressor on drawn streams like users' data, against batch least squares.

`least_squares_survey.py` next to this file makes the cases and says what is checked; it runs
thousands as a command.
"""

import numpy as np
import pytest
from least_squares_survey import RULES, batch, check, draw, line, objective, textbook
from realistic_signals import SIGNALS


@pytest.mark.parametrize("seed", range(60))
def test_fits_are_as_good_as_batch_least_squares_and_do_not_depend_on_blocks(seed: int) -> None:
    result = check(seed)
    assert not result.wrong, line(result)


# -- the survey itself -----------------------------------------------------------------------------


def test_a_case_is_drawn_from_its_seed_alone() -> None:
    first, second = draw(7), draw(7)
    assert str(first) == str(second)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    assert first.checkpoints == second.checkpoints


@pytest.mark.parametrize("d", [2, 3, 25, 150])
@pytest.mark.parametrize("signal", SIGNALS)
def test_signals_are_finite_and_of_the_size_asked_for(signal: str, d: int) -> None:
    X, y = SIGNALS[signal](np.random.default_rng(0), 500, d)
    assert X.shape[0] == len(y) == 500
    assert 2 <= X.shape[1] <= d
    assert np.abs(X).max() < 1e150
    assert np.isfinite(y).all()
    assert y.std() > 0.0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ridge", [0.0, 1e-6, 10.0])
def test_the_references_agree(rule: str, ridge: float) -> None:
    """Two independent algorithms attain the same objective and predict the same."""
    X, y = SIGNALS["mixed_units"](np.random.default_rng(1), 400, 8)
    parameters = RULES[rule]
    rows = [30, 400]
    for n, fit in zip(rows, textbook(X, y, parameters, ridge, rows), strict=True):
        weights, faded = parameters.weights(n), ridge * parameters.ridge_factor(n)
        best = batch(X[:n], y[:n], weights, faded).fit
        values = [
            objective(y[:n], one.predict(X[:n]), one.coef, weights, faded) for one in (fit, best)
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-9)
        used = weights > 0.0
        np.testing.assert_allclose(fit.predict(X[:n][used]), best.predict(X[:n][used]), atol=1e-6)


def test_no_other_coefficients_have_a_smaller_objective() -> None:
    rng = np.random.default_rng(2)
    X, y = SIGNALS["far_levels"](rng, 200, 5)
    rule = RULES["exponential"]
    weights, ridge = rule.weights(200), 1.0 * rule.ridge_factor(200)
    fit = batch(X, y, weights, ridge).fit
    least = objective(y, fit.predict(X), fit.coef, weights, ridge)
    for _ in range(20):
        other = fit._replace(
            coef=fit.coef + 1e-3 * rng.normal(size=5), offset=fit.offset + 1e-3 * rng.normal()
        )
        assert objective(y, other.predict(X), other.coef, weights, ridge) > least
