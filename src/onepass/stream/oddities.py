"""Oddities: columns of text that are numbers or dates but for their spelling or a few cells.

One ``?`` among twenty thousand numbers makes a column text, and each of its numbers a category.
Only the user knows what such a cell means; so there is a warning or an error.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence

from onepass.errors import MixedColumnWarning, TypeMismatchError
from onepass.stream.literals import Oddity

__all__ = ["told"]

_MOST = 0.9  # of a target's values: if more have one kind, the others are errors


def told(
    odd: Iterable[Oddity],
    *,
    read: Sequence[str],
    targets: Sequence[str],
    types: Mapping[str, str],
) -> None:
    """Warn of columns that are taken as text; refuse those whose values would be misread.

    Parameters
    ----------
    odd : iterable of Oddity
        What was found.
    read, targets : sequence of str
        The columns that are read, and those of them that are targets.
    types : dict of str to str
        The kinds that are fixed: of these columns nothing is said but that dates are ambiguous.

    Raises
    ------
    TypeMismatchError
        If numbers are in a spelling or dates in an order that the options do not name, or nearly
        all values of a target are of one kind.
    """
    for one in odd:
        fixed = types.get(one.name)
        if one.name not in read or fixed not in {None, "date" if one.what == "ambiguous" else None}:
            continue
        where = f"{one.source}: column {one.name!r}"
        at = f"{one.value!r} in row {one.row} (counting from 0)"
        text = f"types={{{one.name!r}: 'text'}} (--type {one.name}=text)"
        number = f"types={{{one.name!r}: 'number'}} (--type {one.name}=number)"
        if one.what in {"local", "quoted", "ambiguous"}:
            also = f" and {number}" if one.what == "quoted" else ""
            raise TypeMismatchError(
                f"op.stream.read: {where} must hold {one.noun}, got {at}. Give {one.remedy}{also}, "
                f"or {text} if it is text."
            )
        count = f"{one.fits:,} of the first {one.values:,} values are {one.noun}"
        if one.what == "zeros":
            said, ways = f"{count}, as {at}", f"{number} if they are numbers"
        else:
            said = f"{count}, but {at} is none"
            ways = f"na=({one.value!r},) (--na {one.value!r}) if it means missing"
            if one.name in targets and one.fits > _MOST * one.values:
                raise TypeMismatchError(
                    f"op.stream.read: {one.source}: the target {one.name!r} must hold numbers or "
                    f"labels, got both: {said}. Give {ways}, or {text} if all of them are labels: "
                    "then the task is classification."
                )
        warnings.warn(
            f"{where} is taken as text: {said}. Give {ways}, or {text} if it is text.",
            MixedColumnWarning,
            stacklevel=2,
        )
