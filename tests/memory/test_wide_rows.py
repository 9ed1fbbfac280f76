"""More features than rows that fading leaves: learned rows stay fitted, as in a recursion by QR."""

import numpy as np
import pytest

import onepass as op


def _by_qr(X: np.ndarray, y: np.ndarray, ridge: float, factor: float) -> np.ndarray:
    """Coefficients of R ← qr([√λⁿ R; √λⁿ⁻¹ x₁; …; xₙ]), 25 rows after the other."""
    d = X.shape[1]
    R = np.sqrt(ridge) * np.eye(d, d + 1)
    for i in range(0, len(X), 25):
        rows = np.column_stack((X[i : i + 25], y[i : i + 25]))
        root = np.sqrt(factor ** np.arange(len(rows) + 1)[::-1])
        stacked = np.vstack((root[0] * R, root[1:, None] * rows))
        R = np.linalg.qr(stacked, mode="r")[:d]
    return np.linalg.solve(R[:, :d], R[:, d])


@pytest.mark.filterwarnings("ignore::onepass.errors.WindupWarning")
@pytest.mark.parametrize(("factor", "d"), [(0.9, 150), (0.8, 80), (0.95, 280)])
@pytest.mark.parametrize("ridge", [1e-6, 1.0])
@pytest.mark.parametrize("share", [0.66, 0.98, 2.0])
@pytest.mark.parametrize("block", [1, 1000])
def test_faded_rows_that_leave_directions_open_are_fitted_as_by_qr(
    factor: float, d: int, ridge: float, share: float, block: int
) -> None:
    rng, n = np.random.default_rng(0), int(share * d)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    learner = op.RLSRegressor(ridge, op.forgetting.Exponential(factor), fit_intercept=False)
    for i in range(0, n, block):
        learner.partial_fit(X[i : i + block], y[i : i + block])
    root, naive = np.sqrt(factor ** np.arange(n)[::-1]), _by_qr(X, y, ridge, factor)
    ours, theirs = (np.linalg.norm(root * (X @ w - y)) for w in (learner.coef_, naive))
    assert ours < 1.01 * theirs + 1e-7
    row = rng.normal(size=d)
    assert row @ learner.coef_ == pytest.approx(row @ naive, abs=1e-4)
