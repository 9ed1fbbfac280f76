"""What comes in is checked here, once, and said in four parts when it is refused.

Each function takes ``where``, the public call that the message should name,
and returns arrays that the learners may trust: float, finite, of the right shape.
"""

from onepass.validation.arrays import (
    check_subset,
    class_names,
    in_range,
    is_matrix,
    labels,
    matrix,
    native,
    row_vector,
    targets,
    weights,
    whole,
)
from onepass.validation.times import (
    as_dates,
    as_numbers,
    aware,
    duration,
    elapsed,
    per_second,
    seconds,
    times,
)

__all__ = [
    "as_dates",
    "as_numbers",
    "aware",
    "check_subset",
    "class_names",
    "duration",
    "elapsed",
    "in_range",
    "is_matrix",
    "labels",
    "matrix",
    "native",
    "per_second",
    "row_vector",
    "seconds",
    "targets",
    "times",
    "weights",
    "whole",
]
