"""Spelling: what a user may have meant by a name that nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["meant"]


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
