"""The compiled loops over rows, if they are installed; otherwise NumPy is used.

The installation builds them if Clang, or GCC 12 or later, is available. Without them, or if
``ONEPASS_COMPILED=0`` is set, the same mathematics runs on NumPy; tests check that both give the
same numbers. Array arguments must be C-contiguous float64 arrays of the stated sizes; other arrays
raise an error.
"""

import os
import warnings
from importlib import import_module
from types import ModuleType

_VERSION = 14  # of the functions below, as in native/python/module.c; other versions are not used


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
    from onepass.errors import NotCompiledWarning  # noqa: PLC0415  imports scikit-learn

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

The functions of least squares change a *vector* of float64, the state described in
``native/core/least_squares.h`` and :mod:`onepass.memory.vector`, or read it; they store nothing.

``ls_learn(vector, n, X, Y, weights, fades, leaving, errors, release)`` learns rows X (n, d), Y
(n, c) one after the other and writes their errors (n, c) just before; it returns whether the vector
is finite. ``weights`` (n,), ``fades`` (n,), log2 of the factor by which the past fades before each
row, and ``leaving`` (n,), the number of rows that leave the window after each row, may be None.
``release`` is whether the GIL is released meanwhile.
``ls_learn_keys(vectors, keys, n, codes, X, Y, weights, errors)`` learns rows in vectors of one
size, the rows of an array: row i in vector ``codes[i]``, or not if that is negative.
``ls_fitted(vectors, keys, weights, centre, offset)`` writes weights (keys, c, d), centres (keys, d)
and offsets (keys, c): a prediction is w (x - centre) + offset. With 0 keys they are those of one
state, and of all experts of a mixture. ``ls_rotate(vector, n, rows, weights)`` adds rows [a b]
(n, stride), not centred, of any weights; it returns whether the vector is finite.
``mix(k, n, c, indicators, Y, weights, each, numbers, errors)`` writes the errors (n, c) of a
mixture of up to 16 experts with errors ``each`` (k, n, c), and updates its ``numbers``: the weights
(k, c), and the numerators (c) and denominator in (1) of :mod:`onepass.forgetting.auto`.
``indicators`` is whether targets are class indicators; ``weights`` may be None.

``Format(d, c, format)`` is how single rows are read. ``format`` is None, or a tuple (array,
scalars, names, number, labels, places): a row is an instance of the type ``array``, a list or tuple
of numbers, or a dict with the keys ``names``; numbers are Python's or of the types ``scalars``.
Predictions are converted by the type ``number``, are vectors if ``number`` is a function that
creates an array of c doubles, or are elements of ``labels``, whose outputs are ``places``.

``row(x, out)`` writes a row (d,), and ``example(x, label, weight, out)`` a row, the index of its
label and its weight (d + 2,); they return whether they could. ``prediction(scores)`` and
``probabilities(scores, calibration)``, by label, with the state of a calibration or None, return
None if a score (c,) is infinite.

``Single(vector, format, calibration, rows, timed)`` is a view of a vector, which learns and
predicts single rows of a ``Format``. ``calibration`` is None or the state (4 + 2 c,) of a
calibration, which is updated. The row number ``rows`` is left to Python; with 0, none. Rows must be
learned with ``fade`` if ``timed``, else without.
``learn_one(x, y, weight[, fade])`` returns whether the row was learned, and raises OverflowError if
the vector is not finite.
``predict_one(x)``, ``predict_std(x)``, which also returns the standard deviation, and
``predict_proba_one(x)``, the probabilities by label, return None if Python must handle the row.

``descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, statistics,
predictions)`` is stochastic gradient descent on a loss, and ``correct(n, d, c, unit, X, y, moves,
known, W, b, predictions)`` the perceptron: W (c, d), b (c,) and the statistics (c, 5) of adaptive
steps, or None, are updated in place, and ``predictions`` (n, c) is written.

``kalman(k, n, p, c, discount, X, Y, noise, q, G, F, W, factors, squares, predictions)`` learns rows
in k Kalman filters of :mod:`onepass.learners.kalman`: W (k, c, p), the factors (k, p, p) of the
covariances and the sums of squares (k, c) are updated in place, and the predictions (k, n, c)
written. ``q`` (k, p) are the process noises; ``G`` and ``F`` (p, p), the transposed transition, may
be None. A row whose first target is NaN has none. Returns whether all numbers are finite.

