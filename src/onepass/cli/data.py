"""Data: the named data sets."""

from cyclopts import CycloptsError

from onepass.cli.terminal import print_message, show

__all__ = ["fetch", "listed", "path"]


def listed() -> None:
    """List all data sets, and whether they are here."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from onepass.stream import datasets

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "rows", "task", "target", "here", "licence", "what it is"):
        table.add_column(heading, justify="right" if heading == "rows" else "left")
    for one in datasets():
        target = one.target if isinstance(one.target, str) else ", ".join(one.target or ())
        here = "yes" if one.found else "no"
        cells = (one.name, f"{one.rows:,}", one.task, target, here, one.licence, one.title)
        table.add_row(*map(escape, cells))
    show(table)


def fetch(name: str, /) -> None:
    """Get a data set, unless it is here, and say where it lies.

    Parameters
    ----------
    name
        As in "onepass data list".
    """
    from onepass.stream import fetch as fetched

    _hold(name)
    show(str(fetched(name, progress=lambda step, _: print_message(step))))


def path(name: str, /) -> None:
    """Say in which folder a data set lies; nothing is fetched.

    Parameters
    ----------
    name
        As in "onepass data list".
    """
    from onepass.stream import folder

    _hold(name)
    show(str(folder(name)))


def _hold(name: str) -> None:
    """Refuse what is no data set's name."""
    from onepass.errors import did_you_mean
    from onepass.stream import datasets

    names = [one.name for one in datasets()]
    if name not in names:
        raise CycloptsError(
            msg=f"data: the name must be one of {', '.join(names)}, got {name!r}. "
            f"Files of your own need no name.{did_you_mean(name, names)}"
        )
