"""Likeness: whether two things that learned can be made one, and whose column is whose."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import Array, MergeError

__all__ = ["Places", "alike", "hold_alike", "places"]


class Places(NamedTuple):
    """Where the columns of one belong among those of both."""

    at: Array
    """The place of each of the other's columns, (d′,); no two are the same."""
    d: int
    """The columns of both together; those that only the other knows come last."""
    names: list[str] | None
    """The names of all, where they have names."""


def alike(one: Any, two: Any) -> bool:
    """Whether two parameters are the same, arrays among them.

    Examples
    --------
    >>> alike(np.eye(2), [[1, 0], [0, 1]]), sum([alike(0.1, 0.2)])
    (True, 0)
    """
    if one is two:
        return True
    several = (np.ndarray, list, tuple)
    if isinstance(one, several) or isinstance(two, several):
        try:
            return bool(np.array_equal(one, two))
        except (TypeError, ValueError):
            return False
    return bool(one == two)


def hold_alike(one: Any, two: Any, names: Sequence[str], where: str) -> None:
    """Refuse two that are not of one class, or differ in a parameter.

    Parameters
    ----------
    one, two : learner, feature or Pipeline
    names : sequence of str
        The parameters that must be the same.
    where : str
        The public call, for messages.

    Raises
    ------
    MergeError
        Naming the difference.
    """
    if type(one) is not type(two):
        raise MergeError(
            f"{where}: `other` must be of the same class, {type(one).__name__}, got "
            f"{type(two).__name__}. Merge what was learned by one class with the same parameters."
        )
    apart = getattr(one, "outside", {})  # compared by what they are, where that was learned
    for name in names:
        if name in apart:
            continue
        mine, came = getattr(one, name), getattr(two, name)
        if not alike(mine, came):
            raise MergeError(
                f"{where}: `{name}` of {type(one).__name__} must be the same in both, {mine!r} as "
                f"in the first, got {came!r}. Learn all parts with the same parameters."
            )


def places(one: Any, other: Any, where: str) -> Places:
    """Where the columns of one belong among those of both: by their names, or in their order.

    Parameters
    ----------
    one, other : learner or feature
        The other has ``n_features_in_``, and ``feature_names_in_`` where they have names.
    where : str
        The public call, for messages.

    Raises
    ------
    MergeError
        If they have no names, and are not as many.
    """
    known, coming = (getattr(each, "feature_names_in_", None) for each in (one, other))
    begun = hasattr(one, "n_features_in_")
    if coming is not None and (known is not None or not begun):
        at = {name: j for j, name in enumerate([] if known is None else known)}
        for name in coming:
            at.setdefault(name, len(at))
        return Places(np.array([at[name] for name in coming], dtype=np.intp), len(at), list(at))
    d = int(other.n_features_in_)
    if begun and d != one.n_features_in_:
        raise MergeError(
            f"{where}: both must have {one.n_features_in_} features, as the first has, got {d}. "
            "Learn from frames or dicts to have features found by name, or grow the smaller one."
        )
    return Places(np.arange(d), d, None if known is None else list(known))