``calibrate(n, c, state, scores, labels, weights, fitted)`` updates the state (4 + 2 c,) of a
calibration with the scores (n, c), the classes (n,) and the weights (n,) of rows, and writes the
scale and offsets after each, (n, 1 + c).

The functions of class moments read or change the vector of :mod:`onepass.learners.class_means`,
for k matrices of sums, c classes and d features; w is d + 1 rounded up to a multiple of 8.
``class_learn(dsyrk, k, c, d, vector, n, X, labels, weights, calibration, scores)`` learns rows X
(n, d) of the classes ``labels`` (n,), with BLAS's function ``dsyrk`` in a capsule, and updates the
state of a calibration with their scores (n, c), unless one of these is None. It returns False if
the vector is read-only; nothing has changed then.
``class_coefficients(k, c, d, vector, cosine, share, variance, shares, coefficients)`` writes the
array (c + 2, w) of ``Moments.coefficients`` and returns False if the covariance is singular;
``class_linear_scores(c, d, coefficients, n, X, scores)`` writes scores (n, c) from it.
``class_factor(d, sums, factor, add, U)`` factorises factor · sums + add · I = UᵀU, from the upper
triangle of sums (d, d), and writes U (w + 1, w), whose last row is 1 / its diagonal and half the
log determinant; it returns False if the matrix is singular.
``class_quadratic_scores(c, d, means, factors, shares, n, X, scores)`` writes quadratic scores
(n, c) from a tuple of such U for the classes, priors up to a factor (c,), and the vector without
sums.

The functions of forests change or read the vector of ``native/core/forest.h``.
``forest_start(vector)`` makes each tree a single leaf, in a vector that is 0 after the head.
``forest_learn(vector, n, X, Y, weights, found)`` learns rows X (n, d), which may contain NaN, with
the indices of their classes, or targets, Y (n, c), and writes what was predicted before each:
probabilities (n, C), or (n, c). It returns the number of rows learned, less than n if the next one
needs room for another class or leaf, and raises OverflowError if a number is too large to be
squared; no row is then learned. ``forest_predict(vector, n, X, found)`` predicts rows.

``transpose(n, columns, rows)`` writes a tuple of q columns of n numbers each, arrays of any stride
and any type of integers, booleans, float32 or float64, as the rows (n, q); it returns whether all
are finite.

``named_row(x, names, row)`` writes the values of a dict of plain numbers to ``row``, in the order
of ``names``; it returns False for any other object. ``secular(dlasd4, n, d, z, vectors, roots,
work)`` decomposes [diag(d) z], d and z (n,), with LAPACK's function ``dlasd4`` in a capsule. It
writes the left singular vectors (n, n) as rows, and the singular values; ``work`` (3 n) is work
space. It returns False if LAPACK fails.

``Linear(d, c, unit, loss, parameter, (rate, decay, power, l2, limit, damping, t), format)`` learns
single rows by ``descend``, or by ``correct`` if ``loss`` is 0. The steps are those of
:class:`onepass.learners.step_size.SingleSteps`. ``put(W, b, statistics)`` sets the state, and
``get(W, b, statistics)`` writes it.
``format`` is that of ``Format``; ``learn_one(x, y, weight)``, ``predict_one(x)`` and
``predict_proba_one(x)`` are as in ``Single``. ``copy()`` returns an independent copy.
``calibration`` is None, or the number of rows learned and the state of a calibration.

``Kernel(kernel, gamma, degree, coef0, noise, tolerance, budget, (d, c), format, m, k, pruned,
inverted, mass, (points, L, mean, spread, inverse, squares))`` learns single rows of kernel RLS with
noise and without forgetting, from the arrays of ``KernelPosterior`` with the features (d, m), the
outputs (c, m) and the columns of S (k, m) as rows; ``kernel`` is 0 to 3 for rbf, laplacian, linear
and polynomial, and ``inverted`` whether ``inverse`` is not empty. ``get()`` returns (m, k, pruned,
mass, points, L, mean, spread, inverse, squares), with the arrays as bytes.
``learn(x, y, weight, errors)`` writes the errors (c,) of a row and returns whether it was learned;
the other members are as in ``Linear``.

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
