"""Spelling: names in messages, and what a user may have meant by one that nobody knows."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

__all__ = ["listed", "meant", "unencodable"]


def meant(name: str, known: Iterable[str]) -> str:
    """The known names that look like this one, as the end of a message; ``""`` if none does.

    Parameters
    ----------
    name : str
        What came.
    known : iterable of str
        What was expected.

    Examples
    --------
    >>> meant("dep_dealy", ["arr_delay", "carrier", "dep_delay"])
    " Did you mean 'dep_delay'?"
    >>> len(meant("tailnum", ["arr_delay", "carrier"]))
    0
    """
    names = list(dict.fromkeys(known))
    small = {each.lower(): each for each in reversed(names)}
    close = [small[each] for each in get_close_matches(name.lower(), small, n=3, cutoff=0.66)]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in quotation marks, the first ones where they are many.

    Parameters
    ----------
    names : sequence of str
        What is there.
    most : int, default 8
        How many are shown.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def unencodable(texts: Iterable[str | None]) -> str | None:
    """The first text with a lone surrogate, which UTF-8 cannot encode; None if there is none.

    Parameters
    ----------
    texts : iterable of str or None

    Examples
    --------
    >>> print(unencodable(["a", None, "\U0001f697"]))
    None
    >>> len(unencodable(["a", "b" + chr(0xD83D)]))
    2
    """
    given = [text for text in texts if text]
    try:
        "".join(given).encode()
    except UnicodeEncodeError:
        return next(text for text in given if any("\ud800" <= c <= "\udfff" for c in text))
    return None
