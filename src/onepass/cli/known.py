"""Known: which columns of a source a model learned, so that misnamed ones do not pass unseen."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from cyclopts import CycloptsError

from onepass.cli.terminal import remark

__all__ = ["compared"]


def compared(
    blocks: Iterable[Any], known: Iterable[str], keep: Iterable[str], *, quiet: bool
) -> Iterator[Any]:
    """The same blocks; with the first, a remark on columns that only one of the two has.

    Parameters
    ----------
    blocks : iterable of blocks
        Their features are a Table.
    known : iterable of str
        The columns that the model learned by name; where there are none, nothing is said.
    keep : iterable of str
        Columns that are there for another purpose, and must be.
    quiet : bool
        Remark on nothing.

    Raises
    ------
    CycloptsError
        If a column to keep is not there.
    """
    columns, left = list(known), iter(blocks)
    first = next(left, None)
    if first is None:
        return
    there = list(first.X.names)
    _hold(keep, there)
    absent = [name for name in columns if name not in there]
    odd = [name for name in there if name not in {*columns, *keep}]
    # where all are passed over, the model refuses the rows with a message of its own
    if len(absent) < len(columns):
        told = " ".join([*_absent(absent, odd), *_odd(odd)])
        remark(told, quiet=quiet or not told)
    yield from chain([first], left)


def _hold(keep: Iterable[str], there: list[str]) -> None:
    from onepass.errors import meant

    for name in keep:
        if name not in there:
            raise CycloptsError(
                msg="predict: --keep must name columns of the source that are not dropped, got "
                f"{name!r}.{meant(name, there) or ' Check the spelling.'}"
            )


def _absent(absent: list[str], odd: list[str]) -> Iterator[str]:
    from onepass.errors import listed, meant

    if absent:
        one = len(absent) == 1
        hints = "".join(meant(name, odd) for name in absent[:8])
        yield (
            f"{'Column' if one else 'Columns'} {listed(absent)} {'is' if one else 'are'} not "
            f"there: {'its' if one else 'their'} cells are missing.{hints}"
        )


def _odd(odd: list[str]) -> Iterator[str]:
    from onepass.errors import listed

    if odd:
        yield f"Passed over, as the model does not know them: {listed(odd)}."
