"""``predict``: predictions of a saved model for the rows of a source.

The columns of the source are compared with those of the model, so that misspelt names are noticed.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from onepass.cli.arguments import (
    Count,
    Files,
    Names,
    Quiet,
    Source,
    Types,
    check_not_overwritten,
    model_first,
    pairs,
    usage_errors,
)
from onepass.cli.terminal import print_message

if TYPE_CHECKING:
    from onepass.stream import Rows

__all__ = ["predict"]


def _compared(
    blocks: Iterable["Rows"], known: Iterable[str], keep: Iterable[str], *, quiet: bool
) -> Iterator["Rows"]:
    """The same blocks; with the first, a remark on columns that only one of the two has."""
    from onepass.evaluate.predictions import check_keep

    columns, left = list(known), iter(blocks)
    first = next(left, None)
    if first is None:
        return
    with usage_errors("predict"):
        check_keep(first.X, keep)
    there = list(first.X.names)
    absent = [name for name in columns if name not in there]
    odd = [name for name in there if name not in {*columns, *keep}]
    # where all are passed over, the model refuses the rows with a message of its own
    if len(absent) < len(columns):
        told = " ".join(_mismatches(absent, odd))
        print_message(told, quiet=quiet or not told)
    yield from chain([first], left)


def _mismatches(absent: list[str], odd: list[str]) -> Iterator[str]:
    """Remarks on columns that only the model has, and on those that only the source has."""
    from onepass.errors import did_you_mean, join_names

    if absent:
        one = len(absent) == 1
        hints = "".join(did_you_mean(name, odd) for name in absent[:8])
        yield (
            f"{'Column' if one else 'Columns'} {join_names(absent)} {'is' if one else 'are'} not "
            f"there: {'its' if one else 'their'} cells are missing.{hints}"
        )
    if odd:
        yield f"Passed over, as the model does not know them: {join_names(odd)}."


def predict(
    model: Path,
    source: Source,
    /,
    *more: str,
    out: Path | None = None,
    keep: Names = (),
    drop: Names = (),
    types: Types = (),
    na: Names = (),
    files: Files = Files(),  # noqa: B008  it is frozen
    block: Count | None = None,
    quiet: Quiet = False,
) -> None:
    """Write what a saved model says of each row, in order, in the column "said".

    Columns may stand in any order. What is missing is imputed, skipped (said stays empty) or an
    error, as --missing was when the model learned. A category that was never learned counts as
    none, and columns that the model does not know are passed over; which, and which of the model's
    are not there, is said on standard error. No row is left out: a cell that
    is not of the kind that was learned ends it, with an error that says how to go on.

    Parameters
    ----------
    model
        A file that "onepass run --save" wrote.
    source
        A file (.csv, .tsv, .jsonl, .parquet, .arrow; packed as .gz, .bz2, .xz, .zst), a pattern
        in quotation marks, a folder, an address, "-" for standard input, or the name of a data
        set.
    *more
        Further files, read one after the other in this order.
    out
        Where to write: .csv, .tsv, either with .gz, .parquet. By default CSV on standard output.
    keep
        Columns to copy, to tell the rows apart.
    drop
        Columns that are not to be looked at.
    types
        The kind of a column: NAME=number, truth, text or date. Otherwise it is read as the model
        learned it; where the model does not know it, its first values tell.
    na
        Of CSV: further spellings of a missing value, in the target too: --na "?,-".
    files
        How files are read.
    block
        Rows read and answered at a time, by default 1024 to 8192, as suits the columns.
    quiet
        Say nothing of what was written, nor of columns that only the source or the model has.
    """
    from onepass import load
    from onepass.evaluate import predictions
    from onepass.stream import read, write
    from onepass.stream.write import written_as

    with usage_errors("predict"):
        model_first(model)
        if out is not None:
            written_as(out, "predict: --out")
            check_not_overwritten([source, *more, model], [out], "predict: --out")
            out.parent.mkdir(parents=True, exist_ok=True)
    learned = load(model)
    dtypes = getattr(learned, "dtypes_", {})
    with usage_errors("predict"):
        stream = read(
            [source, *more] if more else source, target=(), drop=drop, types=pairs(types),
            dtypes=dtypes, na=na, block=block,
            missing="error" if getattr(learned, "missing", "keep") == "error" else "keep",
            **files.options(),
        )  # fmt: skip
    blocks = _compared(stream, dtypes, keep, quiet=quiet)
    rows = write(predictions(learned, blocks, keep=keep), sys.stdout if out is None else out)
    print_message(f"{rows:,} {'row' if rows == 1 else 'rows'}: {out}", quiet=quiet or out is None)
