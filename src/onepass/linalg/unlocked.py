"""BLAS and LAPACK calls that release the GIL, which the wrappers of SciPy hold."""

import ctypes
from functools import cache
from typing import Any

__all__ = ["LONG", "call"]

LONG = 1 << 22
"""Number of multiplications from which on a call should release the GIL."""


@cache
def _routine(name: str) -> Any:
    from scipy.linalg import cython_blas, cython_lapack  # noqa: PLC0415  for large matrices alone

    both = {**cython_blas.__pyx_capi__, **cython_lapack.__pyx_capi__}
    named, pointed = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointed.restype, pointed.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None)(pointed(both[name], named(both[name])))


def call(name: str, *arguments: Any) -> int:
    """Call a routine, and return the last of its arguments afterwards: ``info`` of LAPACK.

    Parameters
    ----------
    name : str
        Its name in ``scipy.linalg.cython_blas`` or ``cython_lapack``.
    *arguments : str, int, float or ndarray
        In the order of the Fortran routine. Arrays are float64 in Fortran order, and are changed
        in place.
    """
    last = ctypes.c_int()
    passed: list[Any] = []
    for each in arguments:
        if isinstance(each, str):
            passed.append(ctypes.c_char_p(each.encode()))
        elif isinstance(each, int):
            last = ctypes.c_int(each)
            passed.append(ctypes.byref(last))
        elif isinstance(each, float):
            passed.append(ctypes.byref(ctypes.c_double(each)))
        else:
            passed.append(ctypes.c_void_p(each.ctypes.data))
    _routine(name)(*passed)
    return last.value
