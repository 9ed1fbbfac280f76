"""Named data sets: which there are, their rows, their images, and how they are fetched."""

import os
from pathlib import Path

from onepass.errors import SourceError
from onepass.stream import catalogue
from onepass.stream.choice import Choice
from onepass.stream.entry import Description
from onepass.stream.openml import Progress
from onepass.stream.pictures import Images, Pictures
from onepass.stream.stream import Stream

__all__ = ["dataset", "datasets", "fetch", "folder", "images"]

Cache = str | os.PathLike[str] | None


def _silent(step: str, fraction: float | None) -> None:
    """Nobody listens."""


def datasets(*, cache: Cache = None) -> list[Description]:
    """All named data sets, in words.

    Parameters
    ----------
    cache : path, optional
        The cache to look in.

    Examples
    --------
    >>> from onepass.stream import datasets
    >>> {one.name: one.rows for one in datasets()}["flights"]
    336776
    """
    return [entry.described(cache) for entry in catalogue.ENTRIES.values()]


def dataset(name: str, *, block: int | None = None, cache: Cache = None) -> Stream:
    """A named data set as a stream, its target and time chosen as is usual for it.

    It is looked for in the package, in the folder that the environment variable ``ONEPASS_DATA``
    names, in the cache, and where a system package puts it; then it is fetched, if it can be. Its
    content is checked before the first row is given.

    Parameters
    ----------
    name : str
        One of the names in :func:`datasets`.
    block : int, optional
        Rows a block, at least 1; as :func:`read` has it by default.
    cache : path, optional
        The cache; by default ``ONEPASS_CACHE``, or the platform's own folder for caches.

    Raises
    ------
    ParameterError
        If ``block`` is not a whole number >= 1.
    SourceError
        If there is none by that name, or it is neither found nor fetched, or not what it should be.
    MissingExtraError
        If it is a file for which pyarrow is needed: ``pip install 'onepass[files]'``.

    Examples
    --------
    >>> from onepass.stream import dataset
    >>> rows = next(iter(dataset("flights", block=4)))
    >>> rows.X["carrier"].tolist(), rows.y.sum()
    (['UA', 'UA', 'AA', 'B6'], np.float64(46.0))
    """
    entry = catalogue.entry(name)
    source = catalogue.opened(name, cache)
    choice = Choice(entry.target, entry.time, entry.drop, None, f"op.stream.dataset: {name}")
    return Stream(source, choice, block=block, types={}, n_rows=entry.rows, task=entry.task)


def images(name: str, *, cache: Cache = None) -> Images:
    """The images of a named data set, to learn and to test, found or fetched, and checked.

    Parameters
    ----------
    name : str
        ``"mnist"`` or ``"fashion-mnist"``.
    cache : path, optional
        The cache; by default ``ONEPASS_CACHE``, or the platform's own folder for caches.

    Returns
    -------
    Images
        uint8 arrays: images of shape (n, 28, 28) and labels of shape (n,).

    Raises
    ------
    SourceError
        If there are no images by that name, or they are neither found nor fetched, or not what
        they should be.
    """
    entry = catalogue.entry(name, "op.stream.images")
    if not isinstance(entry.content, Pictures):
        sets = [e.name for e in catalogue.ENTRIES.values() if isinstance(e.content, Pictures)]
        raise SourceError(
            f"op.stream.images: `name` must be one of {', '.join(sets)}, got {name!r}, which is a "
            f"table. Use op.stream.dataset({name!r})."
        )
    return entry.content.read(entry.got(cache, _silent, "op.stream.images"))


def fetch(name: str, *, cache: Cache = None, progress: Progress | None = None) -> Path:
    """Get a named data set, unless it is there already.

    Parameters
    ----------
    name : str
        One of the names in :func:`datasets`.
    cache : path, optional
        The cache to fetch into; by default ``ONEPASS_CACHE``, or the platform's own.
    progress : callable, optional
        Called as ``progress(step, fraction)`` when a step begins: its name, and how much of all
        is done, in [0, 1], or None if unknown.

    Returns
    -------
    Path
        The folder in which its files lie.

    Raises
    ------
    SourceError
        If there is none by that name, or it cannot be fetched, or is not what it should be.
    """
    entry = catalogue.entry(name, "op.stream.fetch")
    return entry.got(cache, progress or _silent, "op.stream.fetch")[0].parent


def folder(name: str, *, cache: Cache = None) -> Path:
    """The folder in which a named data set lies; nothing is fetched.

    Parameters
    ----------
    name : str
        One of the names in :func:`datasets`.
    cache : path, optional
        The cache to look in.

    Raises
    ------
    SourceError
        If there is none by that name, or it is not here.
    """
    described = catalogue.entry(name, "op.stream.folder").described(cache)
    if not described.found:
        raise SourceError(
            f"op.stream.folder: {name} must lie in {described.place.parent}, or wherever "
            f"ONEPASS_DATA says, got nothing there. {described.how}."
        )
    return described.place.parent
