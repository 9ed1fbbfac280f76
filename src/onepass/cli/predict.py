"""Predict: what a saved model says of the rows of a source."""

import sys
from pathlib import Path

from onepass.cli.arguments import Count, Files, Names, Quiet, Source, Types, pairs
from onepass.cli.known import compared
from onepass.cli.places import model_first, spare
from onepass.cli.terminal import remark
from onepass.cli.usage import usage

__all__ = ["predict"]


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
    from onepass.evaluate import answers
    from onepass.serialization.models import load
    from onepass.stream import read, write
    from onepass.stream.write import written_as

    with usage("predict"):
        model_first(model)
        if out is not None:
            written_as(out, "predict: --out")
            spare([source, *more, model], [out], "predict: --out")
            out.parent.mkdir(parents=True, exist_ok=True)
    learned = load(model)
    kinds = getattr(learned, "kinds_", {})
    with usage("predict"):
        stream = read(
            [source, *more] if more else source, target=(), drop=drop, types=pairs(types),
            kinds=kinds, na=na, block=block,
            missing="error" if getattr(learned, "missing", "keep") == "error" else "keep",
            **files.options(),
        )  # fmt: skip
    blocks = compared(stream, kinds, keep, quiet=quiet)
    rows = write(answers(learned, blocks, keep=keep), sys.stdout if out is None else out)
    remark(f"{rows:,} {'row' if rows == 1 else 'rows'}: {out}", quiet=quiet or out is None)
