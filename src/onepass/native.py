"""Compiled loops over rows, if they are installed; otherwise NumPy is used.

They are built with the package if there is a C compiler. Without them, or if ``ONEPASS_COMPILED=0``
is set, the same mathematics runs on NumPy. Tests check that both return the same numbers. Arguments
must be C-contiguous float64 arrays of the stated sizes; other arguments raise an error.
"""

import os
from importlib import import_module
from types import ModuleType

__all__ = ["loops"]

_VERSION = 3  # version of the calls below, as in native/module.c; other versions are not used


def _found() -> ModuleType | None:
    if os.environ.get("ONEPASS_COMPILED") == "0":
        return None
    try:
        found = import_module("onepass._compiled")
    except ImportError:
        return None
    return found if getattr(found, "VERSION", None) == _VERSION else None


loops: ModuleType | None = _found()
"""The module of compiled loops; None if it is not installed.

``Rows(d, c, free, factor, level, period, array, names, number, labels, places)`` is recursive least
squares with d features and c outputs, with or without an intercept. Past rows are weighted by
``factor`` before each row; if ``level`` is above 0, the information is raised to that of ``level``
rows every ``period`` rows. Single rows are objects of the type ``array``, or dicts that are read by
``names``. Predictions are converted by ``number``, or to one of ``labels``, whose outputs are
``places``. ``put(part, doubles)`` and ``get(part)`` copy parts of the state;
``triangle(R.T, z, out)`` copies R (d, d) and z (d, c) in or out, and ``numbers(mass, age, count)``
the rest. ``learn(n, X, Y, weights, errors)`` returns the number of rows learned, which is less than
n if the next row needs the general algorithm, or -1 if the state is no longer valid.
``learn_one(x, y, weight)``, and ``learn_few(n, X, y, errors)`` for up to 65,536 rows, do not change
the state in these two cases, or after ``release()``.

``descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, predictions,
work)`` is stochastic gradient descent on a loss, and ``correct(n, d, c, unit, X, y, moves, known,
W, b, predictions)`` the perceptron: W (c, d) and b (c,) are updated in place, ``predictions``
(n, c) is written, and ``work`` (c,) is work space.

``named_row(x, names, row)`` reads a dict of plain numbers in the order of a list of names, and
returns False for other objects. ``secular(dlasd4, n, d, z, vectors, roots, work)`` decomposes
[diag(d) z], d and z (n,), with LAPACK's function in a capsule: left singular vectors (n, n) as
rows, and singular values. ``work`` (3 n) is work space. It returns False if LAPACK fails.

``Linear(d, c, unit, loss, parameter, array, names, number, labels, places)`` is a model of one of
these two kinds for single rows; loss 0 is the perceptron. ``put(n, W, b, rate, limit, keep,
damping)`` sets its state, with the step sizes of the next n rows; ``get()`` returns W, b, and the
numbers of rows learned and of mistakes. If ``learn_one(x, y, weight)`` returns False, as after
``release()``, the row was not learned.

Three functions use only elements ``first`` to ``last`` of q columns, which are the rows of an array
(q, p) of type "f" or "d". ``into(type, q, p, first, last, rows, g, C)`` writes the products (q,) of
the columns with a vector, summed in float64, and returns the sum of squares of g.
``without(type, q, p, first, last, rows, g, c, d, rest, lifted, again)`` writes rest = g + c rows,
lifted = rest + d rows if d is not None, and the products with rest if ``again`` is not None, and
returns the sum of squares of rest. ``lengths(type, q, p, first, last, rows, squares)`` writes the
squared lengths.
"""
