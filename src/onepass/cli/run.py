"""``run``: models go through a stream in one pass; a report and the models are saved.

Ctrl-C, or SIGTERM, ends the pass after the current block: what was learned until then is saved, and
can be resumed. Settings of --set and --time are checked with the first block of rows, before
anything is saved.
"""

import os
import time as clocks
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import CycloptsError

from onepass.cli.arguments import (
    Count,
    Files,
    Names,
    Quiet,
    Seconds,
    Settings,
    Source,
    Types,
    Whole,
    check_not_overwritten,
    pairs,
    usage_errors,
    values,
)
from onepass.cli.terminal import INTERRUPTED, advancing, print_message, show, terminable

if TYPE_CHECKING:
    from onepass.evaluate import Report
    from onepass.features.pipeline import Pipeline
    from onepass.stream import Stream

__all__ = ["resumable", "run"]


def _files(save: Path, models: Sequence[str]) -> dict[str, Path]:
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


def _run_file(save: Path) -> Path:
    """Where it is kept how far a run has come."""
    return save.with_name(f"{save.name}.run")


def resumable(save: Path | None, *, resume: bool, restart: bool, quiet: bool) -> "Standing | None":
    """Where the run stands that is to be resumed, if there is one.

    Parameters
    ----------
    save : Path or None
        As it was given.
    resume : bool
        Whether to go on with it.
    restart : bool
        Whether it may be lost.
    quiet : bool
        Do not say that there is none.

    Raises
    ------
    ParameterError
        If an unfinished run would be lost.
    CheckpointError
        If the file is damaged.
    """
    from onepass.errors import CheckpointError, ParameterError
    from onepass.evaluate import run_progress

    if save is None or (restart and not resume):
        return None
    place = _run_file(save)
    try:
        stood = run_progress(place)
    except CheckpointError as damaged:
        raise CheckpointError(f"{damaged} Or lose it by --restart.") from damaged
    if resume:
        if stood is None:
            print_message(f"Nothing to resume, there is no {place}: begun anew.", quiet=quiet)
        return stood
    if stood is not None and not stood.finished:
        raise ParameterError(
            f"run: {place} must not hold an unfinished run, got one of {stood.rows:,} rows of "
            f"{stood.source}. Go on with it by --resume, lose it by --restart, or --save elsewhere."
        )
    return None


def _kept(save: Path | None, before: tuple[int, int] | None, rows: int, *, finished: bool) -> bool:
    """Whether the run's file says what has come of it; if not, say so."""
    from onepass.errors import CheckpointError
    from onepass.evaluate import run_progress
    from onepass.serialization.atomic import file_identity

    if save is None or not rows:
        return True
    place = _run_file(save)
    try:
        stood = run_progress(place) if file_identity(place) != before else None
    except CheckpointError:
        stood = None
    if stood is not None and (stood.rows, stood.finished) == (rows, finished):
        return True
    print_message(f"onepass: {place} could not be written: the run cannot be resumed.")
    return False


def _save_models(models: "dict[str, Pipeline]", places: Mapping[str, Path], *, quiet: bool) -> None:
    """Save each model to its file; Ctrl-C waits for them."""
    from onepass.linalg.interrupt import Interrupt
    from onepass.serialization.models import save

    with Interrupt().held():
        for name, place in places.items():
            save(models[name], place)
            print_message(f"Saved {name}: {place}", quiet=quiet)


_EVERY = 60.0  # seconds from one checkpoint to the next


