"""Run: models go through a stream in one pass; what they said is summed up, what they learned kept.

Ctrl-C ends the pass after the block that was begun: what was learned until then is saved.
"""

import os
import time as clocks
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import CycloptsError

from onepass.cli.arguments import Names, Quiet, Settings, Source, Types, pairs, values
from onepass.cli.places import spare
from onepass.cli.terminal import advancing, remark, show

if TYPE_CHECKING:
    from onepass.pipeline import Pipeline
    from onepass.stream import Stream

__all__ = ["run"]


def run(
    source: Source,
    /,
    *,
    target: Names = (),
    model: Names = ("rls",),
    task: Literal["regression", "classification"] | None = None,
    drop: Names = (),
    time: str | None = None,
    types: Types = (),
    na: Names = (),
    settings: Settings = (),
    metrics: Names = (),
    window: int | None = None,
    block: int = 1024,
    save: Path | None = None,
    report: Path | None = None,
    quiet: Quiet = False,
) -> int:
    """Learn a stream in one pass, and report how well each row was predicted before.

    Parameters
    ----------
    source
        A file (.csv, .tsv, either with .gz, .parquet), "-" for CSV from standard input, or the
        name of a data set.
    target
        The column of answers; several with commas between them. A data set has its own.
    model
        Models with commas between them, such as rls, sgd, orfit, perceptron; rls by default.
    task
        What the models are to do. By default what the answers ask for: classification if they are
        text, truth values or 0 and 1 alone, regression if they are other numbers.
    drop
        Columns that are not to be features.
    time
        The column that says when a row happened, for the curve.
    types
        The kind of a column: NAME=number, truth, text or date. Otherwise its first values tell.
    na
        Of CSV: further spellings of a missing value, in the target too: --na "?,-".
    settings
        A parameter of a model or a feature: rls.forgetting=0.99, encode.categories=hash.
    metrics
        What to measure, such as mae, rmse, r2; accuracy, macro_f1.
    window
        Measure also over the last so many rows.
    block
        Rows read and learned at a time, 1024 by default. It changes the speed, not what is
        learned.
    save
        Where to save what was learned. Several models get a file each: m-rls.onepass.
    report
        A folder for report.json, report.md, curve.csv and curve.png.
    quiet
        Show the table alone.
    """
    from onepass.evaluate import prequential
    from onepass.evaluate.report import FILES
    from onepass.models import pipelines
    from onepass.stream import read

    if report is not None:
        spare([source], [report / name for name in FILES], "run: --report")
    if save is not None:
        spare([source], _files(save, list(model)).values(), "run: --save")
    answers = list(target) if len(target) > 1 else target[0] if target else None
    stream = read(
        source, target=answers, time=time, drop=drop, types=pairs(types), na=na, block=block
    )
    chosen = task or _task(stream, source)
    models = pipelines(model, chosen, values(settings))
    files = {} if save is None else _files(save, list(models))
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
    if task is None:
        other = "classification" if chosen == "regression" else "regression"
        remark(f"Task: {chosen}. For the other: --task {other}", quiet=quiet)
    with advancing(lambda: stream.fraction, quiet=quiet) as advance:
        found = prequential(
            models, stream, metrics or None,
            window=window, clock=clocks.perf_counter, on_progress=advance,
        )  # fmt: skip
    if found.rows:  # an empty model takes no other's place
        _save(models, files, quiet=quiet)
    try:
        if report is not None:
            remark(f"Report: {', '.join(map(str, found.save(report)))}", quiet=quiet)
    finally:  # last: who reads the table may have gone
        show(found.table())
    if found.interrupted:
        remark(f"Interrupted after {found.rows:,} rows.")
        return 130
    return 0


def _task(stream: "Stream", source: str) -> str:
    """What the answers ask for; wrong usage where there are none."""
    if stream.task is None:
        raise CycloptsError(
            msg=f"run: {source} needs --target, the column of answers; without it there is "
            "nothing to learn.",
        )
    return stream.task


def _files(save: Path, models: list[str]) -> dict[str, Path]:
    """A file for each model, in a folder that is there: known before the pass, not after it."""
    from onepass.errors import ParameterError

    save.parent.mkdir(parents=True, exist_ok=True)
    if save.is_dir() or not os.access(save.parent, os.W_OK):
        raise ParameterError(
            f"run: --save must name a file, in a folder that can be written to, got {save}. "
            "Give the file's name too, such as m.onepass, or another folder."
        )
    if len(models) == 1:
        return {models[0]: save}
    return {name: save.with_name(f"{save.stem}-{name}{save.suffix}") for name in models}


def _save(models: dict[str, "Pipeline"], files: dict[str, Path], *, quiet: bool) -> None:
    from onepass.persist import save

    for name, file in files.items():
        save(models[name], file)
        remark(f"Saved {name}: {file}", quiet=quiet)
