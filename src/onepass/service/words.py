"""Words: keys, sources and positions, which are written down as they are, or sent."""

import re
from typing import Any

from onepass.errors import ParameterError

__all__ = ["hold_sendable", "hold_text"]

_LONGEST = 512  # characters
_HALVES = re.compile("[\ud800-\udfff]")


def hold_text(word: Any, name: str, where: str) -> None:
    """Refuse what is no text, empty, too long, or of halves of characters.

    Parameters
    ----------
    word : Any
    name : str
        Of the argument.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    came = type(word).__name__
    if isinstance(word, str):
        came = f"{len(word):,} characters"
        if 0 < len(word) <= _LONGEST and not _HALVES.search(word):
            return
    raise ParameterError(
        f"{where}: `{name}` must be text of 1 to {_LONGEST} characters, got {came}. Give another, "
        "such as str(uuid.uuid4())."
    )


def hold_sendable(word: Any, name: str, where: str) -> None:
    """Refuse what cannot stand in a header, such as the line of a file with its end.

    Parameters
    ----------
    word : Any
        It is not told: it may be secret.
    name : str
        Of the argument.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
    """
    good = isinstance(word, str) and word.isascii() and word.isprintable()
    if not good or not word or word != word.strip():
        came = "other text" if isinstance(word, str) else type(word).__name__
        raise ParameterError(
            f"{where}: `{name}` must be text of printable ASCII, without blanks at its ends, got "
            f"{came}. If it was read from a file, strip it."
        )