def run(
    source: Source,
    /,
    *more: str,
    target: Names = (),
    model: Names = ("rls",),
    task: Literal["regression", "classification"] | None = None,
    drop: Names = (),
    time: str | None = None,
    types: Types = (),
    na: Names = (),
    files_as: Files = Files(),  # noqa: B008  it is frozen
    missing: Literal["impute", "skip", "error"] = "impute",
    settings: Settings = (),
    metrics: Names = (),
    window: Count | None = None,
    block: Count | None = None,
    delay: Whole = 0,
    delay_until: str | None = None,
    max_waiting: Count | None = None,
    drift: Names = (),
    save: Path | None = None,
    checkpoint: Seconds | None = None,
    resume: bool = False,
    next_source: bool = False,
    restart: bool = False,
    report: Path | None = None,
    quiet: Quiet = False,
) -> int:
    """Learn a stream in one pass, and report how well each row was predicted before.

    Parameters
    ----------
    source
        A file (.csv, .tsv, .jsonl, .parquet, .arrow; packed as .gz, .bz2, .xz, .zst), a pattern
        in quotation marks, a folder, an address, "-" for standard input, or the name of a data
        set.
    *more
        Further files, read one after the other in this order.
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
    files_as
        How files are read.
    missing
        What becomes of rows that lack a feature: impute, which is the default, skip, or error. The
        model keeps to it: so does predict.
    settings
        A parameter of a model or a feature: rls.forgetting=0.99, encode.categories=hash.
    metrics
        What to measure, such as mae, rmse, r2; accuracy, macro_f1.
    window
        Measure also over the last so many rows.
    block
        Rows read and learned at a time, by default 1024 to 8192, as suits the columns. It changes
        the speed, not what is learned.
    delay
        How many rows later an answer is known: a row is learned before that one is predicted.
    delay_until
        The column that says when a row's answer is known, as --time says when the row came. It is
        no feature.
    max_waiting
        Most rows that may wait for their answers, 100,000 by default; they are kept in memory.
    drift
        Detectors of drift that watch each model's errors, such as adwin, kswin, pagehinkley; of
        classifiers ddm, eddm, hddma too. Their alarms are in the report.
    save
        Where to save what was learned. Several models get a file each: m-rls.onepass. Where the
        run stands is kept beside, in m.onepass.run.
    checkpoint
        Seconds from one writing of m.onepass.run to the next, 60 by default; 0 for after each
        block.
    resume
        Go on after the last row that m.onepass.run knows, as if the run had not been broken. A last
        line of CSV or JSON without a line break is left for the next run: it may still be written.
        Options that an error names as its remedy, such as --na, may be added.
    next_source
        With --resume: the source is another, which begins where the last one ended: none of its
        rows is passed over. If it is the last one, it is gone on with.
    restart
        Begin anew, although m.onepass.run holds an unfinished run, which is lost.
    report
        A folder for report.json, report.md, curve.csv and curve.png.
    quiet
        Show the table alone.
    """
    from onepass.features.presets import pipelines
    from onepass.integrations.detectors import detectors
    from onepass.stream import read

    for option, needs, lacking in (
        ("--next-source", "--resume", next_source and not resume),
        ("--resume", "--save", resume and save is None),
        ("--restart", "--save", restart and save is None),
        ("--checkpoint", "--save", checkpoint is not None and save is None),
        ("--max-waiting", "--delay or --delay-until", max_waiting and not (delay or delay_until)),
    ):
        if lacking:
            raise CycloptsError(msg=f"run: {option} needs {needs}.")
    if resume and restart:
        raise CycloptsError(msg="run: give either --resume or --restart, got both.")
    policy = "keep" if missing == "impute" else missing
    answers = list(target) if len(target) > 1 else target[0] if target else None
    with usage_errors("run"):
        _check([source, *more], list(model), save, report)
    stood = resumable(save, resume=resume, restart=restart, quiet=quiet)
    with usage_errors("run", settings=settings):
        stream = read(
            [source, *more] if more else source, target=answers, time=time, drop=drop,
            types=pairs(types), na=na, block=block, missing=policy,
            dtypes=dict.fromkeys(target, "number") if task == "regression" else None,
            leave_unterminated=_left(source, stood, next_source=next_source) if resume else None,
            **files_as.options(),
        )  # fmt: skip
        chosen = task or _task(stream, source)
        models = pipelines(model, chosen, {"encode.missing": policy, **values(settings)})
        watching = detectors(drift, "run: --drift") if drift else None
    if task is None:
        other = "classification" if chosen == "regression" else "regression"
        print_message(f"Task: {chosen}. For the other: --task {other}", quiet=quiet)
    given: dict[str, Any] = {
        "metrics": metrics or None, "window": window, "delay": delay, "delay_until": delay_until,
        "max_waiting": max_waiting or 100_000, "resume": resume, "next_source": next_source,
        "every": _EVERY if checkpoint is None else checkpoint, "drift": watching,
        "checkpoint": None if save is None else _run_file(save),
    }  # fmt: skip
    return _passed(models, stream, given, stood, save, report, settings, quiet=quiet)


