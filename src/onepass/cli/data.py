"""``data``: list, fetch and locate the named data sets."""

from cyclopts import CycloptsError

from onepass.cli.terminal import print_message, show


def list_datasets() -> None:
    """List the named data sets, and whether they are stored locally."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from onepass.stream import datasets

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "rows", "task", "target", "local", "licence", "description"):
        table.add_column(heading, justify="right" if heading == "rows" else "left")
    for each in datasets():
        target = each.target if isinstance(each.target, str) else ", ".join(each.target or ())
        local = "yes" if each.found else "no"
        cells = (each.name, f"{each.rows:,}", each.task, target, local, each.licence, each.title)
        table.add_row(*map(escape, cells))
    show(table)


def fetch(name: str, /) -> None:
    """Download a data set, unless it is stored locally, and print its folder.

    Parameters
    ----------
    name
        A name from "onepass data list".
    """
    from onepass.stream import fetch as fetched

    _check_name(name)
    show(str(fetched(name, progress=lambda step, _: print_message(step))))


def path(name: str, /) -> None:
    """Print the folder of a data set without downloading it.

    Parameters
    ----------
    name
        A name from "onepass data list".
    """
    from onepass.stream import folder

    _check_name(name)
    show(str(folder(name)))


def _check_name(name: str) -> None:
    """Check the name of a data set."""
    from onepass.errors import did_you_mean
    from onepass.stream import datasets

    names = [each.name for each in datasets()]
    if name not in names:
        raise CycloptsError(
            msg=f"data: the name must be one of {', '.join(names)}, got {name!r}. "
            f"Pass paths of your own files to onepass run.{did_you_mean(name, names)}"
        )
