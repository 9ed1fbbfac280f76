"""Names out of those that are known."""

from collections.abc import Iterable, Sequence
from typing import Any

from onepass.errors import ParameterError, meant

__all__ = ["some_of"]


def some_of(given: Iterable[str] | None, known: Sequence[str], name: str, where: str) -> list[str]:
    """Those of the known names that are wanted, in their order; all, if None is given.

    Raises
    ------
    ParameterError
        If one is unknown, or none is given.
    """
    if given is None:
        return list(known)
    wanted: list[Any] = [] if isinstance(given, str) else list(given)
    strange = [each for each in wanted if each not in known]
    if strange or not wanted:
        came = strange[0] if strange else given
        hint = meant(came, known) if isinstance(came, str) else ""
        raise ParameterError(
            f"{where}: `{name}` must be a list of some of {', '.join(known)}, got {came!r}.{hint} "
            "Give a list of these names."
        )
    return [each for each in known if each in wanted]
