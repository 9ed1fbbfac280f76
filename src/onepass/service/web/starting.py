"""Starting: the service put together out of its parts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onepass.errors import ParameterError, need
from onepass.service.shelf import Shelf
from onepass.service.sources import Source, source
from onepass.service.web.logs import logged

__all__ = ["fed", "read", "shelved", "started"]

_WHERE = "onepass serve"


def shelved(folder: Path, **options: Any) -> Shelf:
    """The learners of a folder, open.

    Parameters
    ----------
    folder : Path
    **options
        As :class:`~onepass.service.shelf.Shelf` takes them.

    Raises
    ------
    StoreError, ParameterError
        As opening them does.
    """
    for package in ("msgspec", "uvicorn", "httptools"):
        need(package, extra="serve", where=_WHERE)
    shelf = Shelf(folder, _WHERE, **options)
    shelf.open_all()
    return shelf


def read(sources: Iterable[str]) -> list[tuple[str, Source]]:
    """Sources by their addresses, none of which is asked yet; with the name of a learner, or none.

    Parameters
    ----------
    sources : iterable of str
        Addresses, as :func:`onepass.service.sources.source` takes them; before each the name of its
        learner and ``=``, unless there is one alone.

    Raises
    ------
    ParameterError
        If there is no such source.
    MissingExtraError
        If the package of a source is not installed.
    """
    found = []
    for said in sources:
        name, equals, address = said.partition("=")
        if "://" in name or not equals:
            name, address = "", said
        found.append((name, source(address)))
    return found


def fed(shelf: Shelf, sources: Iterable[tuple[str, Source]]) -> None:
    """Have learners learn what sources bring.

    Parameters
    ----------
    shelf : Shelf
    sources : iterable of tuple[str, Source]
        As ``read`` gives them.

    Raises
    ------
    ParameterError
        If there is no such learner, or the two do not fit.
    """
    for name, each in sources:
        names = shelf.names
        if name not in names and (name or len(names) != 1):
            raise ParameterError(
                f"{_WHERE}: --source must be NAME=ADDRESS, of a learner that is served, or an "
                f"address where there is one alone; there are {', '.join(names) or 'none'}, got "
                f"{name[:100] or 'no name'}. Name one of them."
            )
        shelf.feed(name or names[0], each, logged)


def started(
    shelf: Shelf,
    *,
    tokens: Any,
    most_bytes: int,
    most_rows: int,
    first: str | None,
    patience: float = 60.0,
) -> Any:
    """The application.

    Parameters
    ----------
    shelf : Shelf
    tokens : Tokens
    most_bytes, most_rows : int
        Of one request.
    first : str, optional
        The learner that answers ``/invocations``.
    patience : float, default 60
        Seconds within which rows must be on the disk.
    """
    from onepass.service.protocol.limits import Limits  # noqa: PLC0415  the same
    from onepass.service.web.app import Application  # noqa: PLC0415  not without the extra

    return Application(
        shelf,
        tokens=tokens,
        limits=Limits(nbytes=most_bytes, rows=most_rows),
        first=first,
        patience=patience,
    )
