"""Sweep: long columns and one vector, read by the compiled loops where they are installed.

The same as :mod:`onepass.reading` has NumPy and torch do piece by piece, in fewer reads of the
cache: a piece is taken from the vector, added to it and multiplied with it while it lies there,
and the next one is on its way. Threads take runs of pieces each.
"""

from typing import Any

import numpy as np

from onepass import compiled, linalg
from onepass.errors import Floats

__all__ = ["into", "lengths", "served", "without"]

_RUN = 1 << 15  # numbers of a run: so many are not cut further for threads
_CODES = {np.dtype(np.float32): "f", np.dtype(np.float64): "d"}


def served(*arrays: Any) -> bool:
    """Whether the compiled loops read these: NumPy's, number after number, of one type."""
    first = arrays[0]
    if compiled.loops is None or not isinstance(first, np.ndarray) or first.dtype not in _CODES:
        return False
    return all(each.flags.c_contiguous and each.dtype == first.dtype for each in arrays)


def into(rows: Any, g: Any, many: int) -> tuple[Floats, float]:
    """Their products with a vector (p,), (q,), and the square of its length.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
        Of the same type, one number after the other.
    many : int
        Threads.
    """
    loops: Any = compiled.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Any) -> linalg.Sums:
        said = np.empty(len(rows))
        square = loops.into(code, *shape, *_ends(runs), rows, g, said)
        return said, square

    return linalg.summed(work, _runs(rows), many)


def without(
    rows: Any, g: Any, c: Any, d: Any, many: int, rest: Any = None
) -> tuple[Any, Any, Floats, float]:
    """Rest = g + c rows, lifted = rest + d rows, rows rest, and the square of the rest's length.

    Parameters
    ----------
    rows : ndarray of shape (q, p)
    g : ndarray of shape (p,)
    c, d : ndarrays of shape (q,)
        Of the same type; without d, ``lifted`` is the rest itself.
    many : int
        Threads.
    rest : ndarray of shape (p,), optional
        Where to write it, g itself: then its products are not asked for, and are zero.
    """
    loops: Any = compiled.loops
    code, shape = _CODES[rows.dtype], rows.shape
    asked = rest is None
    c, d = np.ascontiguousarray(c), None if d is None else np.ascontiguousarray(d)
    rest = np.empty_like(g) if asked else rest
    lifted = None if d is None else np.empty_like(g)

    def work(runs: Any) -> linalg.Sums:
        said = np.zeros(len(rows))
        given = (rows, g, c, d, rest, lifted, said if asked else None)
        square = loops.without(code, *shape, *_ends(runs), *given)
        return said, square

    again, square = linalg.summed(work, _runs(rows), many)
    return rest, rest if lifted is None else lifted, again, square


def lengths(rows: Any, many: int) -> Floats:
    """Their lengths, squared, (q,)."""
    loops: Any = compiled.loops
    code, shape = _CODES[rows.dtype], rows.shape

    def work(runs: Any) -> linalg.Sums:
        said = np.empty(len(rows))
        loops.lengths(code, *shape, *_ends(runs), rows, said)
        return (said,)

    (said,) = linalg.summed(work, _runs(rows), many)
    squares: Floats = said
    return squares


def _runs(rows: Any) -> list[slice]:
    p = rows.shape[1]
    return [slice(i, min(i + _RUN, p)) for i in range(0, max(p, 1), _RUN)]


def _ends(runs: Any) -> tuple[int, int]:
    return runs[0].start, runs[-1].stop
