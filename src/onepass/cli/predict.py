"""Command ``predict``: predictions of a saved model for the rows of a source.

Columns of the source and of the model are compared, to report misspelt names.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepass.cli.arguments import (
    Files,
    Names,
    Quiet,
    Source,
    check_not_overwritten,
    model_first,
    usage_errors,
)
from onepass.cli.terminal import advancing, print_message

if TYPE_CHECKING:
    from onepass.stream import Rows

_COMPARED, _FEWEST = 500, 20  # rows that are compared with recall
_DIFFERENT = 0.1  # share of the rows, or of the standard deviation


def _check_interval(fitted: object, interval: float) -> None:
    """Raise an error unless the model has learned intervals with this coverage."""
    from onepass.errors import ParameterError

    alpha = getattr(fitted, "alpha", None)
    if alpha is None:
        raise ParameterError(
            "--interval needs a model that has learned intervals, got one without. Train it with: "
            "onepass run --interval 0.9.",
            "predict",
        )
    if abs(1.0 - alpha - interval) > 1e-9:
        raise ParameterError(
            f"--interval must be the coverage that the model has learned, {1.0 - alpha:g}, got "
            f"{interval:g}. Use it, or train another model.",
            "predict",
        )


def _check_columns(
    blocks: Iterable["Rows"],
    learned: Iterable[str],
    keep: Iterable[str],
    used: Iterable[str],
    *,
    quiet: bool,
) -> Iterator["Rows"]:
    """Yield the blocks; report columns that only the model or only the source has."""
    from onepass.evaluate.predictions import check_keep

    columns, rest = list(learned), iter(blocks)
    first = next(rest, None)
    if first is None:
        return
    with usage_errors("predict"):
        check_keep(first.X, keep)
    names = list(first.X.names)
    missing = [name for name in columns if name not in names]
    unused = [name for name in names if name not in {*columns, *used}]
    # if no column is used, the model raises an error
    if len(missing) < len(columns):
        text = " ".join(_mismatches(missing, unused))
        print_message(text, quiet=quiet or not text)
    yield from chain([first], rest)


def _compare_with_recall(fitted: Any, blocks: Iterable["Rows"], *, quiet: bool) -> Iterator["Rows"]:
    """Yield the blocks; report if `recall` of a mixture differs for rows of the first one."""
    import numpy as np

    rest = iter(blocks)
    first = next(rest, None)
    if first is None:
        return
    if len(first.X) >= _FEWEST:
        X = first.X[:: -(-len(first.X) // _COMPARED)]
        now, past = np.asarray(fitted.predict(X)), np.asarray(fitted.recall(X))
        if now.dtype.kind == "f":
            mean = float(np.mean(np.abs(now - past)))
            spread = max(float(np.std(past)), 1e-6 * float(np.max(np.abs(past))))
            differs, text = mean > _DIFFERENT * spread, f"by {mean:.3g} on average"
        else:
            share = float(np.mean(now != past))
            differs, text = share > _DIFFERENT, f"in {share:.0%} of the rows"
        if differs:
            print_message(
                "Predictions are for the next row. Predictions for rows of the past (--recall) "
                f"differ {text}; {len(X):,} rows were compared.",
                quiet=quiet,
            )
    yield from chain([first], rest)


def _mismatches(missing: list[str], unused: list[str]) -> Iterator[str]:
    """Yield messages on columns that only the model has or only the source has."""
    from onepass.errors import did_you_mean, join_names

    if missing:
        single = len(missing) == 1
        hints = "".join(did_you_mean(name, unused) for name in missing[:8])
        yield (
            f"{'Column' if single else 'Columns'} {join_names(missing)} "
            f"{'is' if single else 'are'} not in the source and treated as missing.{hints}"
        )
    if unused:
        yield f"Ignored, as the model was trained without them: {join_names(unused)}."


def predict(
    model: Path,
    source: Source,
    /,
    *more: str,
    out: Path | None = None,
    proba: bool = False,
    recall: bool = False,
    interval: float | None = None,
    keep: Names = (),
    files: Files = Files(),  # noqa: B008  it is frozen
    quiet: Quiet = False,
) -> None:
    """Write the predictions of a saved model to the column "prediction", one row per input row.

    Columns may be in any order. The option --missing of the run determines how missing values are
    handled: imputed, skipped (the prediction is empty) or an error. For new categories, the
    encoding of all known categories is 0. Columns that the model was trained without are ignored;
    they, and missing columns, are reported on standard error. Values of another type than in
    training are an error.

    A model with lagged targets (--lags of the run) forecasts: the rows must follow the last row
    learned, in order. If the source has the target, its values are used as lags, and where it is
    missing, the predictions.

    Parameters
    ----------
    model
        A file written by "onepass run --save".
    source
        A file (.csv, .tsv, .jsonl, .parquet, .arrow; compressed as .gz, .bz2, .xz, .zst), a
        quoted pattern, a folder, a URL, "-" for standard input, or the name of a data set.
    *more
        Further files, read in this order.
    out
        Output file: .csv, .tsv, .csv.gz, .tsv.gz or .parquet; by default CSV on standard output.
    proba
        Also write the probability of each class of a classifier, to columns "probability_CLASS".
    recall
        Predict rows of the whole past, instead of the next row: where a mixture has forgotten
        earlier rows, it then uses least squares of all rows.
    interval
        Also write the limits of intervals with this coverage to columns "lower" and "upper"; the
        model must have been run with the same --interval.
    keep
        Columns to copy to the output, such as identifiers.
    files
        Options for reading files.
    quiet
        Print no messages.
    """
    from onepass import load
    from onepass.errors import calling
    from onepass.evaluate import predictions
    from onepass.evaluate.predictions import lagged_target
    from onepass.stream import read, write
    from onepass.stream.write import written_as

    with usage_errors("predict"):
        model_first(model)
        if out is not None:
            with calling("predict: --out"):
                written_as(out)
            check_not_overwritten([source, *more, model], [out], "predict: --out")
            out.parent.mkdir(parents=True, exist_ok=True)
    fitted = load(model)
    if interval is not None:
        _check_interval(fitted, interval)
    dtypes = getattr(fitted, "dtypes_", {})
    with usage_errors("predict"):
        stream = read(
            [source, *more] if more else source, target=(), dtypes=dtypes,
            missing="error" if getattr(fitted, "missing", "keep") == "error" else "keep",
            **files.options(),
        )  # fmt: skip
    lagged = lagged_target(fitted)
    used = keep if lagged is None else (*keep, lagged)
    blocks = _check_columns(stream, dtypes, keep, used, quiet=quiet)
    skips = getattr(fitted, "missing", "keep") == "skip"
    if not (recall or lagged or skips) and hasattr(fitted, "recall"):
        blocks = _compare_with_recall(fitted, blocks, quiet=quiet)
    found = predictions(
        fitted, blocks, keep=keep, proba=proba, interval=interval is not None, recall=recall
    )
    with advancing(lambda: stream.fraction, quiet=quiet or out is None) as advance:
        rows = write(found, sys.stdout if out is None else out, on_progress=advance)
    print_message(f"{rows:,} {'row' if rows == 1 else 'rows'}: {out}", quiet=quiet or out is None)
