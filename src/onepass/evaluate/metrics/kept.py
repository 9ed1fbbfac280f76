"""State of a metric as plain values and arrays, and the metric restored from it, bit by bit.

Attributes of metrics are plain values, arrays, numpy numbers, ``Total`` and ``Counter``.
"""

from collections import Counter
from typing import Any

import numpy as np

from onepass.errors import CheckpointError
from onepass.evaluate.metrics.metric import Metric, Total
from onepass.serialization.archive import damaged

__all__ = ["heard", "said"]

_PLAIN = (type(None), bool, int, float, str, np.ndarray)


def said(metric: Metric) -> dict[str, Any]:
    """A metric's attributes as a tree that a file can hold.

    Parameters
    ----------
    metric : Metric
        It is not changed.

    Raises
    ------
    CheckpointError
        If an attribute is of another kind.

    Examples
    --------
    >>> from onepass.evaluate.metrics import RMSE
    >>> metric = RMSE().add([1.0, 2.0], [1.0, 4.0])
    >>> heard(RMSE, said(metric), "m.run").value - metric.value
    0.0
    """
    return {name: _told(value, type(metric), name) for name, value in vars(metric).items()}


def heard(kind: type[Metric], tree: object, place: str) -> Metric:
    """The metric that ``said`` took apart.

    Parameters
    ----------
    kind : type
        Its class.
    tree : dict
        From whatever source.
    place : str
        Where it was read, for messages.

    Raises
    ------
    CheckpointError
        If this is not what ``said`` gives of a metric of this class.
    """
    try:
        return _heard(kind, tree)
    except (TypeError, ValueError) as wrong:
        raise damaged(place, f"it holds no {kind.__name__}") from wrong


def _heard(kind: type[Metric], tree: object) -> Metric:
    metric = kind()
    fresh = vars(metric)
    if type(tree) is not dict or tree.keys() != fresh.keys():
        raise ValueError(kind.__name__)
    for name, value in tree.items():
        found = _value(value)
        if isinstance(fresh[name], (int, Total, Counter)) and type(found) is not type(fresh[name]):
            raise ValueError(name)
        setattr(metric, name, found)
    if metric.rows < 0:
        raise ValueError("rows")
    return metric


def _told(value: object, kind: type[Metric], name: str) -> object:
    if isinstance(value, np.generic):
        return {"number": np.asarray(value)}
    if type(value) is Total:
        return {"total": [_told(part, kind, name) for part in value.parts]}
    if type(value) is Counter:
        return {"counts": [[_plain(label), count] for label, count in value.items()]}
    if type(value) in _PLAIN:
        return value
    raise CheckpointError(
        f"op.evaluate.prequential: a metric that is kept in a checkpoint must be made of numbers, "
        f"arrays, Totals and Counters, got a {type(value).__name__} as `{name}` of "
        f"{kind.__name__}. Rewrite the metric, or run without a checkpoint."
    )


def _plain(label: object) -> object:
    return label.item() if isinstance(label, np.generic) else label


def _value(told: object) -> Any:
    """Any part of a metric."""
    if type(told) is not dict:
        if type(told) not in _PLAIN:
            raise ValueError(told)
        return told
    ((key, part),) = told.items()
    if key == "number":
        return np.asarray(part).reshape(())[()]
    if key == "total":
        return Total.of(*map(_value, part))
    if key == "counts":
        if not all(type(count) is int for _, count in part):
            raise ValueError(key)
        return Counter(dict(part))
    raise ValueError(key)
