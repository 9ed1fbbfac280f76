"""Opened: a source by its address."""

from onepass.errors import ParameterError
from onepass.service.sources.redis import RedisStream
from onepass.service.sources.source import Source

__all__ = ["source"]

_KINDS: dict[str, type[RedisStream]] = {"redis": RedisStream, "rediss": RedisStream}


def source(url: str) -> Source:
    """A source by its address.

    Parameters
    ----------
    url : str
        Such as ``redis://localhost:6379/0?stream=flow&target=y``; :mod:`.redis` tells all of it.

    Raises
    ------
    ParameterError
        If there is no such kind of source, or the address is not one of it.
    MissingExtraError
        If its package is not installed.
    """
    scheme, there, _ = url.partition("://")
    kind = _KINDS.get(scheme.lower()) if there else None
    if kind is None:
        raise ParameterError(
            f"serve: --source: the address must begin with {':// or '.join(_KINDS)}://, "
            f"got {scheme[:20] if there else 'neither'!r}. Give such as "
            "redis://localhost:6379/0?stream=NAME&target=FIELD."
        )
    return kind(url)
