"""The compiled loops over rows, if they are installed; otherwise NumPy is used.

They are built with the package if there is a C compiler, and not used if there is none or if
``ONEPASS_COMPILED=0`` is set: then the same mathematics runs on NumPy. Tests check that both give
the same numbers. Arguments must be C-contiguous float64 arrays of the stated sizes; others raise an
error.
"""

import os
from importlib import import_module
from types import ModuleType

__all__ = ["loops"]

_VERSION = 3  # of the calls below, as in native/module.c; other versions are not used


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
squares with d features and c outputs, with or without an intercept. The past fades by ``factor``
before each row, and every ``period`` rows the information is raised to ``level`` rows' worth, if
that is above 0. Single rows are read from objects of the type ``array`` or from dicts by ``names``,
and predictions are returned by ``number`` or as one of ``labels``, whose outputs are ``places``.
``put(part, doubles)`` and ``get(part)`` copy parts of the state; ``triangle(R.T, z, out)`` copies
R (d, d) and z (d, c) in or out, and ``numbers(mass, age, count)`` the rest.
``learn(n, X, Y, weights, errors)`` learns rows and returns their number, less than n if the next
row needs the general algorithm; -1 if the state is no longer valid. ``learn_one(x, y, weight)``,
and ``learn_few(n, X, y, errors)`` for up to 65,536 rows, leave the state unchanged in these cases,
and after ``release()``.

``descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, predictions,
work)`` is stochastic gradient descent on a loss, and ``correct(n, d, c, unit, X, y, moves, known,
W, b, predictions)`` the perceptron: W (c, d) and b (c,) are updated in place, ``predictions``
(n, c) is written, and ``work`` (c,) is work space.

``named_row(x, names, row)`` reads a dict of plain numbers by a list of names, and returns False for
anything else. ``secular(dlasd4, n, d, z, vectors, roots, work)`` decomposes [diag(d) z], d and z
(n,), with LAPACK's function in a capsule: left singular vectors (n, n) as rows, and singular
values; ``work`` (3 n) is work space, and False means that LAPACK failed.

``Linear(d, c, unit, loss, parameter, array, names, number, labels, places)`` is such a model for
single rows; loss 0 is the perceptron. ``put(n, W, b, rate, limit, keep, damping)`` sets it, with
the step sizes of the next n rows; ``get()`` returns W, b, the numbers of rows learned and of
mistakes. ``learn_one(x, y, weight)`` learns nothing if it returns False, as after ``release()``.

For q columns that are the rows of an array (q, p), of type "f" or "d", and their numbers ``first``
to ``last`` only: ``into(type, q, p, first, last, rows, g, C)`` writes their products (q,) with a
vector, summed in float64; ``without(type, q, p, first, last, rows, g, c, d, rest, lifted, again)``
writes rest = g + c rows, lifted = rest + d rows if d is given, and the products with rest if
``again`` is given; both return a sum of squares, of g and of rest. ``lengths(type, q, p, first,
last, rows, squares)`` writes the squared lengths.
"""
