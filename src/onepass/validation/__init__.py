"""Validation of arguments, once, at the public call, which is named in errors there.

Each function returns a validated value. Arrays are float, finite and of the right shape.
"""

from onepass.validation.arrays import (
    check_subset,
    class_names,
    in_range,
    is_matrix,
    is_number,
    is_small_table,
    label_names,
    labels,
    matrix,
    range_words,
    row_vector,
    single_element,
    single_row,
    targets,
    torch_compatible,
    weights,
    whole,
)
from onepass.validation.frames import series_array
from onepass.validation.times import (
    as_dates,
    as_numbers,
    aware,
    duration,
    elapsed,
    per_second,
    seconds,
    time_like,
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
    "is_number",
    "is_small_table",
    "label_names",
    "labels",
    "matrix",
    "per_second",
    "range_words",
    "row_vector",
    "seconds",
    "series_array",
    "single_element",
    "single_row",
    "targets",
    "time_like",
    "times",
    "torch_compatible",
    "weights",
    "whole",
]
