"""Factorisations: the only seam between the algorithms and the library that computes.

Everything above writes ``@``, ``.T`` and slices, and calls these. An array is *long* where one of
its sides is the number of weights: it may be NumPy's or torch's, of any precision, on any device.
An array is *small* where its sides are rows, outputs or directions. Small ones are float64, and
NumPy's, but for those of tensors on a device that would have to be waited for: they stay there.
"""

from onepass.linalg.backend import (
    at_hand,
    blank,
    finite,
    host,
    is_tensor,
    kind,
    like,
    small,
    together,
    waits,
    wide,
    widened,
)
from onepass.linalg.centering import Centering
from onepass.linalg.factorizations import (
    cholesky,
    cholesky_in_order,
    eigh,
    lower_from_rows,
    solve_lower,
    solve_lower_transposed,
    solve_upper,
    solve_upper_transposed,
    svd,
    svd_both,
    take_in,
    take_in_calm,
    whitened,
)
from onepass.linalg.secular import svd_beside
from onepass.linalg.threads import (
    Sums,
    blas_threads,
    hands,
    one_thread,
    single_threaded,
    summed,
    tensors_alone,
)
from onepass.linalg.vectors import (
    add,
    blur,
    inner,
    largest,
    length,
    magnitude,
    moved,
    norms,
    orthonormal,
    present,
    principal,
    resolution,
    rounding,
    solve_lower_right,
    sound,
    times,
)
from onepass.serialization.codec import Role, register

__all__ = [
    "Sums",
    "add",
    "at_hand",
    "blank",
    "blas_threads",
    "blur",
    "cholesky",
    "cholesky_in_order",
    "eigh",
    "finite",
    "hands",
    "host",
    "inner",
    "is_tensor",
    "kind",
    "largest",
    "length",
    "like",
    "lower_from_rows",
    "magnitude",
    "moved",
    "norms",
    "one_thread",
    "orthonormal",
    "present",
    "principal",
    "resolution",
    "rounding",
    "single_threaded",
    "small",
    "solve_lower",
    "solve_lower_right",
    "solve_lower_transposed",
    "solve_upper",
    "solve_upper_transposed",
    "sound",
    "summed",
    "svd",
    "svd_beside",
    "svd_both",
    "take_in",
    "take_in_calm",
    "tensors_alone",
    "times",
    "together",
    "waits",
    "whitened",
    "wide",
    "widened",
]

register(Role.STATISTIC, Centering)
