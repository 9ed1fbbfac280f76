"""What comes in is checked here, once, and said in four parts when it is refused.

Each function takes ``where``, the public call that the message should name,
and returns arrays that the learners may trust: float, finite, of the right shape.
"""

from onepass.validate.arrays import is_matrix, matrix, native, row_vector, targets, weights
from onepass.validate.labels import class_names, labels
from onepass.validate.names import some_of
from onepass.validate.ranges import in_range, whole
from onepass.validate.times import (
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
    "some_of",
    "targets",
    "times",
    "weights",
    "whole",
]
