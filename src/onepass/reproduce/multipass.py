"""Multi-pass SGD: what one-pass learning is compared with, an epoch by one triangular solve.

SGD on the squared error of a linear model takes for each row k, pass after pass,

    w ← w + 2η (y_k − x_kᵀ w) x_k                                                           (1)

Let r be the errors as an epoch begins and δ_k = 2η (y_k − x_kᵀ w) what row k is added by in it.
Row k sees the steps of the rows before it, so that with K = X Xᵀ all of them come at once:

    (I / 2η + stril K) δ = r,   w ← w + Xᵀ δ,   r ← r − K δ                                  (2)

where stril K is the part of K below its diagonal, rows and columns in the order of the epoch. It
is (1) to rounding, for all runs together, and costs O(n²) an epoch in place of O(np).

Whom it is compared with, and where it leads: Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via
Bridging Orthogonal Gradient Descent and Recursive Least-Squares", section 5.2 and Corollary 1.
"""

import numpy as np

from onepass import linalg
from onepass.errors import Array, Floats, ParameterError

__all__ = ["multipass_sgd"]


def multipass_sgd(
    X: Floats,
    y: Floats,
    start: Floats,
    step_size: float,
    steps: Array,
    shuffle: np.random.Generator | None = None,
) -> Floats:
    """The weights of SGD on squared error after certain steps, for several runs at once.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Rows to learn, each once an epoch.
    y : ndarray of shape (n,)
    start : ndarray of shape (runs, p)
        w₀ of each run.
    step_size : float
        η of (1), > 0; below 1 / max ‖x_k‖² for it to converge.
    steps : ndarray of int of shape (t,)
        Rising, from 1 on: step n is the end of the first epoch.
    shuffle : numpy.random.Generator, optional
        Puts the rows in a new order for each epoch, the same in all runs; they stay in theirs
        if it is not given.

    Returns
    -------
    weights : ndarray of shape (t, runs, p)

    Raises
    ------
    ParameterError
        If the step size is not positive, or the steps do not rise from 1 on.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(2), np.ones(2)
    >>> multipass_sgd(X, y, np.zeros((1, 2)), 0.25, np.array([1, 2, 3]))[:, 0]
    array([[0.5 , 0.  ], [0.5 , 0.5 ], [0.75, 0.5 ]])
    """
    if not step_size > 0 or (np.diff(steps, prepend=0) < 1).any():
        raise ParameterError(
            "multipass_sgd: `step_size` must be > 0 and `steps` must rise from 1 on, got "
            f"{step_size!r} and {steps!r}. Give whole numbers in order, each once."
        )
    n = len(X)
    K = X @ X.T
    r = y[:, None] - X @ start.T
    total = np.zeros(r.shape)  # w = w₀ + Xᵀ total
    rows, delta = _epoch(K, r, step_size, shuffle)
    known, epoch = [], 0
    for step in steps:
        while (step - 1) // n > epoch:
            total[rows] += delta
            r -= K[:, rows] @ delta  # (2)
            rows, delta = _epoch(K, r, step_size, shuffle)
            epoch += 1
        used = (step - 1) % n + 1
        known.append(X.T @ total + X[rows[:used]].T @ delta[:used])
    return start + np.stack(known).transpose(0, 2, 1)


def _epoch(
    K: Floats, r: Floats, step_size: float, shuffle: np.random.Generator | None
) -> tuple[Array, Floats]:
    """The order of an epoch's rows, and their δ in this order, by (2)."""
    n = len(K)
    rows = np.arange(n) if shuffle is None else shuffle.permutation(n)
    triangle = K[np.ix_(rows, rows)]
    triangle[np.arange(n), np.arange(n)] = 1.0 / (2.0 * step_size)
    return rows, linalg.solve_lower(triangle, r[rows])  # what is above the diagonal is not read
