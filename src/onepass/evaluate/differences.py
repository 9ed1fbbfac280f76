"""Differences between two trees of settings, said so that a reader finds the one to change."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from onepass.serialization.codec import MARK

__all__ = ["differences"]

_LONGEST = 60  # letters of a value that is shown


def differences(then: Any, now: Any) -> list[str]:
    """In which ways settings are not those that they were.

    Parameters
    ----------
    then, now : dict, list, plain value or array
        Trees of settings; objects in them as :mod:`onepass.serialization.codec` tells them.

    Returns
    -------
    differences : list of str
        A phrase each; empty where they are equal.

    Examples
    --------
    >>> differences({"window": 100, "metrics": ["mae"]}, {"window": 200, "metrics": ["mae"]})
    ['window was 100 and is 200']
    >>> len(differences({"ridge": np.eye(2)}, {"ridge": np.eye(2)}))
    0
    """
    return list(_differences(then, now, ()))


def _differences(then: Any, now: Any, path: tuple[str, ...]) -> Iterator[str]:
    if type(then) is dict and type(now) is dict and then.get(MARK) == now.get(MARK):
        # a step of a pipeline has a number for a name: its class says more
        named = MARK in then and path and path[-1].isdigit()
        inner = (*path[:-1], str(then[MARK])) if named else path
        for name in _names(then, now):
            if name not in now:
                yield f"{_said((*inner, name))} was {_shown(then[name])} and is gone"
            elif name not in then:
                yield f"{_said((*inner, name))} is new: {_shown(now[name])}"
            else:
                yield from _differences(then[name], now[name], (*inner, name))
    elif type(then) in {list, tuple} and type(now) is type(then) and len(then) == len(now):
        if any(type(part) is dict for part in then):
            for i, (a, b) in enumerate(zip(then, now, strict=True)):
                yield from _differences(a, b, (*path, str(i)))
        elif not _equal(then, now):
            yield f"{_said(path)} was {_shown(then)} and is {_shown(now)}"
    elif not _equal(then, now):
        yield f"{_said(path)} was {_shown(then)} and is {_shown(now)}"


def _names(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The settings to compare; ``missing`` is left out if it was "error"."""
    names = [*then, *(name for name in now if name not in then)]
    return [name for name in names if name != "missing" or then.get(name) != "error"]


def _equal(then: Any, now: Any) -> bool:
    if isinstance(then, np.ndarray) or isinstance(now, np.ndarray):
        return np.array_equal(np.asarray(then), np.asarray(now))
    if type(then) in {list, tuple} and type(now) is type(then) and len(then) == len(now):
        return all(_equal(a, b) for a, b in zip(then, now, strict=True))
    nan = then != then and now != now  # noqa: PLR0124  only nan is not itself
    return bool(nan or (then == now and isinstance(then, bool) == isinstance(now, bool)))


def _said(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the whole"


def _shown(value: Any) -> str:
    if type(value) is dict and MARK in value:
        return str(value[MARK])
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
