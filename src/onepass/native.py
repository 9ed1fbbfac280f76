"""The compiled loops over rows, if they are installed; NumPy is used otherwise.

They are built with the package where there is a C compiler, and left out where there is none, or
where ``ONEPASS_COMPILED=0`` is set: then the same mathematics runs on NumPy. Tests hold the two to
the same numbers. Whoever calls the loops gives them arrays of float64, row after row in memory, of
the sizes that they say; others are refused.
"""

import os
from importlib import import_module
from types import ModuleType

__all__ = ["loops"]

_VERSION = 3  # of the calls below, as native/module.c has it too: an older file is as good as none


def _found() -> ModuleType | None:
    if os.environ.get("ONEPASS_COMPILED") == "0":
        return None
    try:
        found = import_module("onepass._compiled")
    except ImportError:
        return None
    return found if getattr(found, "VERSION", None) == _VERSION else None


loops: ModuleType | None = _found()
"""The module of loops; None where it is not installed.

``Rows(d, c, free, factor, level, period, array, names, number, labels, places)`` is recursive least
squares of d features and c outputs, with an intercept or not. The past fades by ``factor`` as a row
comes, and every ``period`` rows a floor of ``level`` rows' worth is put under it, if that is above
0. Single rows are read from objects of the type ``array`` or from dicts by ``names``, and answered
by ``number`` or by one of ``labels``, whose outputs are ``places``. ``put(part, doubles)`` and
``get(part)`` copy parts of the state; ``triangle(R.T, z, out)`` copies R (d, d) and z (d, c) in or
out, and ``numbers(mass, age, count)`` the rest. ``learn(n, X, Y, weights, errors)`` learns rows and
returns how many, fewer where the next one needs care; -1 where the state is of no more use.
``learn_one(x, y, weight)``, and
``learn_few(n, X, y, errors)`` of up to 65,536 rows, leave it as it was, as they do once
``release()`` was called.

``descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, said, room)`` goes
down the slope of a loss, and ``correct(n, d, c, unit, X, y, moves, known, W, b, said)`` corrects
mistakes: W (c, d) and b (c,) are learned in place, ``said`` (n, c) written, and ``room`` (c,) used.

``named_row(x, names, row)`` reads a dict of plain numbers under a list of names, and is False where
it is any other. ``secular(dlasd4, n, d, z, vectors, roots, room)`` decomposes [diag(d) z], d and z
(n,), by LAPACK's function in a capsule: left singular vectors (n, n) as rows, and singular values;
``room`` (3 n) is used, and False means that there was no root.

``Linear(d, c, unit, loss, parameter, array, names, number, labels, places)`` is such a model while
single rows come; loss 0 corrects mistakes. ``put(n, W, b, rate, limit, keep, damping)`` sets it,
and what the n rows to come do; ``get()`` tells W, b, the rows learned and the mistakes.
``learn_one(x, y, weight)`` learns nothing where it returns False, as after ``release()``.

Of q columns that are rows of an array (q, p), of type "f" or "d", and their numbers ``first`` to
``last`` alone: ``into(type, q, p, first, last, rows, g, C)`` writes their products (q,) with a
vector, summed in float64; ``without(type, q, p, first, last, rows, g, c, d, rest, lifted, again)``
writes rest = g + c rows, lifted = rest + d rows, if d is given, and the products with the rest, if
they are; both return a sum of squares, of g and of the rest. ``lengths(type, q, p, first, last,
rows, squares)`` writes the sums of squares of each.
"""
