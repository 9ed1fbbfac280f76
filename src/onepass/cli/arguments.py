"""Arguments: how what stands on a command line becomes the library's values."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

__all__ = ["Names", "Quiet", "Settings", "Source", "Types", "pairs", "values"]


def _split(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """``a,b`` and ``a`` ``b`` alike."""
    return tuple(name for token in tokens for name in token.value.split(",") if name)


def _equated(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Pairs such as ``a=1``, each of them whole."""
    for token in tokens:
        name, equals, _value = token.value.partition("=")
        if not name or not equals:
            raise ValueError(f"it must be NAME=VALUE, got {token.value!r}.")
    return tuple(token.value for token in tokens)


Names: TypeAlias = Annotated[tuple[str, ...], Parameter(converter=_split, metavar="A,B")]
"""Names with commas between them, or the option more than once."""

Source: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A path, a name, or ``-`` for standard input."""

Quiet: TypeAlias = Annotated[bool, Parameter(alias="-q")]
"""A switch."""

Settings: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--set", converter=_equated, metavar="PART.PARAMETER=VALUE"),
]
"""``PART.PARAMETER=VALUE``, once or more than once."""

Types: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(name="--type", converter=_equated, metavar="COLUMN=KIND"),
]
"""``COLUMN=KIND``, once or more than once."""


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Pairs ``NAME=VALUE`` as a dict.

    Parameters
    ----------
    given : sequence of str
        Of the form ``NAME=VALUE``; the last of a name counts.

    Examples
    --------
    >>> len(pairs(["code=text", "at=date"]))
    2
    """
    return dict(pair.split("=", 1) for pair in given)


def values(given: Sequence[str]) -> dict[str, Any]:
    """Pairs ``NAME=VALUE`` as a dict of values: numbers, lists, true, false, null, or else text.

    Parameters
    ----------
    given : sequence of str
        Of the form ``NAME=VALUE``; the last of a name counts.

    Examples
    --------
    >>> values(["rls.forgetting=0.99", "sgd.step=constant", "orfit.memory=none"])
    {'rls.forgetting': 0.99, 'sgd.step': 'constant', 'orfit.memory': None}
    >>> 1 + values(["orfit.memory=9"])["orfit.memory"]
    10
    """
    return {name: _value(text) for name, text in pairs(given).items()}


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
