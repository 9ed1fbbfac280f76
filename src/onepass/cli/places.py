"""Places: where a command may write."""

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["model_first", "spare"]


def model_first(model: Path) -> None:
    """Refuse a table where a model must stand: the two were given the wrong way round.

    Parameters
    ----------
    model : Path
        The first argument.

    Raises
    ------
    ParameterError
        If its suffix is a table's.
    """
    from onepass.errors import ParameterError
    from onepass.stream.formats import format_of

    if format_of(model.name) is not None:
        raise ParameterError(
            f"predict: the model comes first, a file that onepass run --save wrote, got {model}. "
            "Give the model, then the source: onepass predict m.onepass new.csv."
        )


def spare(read: Iterable[str | Path], written: Iterable[Path], option: str) -> None:
    """Refuse to write over a file that is to be read, or among those, before anything is.

    Parameters
    ----------
    read : iterable of str or Path
        Sources: files, folders, patterns; a name of something else is passed over.
    written : iterable of Path
        Where the command would write.
    option : str
        The command and the option that says where, for the message.

    Raises
    ------
    ParameterError
        If a place is one of the files that are read, by whatever name, or in a folder of them.
    """
    from onepass.errors import ParameterError

    sources = [str(source) for source in read]
    there = {(s.st_dev, s.st_ino): name for name in _files(sources) if (s := _status(name))}
    folders = [Path(source) for source in sources if Path(source).is_dir()]
    for place in written:
        found = _status(place)
        source = there.get((found.st_dev, found.st_ino)) if found else None
        if source is not None:
            raise ParameterError(
                f"{option} must name another file than those that are read, got {place}, which "
                f"is {source}. It would be lost; name another."
            )
        folder = next((folder for folder in folders if _is_within(place, folder)), None)
        if folder is not None:
            raise ParameterError(
                f"{option} must name a place outside the folder that is read, got {place} in "
                f"{folder}. It would be taken for one of its files the next time; name another."
            )


def _files(sources: Iterable[str]) -> Iterator[str]:
    """The files that sources may mean."""
    for source in sources:
        if Path(source).is_dir():
            within = (Path(at, name) for at, _, names in os.walk(source) for name in names)
            yield from (str(file) for file in within if _is_seen(file.relative_to(source)))
        elif Path(source).exists():
            yield source
        else:
            yield from glob.glob(source, recursive=True)  # noqa: PTH207  any depth


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  it may be many files
    except OSError:
        return None


def _is_within(place: Path, folder: Path) -> bool:
    """Whether a folder that is read would be read with this file."""
    at, inside = place.resolve(), folder.resolve()
    return at.is_relative_to(inside) and _is_seen(at.relative_to(inside))


def _is_seen(inner: Path) -> bool:
    """Whether a file of a folder is read with it, by its path there."""
    return not any(name.startswith((".", "_")) for name in inner.parts)