def _left(source: str, stood: "Standing | None", *, next_source: bool) -> int:
    """The first row that is left for the next run if its line is unterminated."""
    if stood is None or (next_source and stood.source not in {source, Path(source).name}):
        return 0
    return stood.position


def _passed(
    models: "dict[str, Pipeline]",
    stream: "Stream",
    given: dict[str, Any],
    stood: "Standing | None",
    save: Path | None,
    report: Path | None,
    settings: Sequence[str],
    *,
    quiet: bool,
) -> int:
    """The pass, what is left of it, and the exit code."""
    from onepass.serialization.atomic import file_identity

    before = None if save is None else file_identity(_run_file(save))
    with terminable() as code:
        try:
            found = _learned(models, stream, given, stood, settings, quiet=quiet)
        except KeyboardInterrupt:
            if code() == INTERRUPTED:
                raise
            return code()
        _leave(found, models, save, report, quiet=quiet)
    whole = _kept(save, before, found.rows, finished=not found.interrupted)
    if found.interrupted:
        waiting = f", {found.waiting:,} of them wait for their answers" if found.waiting else ""
        further = " Go on with --resume." if whole and save is not None else ""
        print_message(f"Interrupted after {found.rows:,} rows{waiting}.{further}")
    return (code() if found.interrupted else 0) if whole else 1


def _check(sources: list[str], models: list[str], save: Path | None, report: Path | None) -> None:
    """Refuse places where nothing can be written, before the pass."""
    from onepass.errors import ParameterError
    from onepass.evaluate.report import FILES

    if report is not None:
        if report.exists() and not report.is_dir():
            raise ParameterError(
                f"run: --report must name a folder, got {report}, which is a file. Name another."
            )
        check_not_overwritten(sources, [report / name for name in FILES], "run: --report")
        report.mkdir(parents=True, exist_ok=True)
    if save is not None:
        places = [*_files(save, models).values(), _run_file(save)]
        check_not_overwritten(sources, places, "run: --save")


def _learned(
    models: "dict[str, Pipeline]",
    stream: "Stream",
    given: dict[str, Any],
    stood: "Standing | None",
    settings: Sequence[str],
    *,
    quiet: bool,
) -> "Report":
    """Take the models through the stream."""
    from onepass.evaluate import prequential

    before = 0 if stood is None else stood.rows
    if stood is not None:
        print_message(f"Resumed after {before:,} rows.", quiet=quiet)
        if given["next_source"] and not stood.finished and stood.source != stream.name:
            print_message(
                f"{stood.source} was not read to its end: its rows behind {stood.position:,} are "
                "left out."
            )
    rows = 0
    with advancing(lambda: stream.fraction, quiet=quiet, before=before) as advance:

        def progress(done: int) -> None:
            nonlocal rows
            rows = done
            advance(done)

        with usage_errors("run", settings=settings, began=lambda: rows > 0):
            return prequential(
                models, stream, clock=clocks.perf_counter, on_progress=progress, **given
            )


def _leave(
    found: "Report",
    models: "dict[str, Pipeline]",
    save: Path | None,
    report: Path | None,
    *,
    quiet: bool,
) -> None:
    """Save the models, write the report and show the table."""
    try:
        if save is not None and found.rows:  # an empty model takes no other's place
            _save_models(models, _files(save, list(models)), quiet=quiet)
        if report is not None:
            print_message(f"Report: {', '.join(map(str, found.save(report)))}", quiet=quiet)
    finally:  # last: who reads the table may have gone
        show(found.table())


def _task(stream: "Stream", source: str) -> str:
    """What the answers ask for; wrong usage where there are none."""
    if stream.task is None:
        if stream.target is not None:
            next(iter(stream), None)  # no rows: it says so
        raise CycloptsError(
            msg=f"run: {source} needs --target, the column of answers; without it there is "
            "nothing to learn.",
        )
    return stream.task
