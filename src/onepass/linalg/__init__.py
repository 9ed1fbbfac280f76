"""Linear algebra for NumPy arrays and PyTorch tensors; the only module that depends on both.

The algorithms use ``@``, ``.T`` and slices, and the functions of this package. An array is *long*
if one of its sides is the number of weights: a NumPy array or a PyTorch tensor of any precision, on
any device. An array is *small* if its sides are rows, outputs or directions. Small arrays are
float64 NumPy arrays; for tensors on an accelerator they are float64 tensors on that device.
"""

from onepass.linalg.backend import (
    all_to_numpy,
    as_array,
    blank,
    finite,
    host,
    is_tensor,
    kind,
    like,
    numpy_view,
    on_device,
    small,
    wide,
    widened,
)
from onepass.linalg.centering import Centering
from onepass.linalg.factorizations import (
    cholesky,
    cholesky_update,
    eigh,
    lower_from_rows,
    ordered_cholesky,
    qr_update,
    solve_lower,
    solve_lower_transposed,
    solve_upper,
    solve_upper_transposed,
    svd,
    svd_both,
    whitened,
)
from onepass.linalg.secular import bordered_svd
from onepass.linalg.split import count_weights, is_split, split_over, summed
from onepass.linalg.threads import (
    Sums,
    blas_threads,
    one_thread,
    one_thread_for_tensors,
    single_threaded,
    sum_in_threads,
    thread_count,
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
    rows_are_finite,
    solve_lower_right,
    times,
)
from onepass.serialization.codec import Role, register

__all__ = [
    "Sums",
    "add",
    "all_to_numpy",
    "as_array",
    "blank",
    "blas_threads",
    "blur",
    "bordered_svd",
    "cholesky",
    "cholesky_update",
    "count_weights",
    "eigh",
    "finite",
    "host",
    "inner",
    "is_split",
    "is_tensor",
    "kind",
    "largest",
    "length",
    "like",
    "lower_from_rows",
    "magnitude",
    "moved",
    "norms",
    "numpy_view",
    "on_device",
    "one_thread",
    "one_thread_for_tensors",
    "ordered_cholesky",
    "orthonormal",
    "present",
    "principal",
    "qr_update",
    "resolution",
    "rounding",
    "rows_are_finite",
    "single_threaded",
    "small",
    "solve_lower",
    "solve_lower_right",
    "solve_lower_transposed",
    "solve_upper",
    "solve_upper_transposed",
    "split_over",
    "sum_in_threads",
    "summed",
    "svd",
    "svd_both",
    "thread_count",
    "times",
    "whitened",
    "wide",
    "widened",
]

register(Role.STATISTIC, Centering)
