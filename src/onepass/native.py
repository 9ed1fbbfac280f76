"""The compiled loops over rows, if they are installed; otherwise NumPy is used.

The installation builds them if a C compiler is available. Without them, or if
``ONEPASS_COMPILED=0`` is set, the same mathematics runs on NumPy; tests check that both give the
same numbers. Array arguments must be C-contiguous float64 arrays of the stated sizes; other arrays
raise an error.
"""

import os
import warnings
from importlib import import_module
from types import ModuleType

from onepass.errors import NotCompiledWarning

__all__ = ["loops", "status"]

_VERSION = 8  # of the functions below, as in native/module.c; other versions are not used


def _load() -> tuple[ModuleType | None, str]:
    """Return the compiled loops, and the value of `status`."""
    if os.environ.get("ONEPASS_COMPILED") == "0":
        return None, "NumPy (ONEPASS_COMPILED=0)"
    try:
        module = import_module("onepass._compiled")
    except ImportError:
        reason = "the compiled loops are not installed"
    else:
        if getattr(module, "VERSION", None) == _VERSION:
            return module, "compiled"
        reason = "the compiled loops are of another version"
    warnings.warn(
        f"onepass: loops run on NumPy, which is slower, since {reason}. Install onepass again with "
        "a C compiler, or set ONEPASS_COMPILED=0 to omit this warning.",
        NotCompiledWarning,
        stacklevel=2,
    )
    return None, f"NumPy ({reason})"


