"""Compiled: loops over rows in C, where they are installed; all else is NumPy.

The extension is built with the package where there is a C compiler, and left out where there is
none, or where ``ONEPASS_COMPILED=0`` is set: then the same mathematics runs on NumPy. Tests hold
the two to the same numbers.
"""

import os
from typing import Any

__all__ = ["rows"]


def _found() -> Any:
    if os.environ.get("ONEPASS_COMPILED") == "0":
        return None
    try:
        from onepass import _compiled  # noqa: PLC0415  an import that may fail
    except ImportError:
        return None
    return _compiled.Rows


rows: Any = _found()
"""The type of compiled recursive least squares; None where it is not installed.

``rows(d, c, free, factor, level, period, array, names, number, labels, places)``: d features and c
outputs, with an intercept or not; the past fades by ``factor`` as a row comes, and every ``period``
rows a floor of so many rows' worth is put under it, if ``level`` is above 0. Single rows are read
from objects of the type ``array`` or from dicts by ``names``, and answered by ``number`` or by one
of ``labels``, whose outputs are ``places``.

``put(part, doubles)`` and ``get(part)`` copy parts of the state; ``triangle(R, z, out)`` copies
R (d, d) and z (d, c) in or out, and ``numbers(mass, age, count)`` the rest.
``learn(n, X, Y, weights, errors)`` learns rows, and leaves the state of no use where it returns
False; ``learn_one(x, y, weight)`` leaves it as it was.
"""
