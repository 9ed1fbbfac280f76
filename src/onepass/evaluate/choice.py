"""Check of an argument that must be one of several names."""

from __future__ import annotations

from collections.abc import Collection

from onepass.errors import ParameterError, did_you_mean


def check_choice(value: object, known: Collection[str], what: str) -> None:
    """Raise an error with the names, and similar ones, if a value is not among them.

    Parameters
    ----------
    value : object
    known : collection of str
    what : str
        The argument, in backquotes.

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> check_choice("mae", ["mae", "rmse"], "`metric`")
    """
    if value not in known:
        hint = did_you_mean(str(value), known).strip()
        raise ParameterError(
            f"{what} must be one of {', '.join(known)}",
            got=repr(value),
            remedy=hint or "Choose one of these.",
        )
