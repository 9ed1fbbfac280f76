"""Refusal: what a model says of a block that it refuses, and where the row stands in its source."""

import re
from collections.abc import Callable

from onepass.errors import OnepassError

__all__ = ["placed", "refusal"]

_ROW = re.compile(r"\bin row (\d+)\b")


def refusal(
    error: OnepassError, place: str, located: Callable[[int], str] | None, n: int
) -> OnepassError:
    """The error once more, of the same class, with where the block and the row stand.

    A model counts the rows of the block that it was given; the source counts its own, and may be
    several files.

    Parameters
    ----------
    error : OnepassError
        As the model raised it.
    place : str
        What was called, and with which rows.
    located : callable, optional
        Says where a row of the block stands, by its place in the block, as ``Rows.located`` does.
    n : int
        Rows of the block.

    Examples
    --------
    >>> wrong = OnepassError("`X` holds nan in row 2. Drop the row.")
    >>> print(refusal(wrong, "here", "b.csv: row {}".format, 5))
    here: `X` holds nan in row 2. Drop the row. (Row 2 of the block is b.csv: row 2.)
    >>> len(str(refusal(OnepassError("no."), "here", None, 1)))
    9
    """
    return type(error)(f"{place}: {placed(error, located, n)}")


def placed(error: OnepassError, located: Callable[[int], str] | None, n: int) -> OnepassError:
    """The error once more, of the same class, with where the row stands that it names.

    Parameters
    ----------
    error, located, n
        As in ``refusal``.

    Examples
    --------
    >>> print(placed(OnepassError("got inf in row 2."), "b.csv: row {}".format, 3))
    got inf in row 2. (Row 2 of the block is b.csv: row 2.)
    >>> len(str(placed(OnepassError("got inf in row 2."), None, 3)))
    17
    """
    found = _ROW.search(str(error))
    if found is None or located is None or int(found[1]) >= n:
        return error
    return type(error)(f"{error} (Row {found[1]} of the block is {located(int(found[1]))}.)")
