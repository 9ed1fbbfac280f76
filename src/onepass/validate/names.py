"""Names out of those that are known."""

from collections.abc import Iterable, Sequence

from onepass.errors import ParameterError
from onepass.spelling import meant

__all__ = ["some_of"]


def some_of(given: Iterable[str] | None, known: Sequence[str], name: str, where: str) -> list[str]:
    """Those of the known names that are wanted, in their order; all, if None is given.

    Raises
    ------
    ParameterError
        If one is unknown, or none is given.
    """
    wanted = list(known) if given is None else list(given)
    strange = [each for each in wanted if each not in known]
    if strange or not wanted:
        raise ParameterError(
            f"{where}: `{name}` must be of {', '.join(known)}, got "
            f"{strange[0] if strange else 'none'!r}.{meant(strange[0], known) if strange else ''} "
            "Give some of these names."
        )
    return [each for each in known if each in wanted]
