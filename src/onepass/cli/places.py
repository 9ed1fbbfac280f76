"""Places: where a command may write."""

from collections.abc import Iterable
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
    """Refuse to write over a file that is to be read, before anything is.

    Parameters
    ----------
    read : iterable of str or Path
        Sources; a name of something else than a file is passed over.
    written : iterable of Path
        Where the command would write.
    option : str
        The command and the option that says where, for the message.

    Raises
    ------
    ParameterError
        If a place is one of the sources, by whatever name.
    """
    from onepass.errors import ParameterError

    sources = [path for path in read if Path(path).exists()]
    for place in written:
        for source in sources:
            if place.exists() and place.samefile(source):
                raise ParameterError(
                    f"{option} must name another file than those that are read, got {place}, which "
                    f"is {source}. It would be lost; name another."
                )
