"""Warnings and errors for columns of text that look like numbers, dates or truth values.

One ``?`` among twenty thousand numbers makes a column text, and each of its numbers a category.
Only the user knows what such a cell means.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence

from onepass.errors import MixedColumnWarning, TypeMismatchError
from onepass.stream.literals import Oddity, typed

__all__ = ["report"]

_MOST = 0.9  # if more of the values of a target are of one kind, the others are errors


def report(
    odd: Iterable[Oddity],
    *,
    read: Sequence[str],
    targets: Sequence[str],
    types: Mapping[str, str],
    skip: bool = False,
) -> None:
    """Warn of columns that are taken as text; refuse those whose values would be misread.

    Parameters
    ----------
    odd : iterable of Oddity
        The columns to check.
    read, targets : sequence of str
        The columns that are read, and those of them that are targets.
    types : dict of str to str
        The kinds that are given; only ambiguous dates are reported of these columns.
    skip : bool
        Whether bad rows are skipped, so that a given kind is a remedy.

    Raises
    ------
    TypeMismatchError
        If numbers have separators or dates an order that the options do not name, or nearly all
        values of a target are of one kind.
    """
    for one in odd:
        given = types.get(one.name)
        ambiguous = one.what == "ambiguous" and given == "date"
        if one.name not in read or not (given is None or ambiguous):
            continue
        where = f"{one.source}: column {one.name!r}"
        at = f"{one.value!r} in row {one.row} (counting from 0)"
        text, kind = typed(one.name, "text"), typed(one.name, one.kind)
        if one.what in {"spelling", "ambiguous"}:
            raise TypeMismatchError(
                f"op.stream.read: {where} must hold {one.noun}, got {at}. Give {one.remedy}, or "
                f"{text} if it is text."
            )
        count = f"{one.fits:,} of the first {one.values:,} values are {one.noun}"
        if one.what == "zeros":
            found, ways = f"{count}, as {at}", [f"{kind} if they are numbers"]
        else:
            found = f"{count}, but {at} is not"
            spelling = f"na=({one.value!r},) (--na {one.value!r}) if it means missing"
            options = f"{one.remedy} and {kind}" if one.remedy else kind
            rest = f"{options} to skip the rows with other values"
            ways = [spelling] * (not one.quoted) + [rest] * skip
        give = f"Give {', '.join(ways)}{', or ' * bool(ways)}{text} if"
        if one.what == "mixed" and one.name in targets and one.fits > _MOST * one.values:
            raise TypeMismatchError(
                f"op.stream.read: {one.source}: the target {one.name!r} must hold numbers or "
                f"labels, got both: {found}. {give} all of them are labels: then the task is "
                "classification."
            )
        warnings.warn(
            f"{where} is taken as text: {found}. {give} it is text.",
            MixedColumnWarning,
            stacklevel=2,
        )
