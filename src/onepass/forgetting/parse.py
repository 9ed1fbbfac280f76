"""Parsing of forgetting rules given as a number or as text, as on the command line.

The lower-case name of a rule, a colon, and its arguments, separated by commas::

    auto    0.99    exponential:0.99    bounded:half_life=1h,floor=2    directional:0.98
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, cast

from onepass import validation
from onepass.errors import ParameterError, did_you_mean
from onepass.forgetting.auto import Auto
from onepass.forgetting.directional import Directional
from onepass.forgetting.exponential import Bounded, Exponential
from onepass.forgetting.protocols import ForgettingRule
from onepass.forgetting.window import Window

RULES: tuple[type[ForgettingRule], ...] = (Auto, Bounded, Directional, Exponential, Window)
"""The rules that a learner, the command line and model files accept."""

_KINDS = {kind.__name__.lower(): kind for kind in RULES}


def rule(given: float | str | ForgettingRule) -> ForgettingRule:
    """Return the rule that a number, a text or a rule specifies.

    Parameters
    ----------
    given : float, str, or forgetting rule
        A number λ in (0, 1], also as text, is ``Bounded(λ)``.

    Raises
    ------
    ParameterError
        If ``given`` specifies no rule.

    Examples
    --------
    >>> rule(0.99)
    Bounded(factor=0.99, half_life=None, floor=0.1)
    >>> rule("window:100").rows
    100
    """
    if type(given) is float:
        return _bounded(given)
    if type(given) in RULES:
        return cast("ForgettingRule", given)
    if isinstance(given, str):
        number = _value(given.strip())
        if isinstance(number, (str, bool)):
            return _read(given)
        given = number
    if isinstance(given, bool) or not hasattr(given, "__float__"):
        raise ParameterError(
            "`forgetting` must be a number in (0, 1], 'auto' or a rule of op.forgetting, such as "
            f"Window(1000), got {given!r}. Pass one of {', '.join(_KINDS)}."
        )
    if given == 0:
        raise ParameterError(
            "`forgetting` must be a number in (0, 1], 'auto' or a rule of op.forgetting, got 0. "
            "The limit of least squares for forgetting 0 fits each row exactly and changes no "
            "earlier prediction: op.ORFitRegressor(memory=None)."
        )
    return _bounded(float(validation.in_range(given, "forgetting", above=0.0, high=1.0)))


@lru_cache(maxsize=16)  # called for every row; rules are frozen
def _bounded(given: float) -> Bounded:
    return Bounded(validation.in_range(given, "forgetting", above=0.0, high=1.0))


@lru_cache(maxsize=16)
def _read(text: str) -> ForgettingRule:
    name, _, rest = text.strip().partition(":")
    name = name.strip()
    if name.lower() not in _KINDS:
        rules = ", ".join(_KINDS)
        raise ParameterError(
            f"`forgetting` must be a number in (0, 1] or one of {rules}, with arguments "
            "after a colon, such as 'window:1000' or 'bounded:half_life=1h', got "
            f"{text!r}.{did_you_mean(name, _KINDS) or ' Choose one of these.'}"
        )
    kind = _KINDS[name.lower()]
    known = inspect.signature(kind).parameters
    first = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    arguments: dict[str, Any] = {}
    for i, part in enumerate(filter(None, (each.strip() for each in rest.split(",")))):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = first[i] if i < len(first) else "", part
        if key not in known or key in arguments:
            allowed = f"each of {', '.join(known)} at most once" if known else "no arguments"
            raise ParameterError(
                f"`forgetting` of {name.lower()} must have {allowed}, got "
                f"{part!r}.{did_you_mean(key, known) or ' Choose from these.'}"
            )
        arguments[key] = _value(value)
    try:
        return kind(**arguments)
    except ParameterError as error:
        inner = f"`forgetting` {text!r}: {error.where}: {error.text}"
        raise error.at(where="", text=inner) from error


def _value(text: str) -> Any:
    """Convert text to a number or bool if possible."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