loops: ModuleType | None
status: str
loops, status = _load()
"""The module of compiled loops, or None; and ``"compiled"``, or ``"NumPy (reason)"``.

``Rows(d, c, free, factor, level, period, format)`` is recursive least squares with d features and c
outputs, with or without an intercept. Before each row the weight of the past is multiplied by
``factor``; if this is 0, ``learn`` and ``learn_one`` take the half-lives between rows as their last
argument. If ``level`` is above 0, the information about each weight is raised every ``period``
rows to that of ``level`` rows. ``format`` is None, or a tuple (array, scalars, names, number,
labels, places) for single rows: a row is an instance of the type ``array``, a list or tuple of
numbers, or a dict with the keys ``names``; numbers are Python's or of the types ``scalars``.
Predictions are converted by the type ``number``, are vectors if ``number`` is a function that
creates an array of c doubles, or are elements of ``labels``, whose outputs are ``places``.
``put(part, doubles)`` and ``get(part)`` copy parts of the state; ``triangle(R.T, z, out)`` copies
R (d, d) and z (d, c) in or out, or U, θ and D if D is given, and ``numbers`` the numbers.
``copy()`` returns an independent copy. ``fitted(weights, center, offset)`` writes what predictions
need. ``learn(n, X, Y, weights, errors)`` learns rows and returns the number of rows learned: less
than n if the next row requires the general algorithm, -1 if the state is no longer valid. In these
cases ``learn_one(x, y, weight)`` and ``learn_few(n, X, y, errors)``, for up to 65,536 rows, return
False and leave the state unchanged. ``predict_one(x)`` and ``predict_std(x)``, which also returns
the standard deviation, return None if Python must handle the row. ``learn_packed(n, m, codes,
states, X, Y, weights, errors, learned)`` learns rows in m packed states of the same sizes and rule,
each a row of the array ``states``: row i in state ``codes[i]``, or not if that is negative;
``learned`` are the numbers of rows that the states have learned before a row that requires the
general algorithm. ``fitted_packed(m, states, weights, center, offset)`` writes what predictions
need. The order of the numbers is in ``native/packed.h``.

``Mixture(experts, indicators, format)`` is automatic forgetting: a tuple of up to 16 objects
``Rows`` of the same sizes, which it owns, weighted as in :mod:`onepass.memory.forgetting.auto`;
``indicators`` is whether targets are class indicators. ``numbers([doubles])`` sets and returns the
weights (K, c), the squares (c) and their number. ``learn`` learns rows in blocks and stops before a
block in which a row requires the general algorithm of one of the experts. The other methods are as
in ``Rows``.

``Window(d, c, free, loose, rows, step, format)`` is least squares on the last ``rows`` rows, with
weights that fade by ``step`` half-lives per row; with ``rows`` 0 the caller determines the rows
that leave. ``loose`` is whether the penalty leaves directions undetermined.
``put("penalty", [R z])`` sets the penalty (p, p + c), with p = free + d columns, and
``put("start", w0)`` the initial weights (d, c).
``load(n, X, Y, weights, clock)`` adds rows without learning them: targets Y relative to w0, and
clocks in half-lives after the last row, or None. ``numbers(share)`` sets the remaining share of the
penalty, and returns the number of rows, the share, the number of rows learned one by one, whether
the triangle is accurate, and the weight of the rows. ``put("state", doubles)`` and ``get("state")``
copy the rest of the state; ``get`` also returns the parts ``triangle`` ([R z], relative to the row
``center``), ``w``, ``squares``, ``X``, ``Y``, ``weights`` and ``clock``.
``learn(n, X, Y, weights, errors, clock, leaving)``, with the number of rows that leave after each
row, returns the number of rows learned: less than n if the next row requires the general algorithm.
``format``, ``learn_one``, ``learn_few``, ``predict_one``, ``predict_std``, ``fitted``, ``copy`` and
``calibration`` are as in ``Rows``; ``fitted`` returns whether the weights are accurate.

``descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, statistics,
predictions)`` is stochastic gradient descent on a loss, and ``correct(n, d, c, unit, X, y, moves,
known, W, b, predictions)`` the perceptron: W (c, d), b (c,) and the statistics (c, 5) of adaptive
steps, or None, are updated in place, and ``predictions`` (n, c) is written.

``kalman(k, n, p, c, discount, X, Y, noise, q, G, F, W, factors, squares, predictions)`` learns rows
in k Kalman filters of :mod:`onepass.learners.kalman`: W (k, c, p), the factors (k, p, p) of the
covariances and the sums of squares (k, c) are updated in place, and the predictions (k, n, c)
written. ``q`` (k, p) are the process noises; ``G`` and ``F`` (p, p), the transposed transition, may
be None. A row whose first target is NaN has none. Returns whether all numbers are finite.
``mix(k, n, c, indicators, Y, weights, each, numbers, errors)`` writes the errors (n, c) of a
mixture of up to 16 experts with errors ``each`` (k, n, c), and updates its ``numbers``, in the
order of ``Mixture.numbers``; ``weights`` may be None.

``calibrate(c, state, scores, y)`` updates the state (4,) of a calibration with the scores (c,) of a
row of class y.

``transpose(n, columns, rows)`` writes a tuple of q columns of n numbers each, arrays of any stride
and any type of integers, booleans, float32 or float64, as the rows (n, q); it returns whether all
are finite.

``named_row(x, names, row)`` writes the values of a dict of plain numbers to ``row``, in the order
of ``names``; it returns False for any other object. ``secular(dlasd4, n, d, z, vectors, roots,
work)`` decomposes [diag(d) z], d and z (n,), with LAPACK's function ``dlasd4`` in a capsule. It
writes the left singular vectors (n, n) as rows, and the singular values; ``work`` (3 n) is work
space. It returns False if LAPACK fails.

``Linear(d, c, unit, loss, parameter, format)`` learns single rows by ``descend``, or by ``correct``
if ``loss`` is 0. ``put(n, W, b, statistics, rate, limit, keep, damping)`` sets the state and
the step sizes of the next n rows; ``get(W, b, statistics)`` writes the state.
``learn_one(x, y, weight)`` returns whether the row was learned.
``calibration`` is as in ``Rows``.

``Kernel(kernel, gamma, degree, coef0, noise, tolerance, budget, (d, c), format, m, k, pruned,
inverted, mass, (points, L, mean, spread, inverse, squares))`` learns single rows of kernel RLS with
noise and without forgetting, from the arrays of ``KernelPosterior`` with the features (d, m), the
outputs (c, m) and the columns of S (k, m) as rows; ``kernel`` is 0 to 3 for rbf, laplacian, linear
and polynomial, and ``inverted`` whether ``inverse`` is not empty. ``get()`` returns (m, k, pruned,
mass, points, L, mean, spread, inverse, squares), with the arrays as bytes.
``learn(x, y, weight, errors)`` writes the errors (c,) of a row and returns whether it was learned;
``format``, ``learn_one``, ``predict_one``, ``copy`` and ``calibration`` are as in ``Rows``.

The following functions learn one row in a transformer; they write the transformed row and the new
state, and return False for a row that NumPy must handle. ``x`` is an array, or a dict with the keys
``names``; without the last two arguments nothing is learned.
``scale_row(x, names, seen, centred, origin, offset, squares, row, new_offset, new_squares)`` is
standardisation after ``seen`` rows, and ``impute_row(x, names, strategy, indicate, fills, counts,
flags, row, new_fills, new_counts)`` imputation, which adds no indicators.
``encode_row(x, columns, number, text, width, row)`` encodes a dict, whose columns are of the two
types ``number`` and ``text``.

The following functions process q columns of p numbers, stored as the rows of an array (q, p) of
type "f" or "d", from index ``first`` to before index ``last`` only.
``into(type, q, p, first, last, rows, g, C)`` writes the products (q,) of the columns with a vector
g, summed in float64, and returns the sum of squares of g.
``without(type, q, p, first, last, rows, g, c, d, rest, lifted, again)`` writes rest = g + c rows,
lifted = rest + d rows if d is given, and the products of the columns with rest if ``again`` is
given; it returns the sum of squares of rest. ``lengths(type, q, p, first, last, rows, squares)``
writes the squared lengths of the columns.
"""
