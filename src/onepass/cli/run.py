"""Command ``run``: evaluate and train models on a stream in one pass; save report and models.

Ctrl-C or SIGTERM ends the run after the current block; the progress is saved, and the run can be
resumed. Settings of --set and --time are checked with the first block of rows, before files are
written.
"""

import os
import time as clocks
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import CycloptsError

from onepass.cli.arguments import (
    Count,
    Counts,
    Files,
    Names,
    Quiet,
    Seconds,
    Settings,
    Source,
    Whole,
    check_not_overwritten,
    usage_errors,
    values,
)
from onepass.cli.terminal import INTERRUPTED, advancing, print_message, show, terminable

if TYPE_CHECKING:
    from onepass.evaluate import Report, RunProgress
    from onepass.evaluate.past import PastRows
    from onepass.features.pipeline import Pipeline
    from onepass.stream import Rows, Stream


def _files(save: Path, models: Sequence[str]) -> dict[str, Path]:
    """Create and check the folder of model files; return the file of each model."""
    from onepass.errors import ParameterError

    save.parent.mkdir(parents=True, exist_ok=True)
    if save.is_dir() or not os.access(save.parent, os.W_OK):
        raise ParameterError(
            f"--save must be a file in a writable folder, got {save}. Add a file name, "
            "such as m.onepass, or use another folder.",
            "run",
        )
    if len(models) == 1:
        return {models[0]: save}
    return {name: save.with_name(f"{save.stem}-{name}{save.suffix}") for name in models}


def _run_file(save: Path) -> Path:
    """Return the path of the checkpoint of a run."""
    return save.with_name(f"{save.name}.run")


def _resumed(
    save: Path | None, *, resume: bool, restart: bool, quiet: bool
) -> "RunProgress | None":
    """Return the progress of the run to resume; None to start a new run.

    An unfinished run is not overwritten.
    """
    from onepass.errors import CheckpointError, ParameterError
    from onepass.evaluate import run_progress

    if save is None or restart:
        return None
    place = _run_file(save)
    try:
        progress = run_progress(place)
    except CheckpointError as damaged:
        raise CheckpointError(f"{damaged} Or discard it with --restart.") from damaged
    if resume:
        if progress is None:
            print_message(f"Starting a new run: there is no {place} to resume.", quiet=quiet)
        return progress
    if progress is not None and not progress.finished:
        raise ParameterError(
            f"{place} must not contain an unfinished run, got one after "
            f"{progress.rows:,} rows of {progress.source}. Continue it with --resume, "
            "discard it with --restart, or use another file for --save.",
            "run",
        )
    return None


def _check_saved(
    save: Path | None, before: tuple[int, int] | None, rows: int, *, finished: bool
) -> bool:
    """Return whether the checkpoint contains the final progress; print a message if not."""
    from onepass.errors import CheckpointError
    from onepass.evaluate import run_progress
    from onepass.serialization.atomic import file_identity

    if save is None or not rows:
        return True
    place = _run_file(save)
    try:
        progress = run_progress(place) if file_identity(place) != before else None
    except CheckpointError:
        progress = None
    if progress is not None and (progress.rows, progress.finished) == (rows, finished):
        return True
    print_message(f"onepass: {place} could not be written: the run cannot be resumed.")
    return False


_SLOW = 5.0  # seconds after which many features are reported
_WIDE = 100  # features
_NUMBERED = 20  # first rows, from which a column that numbers the rows is recognised
_EVERY = 60.0  # default seconds between two checkpoints


def run(
    source: Source,
    /,
    *more: str,
    target: Names = (),
    model: Names = (),
    task: Literal["regression", "classification"] | None = None,
    by: str | None = None,
    time: str | None = None,
    files_as: Files = Files(),  # noqa: B008  it is frozen
    missing: Literal["impute", "skip", "error"] = "impute",
    settings: Settings = (),
    metrics: Names = (),
    window: Count | None = None,
    block: Count | None = None,
    lags: Counts = (),
    horizon: Count | None = None,
    interval: float | None = None,
    delay: Whole = 0,
    delay_until: str | None = None,
    max_waiting: Count | None = None,
    drift: Names = (),
    past: Whole = 500,
    save: Path | None = None,
    checkpoint: Seconds | None = None,
    resume: bool = False,
    next_source: bool = False,
    restart: bool = False,
    report: Path | None = None,
    quiet: Quiet = False,
) -> int:
    """Evaluate and train models on a stream: each row is predicted, then learned.

    Parameters
    ----------
    source
        A file (.csv, .tsv, .jsonl, .parquet, .arrow; compressed as .gz, .bz2, .xz, .zst), a
        quoted pattern, a folder, a URL, "-" for standard input, or the name of a data set.
    *more
        Further files, read in this order.
    target
        Target column, or several separated by commas. Named data sets have a default.
    model
        Models, separated by commas, such as rls, forest, random-features. By default mixture: rls,
        forest and, in a regression, kalman, weighted by their errors so far; with --by rls, which
        is smaller.
    task
        Task of the models. By default inferred from the targets: classification for text, booleans,
        or only 0 and 1; regression for other numbers.
    by
        Key column, such as a device: each key has its own copy of the models. Not used as a
        feature.
    time
        Column with the time of each row, for the learning curve, for --delay-until, and for models
        that forget by time.
    files_as
        Options for reading files.
    missing
        How to handle missing features: impute (default), skip or error. Stored with the model and
        used by predict.
    settings
        Parameter of a model or feature, such as rls__forgetting=0.99 or encode__categories=hash.
    metrics
        Metrics: mae, rmse and r2 for regression; accuracy and macro_f1 for classification;
        mean_loss and cumulative_loss for both; log_loss, brier, roc_auc and average_precision for
        probabilities. By default mae, rmse and r2, or accuracy and macro_f1.
    window
        Number of last rows over which the metrics are also computed.
    block
        Rows read and learned at a time; by default 1024 to 8192, depending on the columns. Affects
        only the speed.
    lags
        Lagged targets as features, such as 1,48: the targets 1 and 48 rows before (with --by, of
        the same key). Stored with the model; predict forecasts the rows after the last one learned.
    horizon
        Also measure forecasts of up to this number of rows ahead: a copy of the model forecasts the
        next HORIZON rows, then a new copy the rows after them, and so on. With --interval, predict
        uses the width for each number of rows ahead.
    interval
        Coverage of prediction intervals, such as 0.9, of models for regression; predict --interval
        writes them.
    delay
        Number of rows after which a target arrives; 0 (default) means before the next row. A row is
        learned just before the Nth row after it.
    delay_until
        Column with the times at which targets arrive, as --time for rows. Not used as a feature.
    max_waiting
        Maximum number of rows in memory whose targets are pending (default 100,000).
    drift
        River's drift detectors for the errors of each model: adwin, kswin, pagehinkley; for
        classifiers also ddm, eddm, fhddm, hddma, hddmw. The report contains the alarms.
    past
        Number of past rows, drawn at random, on which each model is measured again at the end: a
        model that has forgotten them is reported. 0: none. With --resume, rows of this run only.
    save
        Model file, such as m.onepass. Several models are saved to one file each, such as
        m-rls.onepass. The checkpoint of the run is m.onepass.run.
    checkpoint
        Seconds between two checkpoints (default 60); 0 for a checkpoint after each block.
    resume
        Continue from the checkpoint, if there is one; the result equals that of an uninterrupted
        run. A last line of CSV or JSON without a line break may be incomplete and is left for the
        next run. Options that an error message recommends, such as --na, may be added.
    next_source
        With --resume: the source is the continuation of the last source, and is read from its first
        row. If it is the last source itself, it continues at its position.
    restart
        Start a new run, and discard an unfinished run in m.onepass.run.
    report
        Folder for report.json, report.md, curve.csv and curve.png.
    quiet
        Print only the table.
    """
    from onepass.integrations.detectors import detectors
    from onepass.learners.keyed import Keyed
    from onepass.models import pipelines
    from onepass.stream import read

    for option, needs, missing_other in (
        ("--next-source", "--resume", next_source and not resume),
        ("--resume", "--save", resume and save is None),
        ("--restart", "--save", restart and save is None),
        ("--checkpoint", "--save", checkpoint is not None and save is None),
        ("--max-waiting", "--delay or --delay-until", max_waiting and not (delay or delay_until)),
    ):
        if missing_other:
            raise CycloptsError(msg=f"run: {option} requires {needs}.")
    if resume and restart:
        raise CycloptsError(msg="run: use either --resume or --restart, got both.")
    model = model or (("mixture",) if by is None else ("rls",))
    policy = "keep" if missing == "impute" else missing
    targets = list(target) if len(target) > 1 else target[0] if target else None
    with usage_errors("run"):
        _check([source, *more], list(model), save, report)
    progress = _resumed(save, resume=resume, restart=restart, quiet=quiet)
    unterminated = _unterminated_from(source, progress, next_source=next_source) if resume else None
    with usage_errors("run", settings=settings):
        stream = read(
            [source, *more] if more else source, target=targets, time=time, block=block,
            missing=policy,
            dtypes=dict.fromkeys(target, "number") if task == "regression" else None,
            leave_unterminated=unterminated,
            **files_as.options(),
        )  # fmt: skip
        chosen = task or _task(stream, source)
        fixed = {"encode__missing": policy, **values(settings)}
        named = {"target": target[0]} if len(target) == 1 else {}
        models: dict[str, Any] = dict(
            pipelines(model, chosen, fixed, lags=lags, delay=delay, **named)
        )
        if horizon is not None or interval is not None:
            models = _with_intervals(models, horizon, interval, chosen, by)
        if by is not None:
            models = {name: Keyed(one, by=by) for name, one in models.items()}
        found = detectors(drift, "run: --drift") if drift else None
    if task is None:
        other = "classification" if chosen == "regression" else "regression"
        print_message(f"Task: {chosen}. For {other}: --task {other}", quiet=quiet)
    options: dict[str, Any] = {
        "metrics": metrics or None, "window": window, "delay": delay, "delay_until": delay_until,
        "max_waiting": max_waiting or 100_000, "resume": resume, "next_source": next_source,
        "every": _EVERY if checkpoint is None else checkpoint, "drift": found,
        "checkpoint": None if save is None else _run_file(save),
    }  # fmt: skip
    guessed = task is None and chosen == "classification"
    return _execute(
        models, stream, options, progress, save, report, settings, past, guessed=guessed,
        quiet=quiet,
    )  # fmt: skip


def _with_intervals(
    models: Mapping[str, Any],
    horizon: int | None,
    interval: float | None,
    task: str,
    by: str | None,
) -> dict[str, Any]:
    """Return the models with intervals, whose widths are learned for each row up to the horizon."""
    from onepass.errors import ParameterError
    from onepass.learners.conformal import Conformal

    if task != "regression" or by is not None:
        got = "--by" if by is not None else f"--task {task}"
        raise ParameterError(
            f"--horizon and --interval must be used for regression, without --by, got {got}. Leave "
            "it out.",
            "run",
        )
    if interval is not None and not 0.0 < interval < 1.0:
        raise ParameterError(
            f"--interval must be a coverage between 0 and 1, got {interval:g}. Pass one, such as "
            "0.9.",
            "run",
        )
    alpha = round(1.0 - (0.9 if interval is None else interval), 12)
    return {name: Conformal(one, alpha, horizon=horizon or 1) for name, one in models.items()}


def _print_past(models: Mapping[str, Any], sample: "PastRows", *, quiet: bool) -> None:
    """Print the errors of models on past rows; those that have forgotten them also if quiet."""
    from onepass.errors import join_names
    from onepass.stream.literals import as_text

    for name, model in models.items():
        inner = getattr(model, "model", model)
        inner = getattr(inner, "model", inner)
        if getattr(inner, "_target_delay", None) is not None:  # lags of other rows
            continue
        errors = sample.errors(name, model)
        what = "MAE" if errors.numbers else "share of wrong labels"
        text = (
            f"{name}: {what} of {errors.rows:,} past rows: {errors.before:.4g} when they were "
            f"predicted, {errors.now:.4g} with the model now"
        )
        text += "." if errors.recalled is None else f", {errors.recalled:.4g} with recall."
        if not (errors.forgotten or errors.labels):
            print_message(text, quiet=quiet)
            continue
        labels = [as_text(label) for label in errors.labels]
        what = f"the labels {join_names(labels)}" if labels else "them"
        text = f"{text} The model has forgotten {what}."
        if errors.recalled is not None:
            text += " Its predictions are for the next row; for rows of the past: predict --recall."
        elif getattr(getattr(inner, "learner", inner), "forgetting", 1.0) != 1.0:
            text += f" To keep them: --set {name}__forgetting=1.0."
        print_message(text)


def _print_weights(models: Mapping[str, Any], *, quiet: bool) -> None:
    """Print the weights of the members of mixtures at the end."""
    from onepass.cli.model import member_weights

    for name, model in models.items():
        fitted = getattr(model, "model_", model)
        weights = member_weights(getattr(fitted, "learner", fitted))
        listed = ", ".join(f"{member} {weight}" for member, weight in weights.items())
        print_message(f"{name}: weights at the end: {listed}.", quiet=quiet or not weights)


def _print_horizon(models: Mapping[str, Any], *, quiet: bool) -> None:
    """Print the errors of forecasts of models with a horizon."""
    for name, model in models.items():
        errors = getattr(model, "forecast_errors_", None)
        if errors is not None and len(errors) > 1 and model.counts_.all():
            print_message(
                f"{name}: MAE {errors.mean():.4g} of forecasts 1 to {len(errors)} rows ahead, "
                f"{float(errors[-1].mean()):.4g} at {len(errors)}; {model.counts_.sum():,} rows.",
                quiet=quiet,
            )


def _unterminated_from(source: str, progress: "RunProgress | None", *, next_source: bool) -> int:
    """Return the first row that is left for the next run if it is unterminated."""
    if progress is None or (next_source and progress.source not in {source, Path(source).name}):
        return 0
    return progress.position


def _execute(
    models: "dict[str, Pipeline]",
    stream: "Stream",
    options: dict[str, Any],
    progress: "RunProgress | None",
    save: Path | None,
    report: Path | None,
    settings: Sequence[str],
    past: int,
    *,
    guessed: bool,
    quiet: bool,
) -> int:
    """Run the evaluation, save its results, and return the exit code."""
    from onepass.evaluate.past import PastRows
    from onepass.serialization.atomic import file_identity

    before = None if save is None else file_identity(_run_file(save))
    sample = PastRows(past) if past else None
    with terminable() as code:
        try:
            found = _train(
                models, stream, options, progress, settings, sample, guessed=guessed, quiet=quiet
            )
        except KeyboardInterrupt:
            if code() == INTERRUPTED:
                raise
            return code()
        _save_results(found, models, save, report, quiet=quiet)
        _print_horizon(models, quiet=quiet)
        _print_weights(models, quiet=quiet)
        if sample:
            _print_past(models, sample, quiet=quiet)
    saved = _check_saved(save, before, found.rows, finished=not found.interrupted)
    if found.interrupted:
        waiting = f", {found.waiting:,} of them with pending targets" if found.waiting else ""
        further = " Continue with --resume." if saved and save is not None else ""
        print_message(f"Interrupted after {found.rows:,} rows{waiting}.{further}")
    return (code() if found.interrupted else 0) if saved else 1


def _check(sources: list[str], models: list[str], save: Path | None, report: Path | None) -> None:
    """Check the output files before the run."""
    from onepass.errors import ParameterError
    from onepass.evaluate.report import FILES

    if report is not None:
        if report.exists() and not report.is_dir():
            raise ParameterError(
                f"--report must be a folder, got the file {report}. Use another path.", "run"
            )
        check_not_overwritten(sources, [report / name for name in FILES], "run: --report")
        report.mkdir(parents=True, exist_ok=True)
    if save is not None:
        places = [*_files(save, models).values(), _run_file(save)]
        check_not_overwritten(sources, places, "run: --save")


def _train(
    models: "dict[str, Pipeline]",
    stream: "Stream",
    options: dict[str, Any],
    progress: "RunProgress | None",
    settings: Sequence[str],
    sample: "PastRows | None",
    *,
    guessed: bool,
    quiet: bool,
) -> "Report":
    """Evaluate and train the models on the stream; the task may be guessed from the first rows."""
    from onepass.evaluate import prequential
    from onepass.stream.sources import check_binary

    before = 0 if progress is None else progress.rows
    if progress is not None:
        print_message(f"Resumed after {before:,} rows.", quiet=quiet)
        if options["next_source"] and not progress.finished and progress.source != stream.name:
            print_message(
                f"{progress.source} was not read to the end: rows after {progress.position:,} "
                "are skipped."
            )
    rows = skipped = 0
    began, reported = clocks.monotonic(), False
    with advancing(lambda: stream.fraction, quiet=quiet, before=before) as advance:

        def on_progress(done: int) -> None:
            nonlocal rows
            rows = done
            advance(done)

        def on_block(block: "Rows", predictions: Mapping[str, Any]) -> None:
            nonlocal skipped, reported
            skipped += block.skipped
            if not reported and clocks.monotonic() - began > _SLOW:
                reported = True
                _report_width(models, quiet=quiet)
            if block.first == 0:
                _print_hints(block.X, settings, quiet=quiet)
            if guessed:
                check_binary(block)
            if sample is not None:
                sample.add(block.X, block.y, predictions)

        with usage_errors("run", settings=settings, started=lambda: rows > 0):
            report = prequential(
                models, stream, clock=clocks.perf_counter, on_progress=on_progress,
                on_block=on_block, **options,
            )  # fmt: skip
    bad, incomplete = stream.bad_rows, stream.incomplete_rows
    reasons = {
        "without a target": skipped - bad - incomplete,
        "with a missing feature": incomplete,
        "that cannot be read": bad,
    }
    listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
    print_message(f"Rows skipped: {listed}.", quiet=quiet or not skipped)
    return report


def _save_results(
    found: "Report",
    models: "dict[str, Pipeline]",
    save: Path | None,
    report: Path | None,
    *,
    quiet: bool,
) -> None:
    """Save the models, write the report and show the table."""
    from onepass.errors import MissingExtraError
    from onepass.linalg.interrupt import Interrupt
    from onepass.serialization.models import save as saved

    try:
        if save is not None and found.rows:  # a model without rows must not overwrite a file
            with Interrupt().held():  # Ctrl-C takes effect afterwards
                for name, place in _files(save, list(models)).items():
                    saved(models[name], place)
                    print_message(f"Saved {name}: {place}", quiet=quiet)
        if report is not None:
            print_message(f"Report: {', '.join(map(str, found.save(report)))}", quiet=quiet)
    except MissingExtraError as error:  # everything except the figure was written
        print_message(f"Report without a figure: {report}. {error}", quiet=quiet)
    finally:  # last: the pipe may be closed
        show(found.table())


def _print_hints(X: Any, settings: Sequence[str], *, quiet: bool) -> None:
    """Print hints for columns that may number the rows, and for several columns of dates."""
    import numpy as np

    from onepass.errors import join_names

    for name in X.names if len(X) >= _NUMBERED else ():
        column = X[name]
        whole = column.dtype.kind == "f" and (column == np.floor(column)).all()
        if whole and (np.diff(column) > 0.0).all():
            drop = f"--drop {quote(name)}" if name else "--drop '\"\"'"
            text = f"Column {name!r} increases in each row. If it numbers the rows: {drop}"
            print_message(text, quiet=quiet)
    dates = [name for name in X.names if X[name].dtype.kind == "M"]
    if len(dates) > 1 and not any(setting.startswith("encode__times") for setting in settings):
        print_message(
            f"Columns {join_names(dates)} are dates, which are encoded as hour, weekday and month. "
            "For the time between them: --set "
            '\'encode__times=["hour","weekday","month","elapsed"]\'',
            quiet=quiet,
        )


def _report_width(models: "Mapping[str, Pipeline]", *, quiet: bool) -> None:
    """Print which columns of text make most of the features, if there are many."""
    steps = (step for model in models.values() for step in getattr(model, "features_", ()))
    encode: Any = next((step for step in steps if hasattr(step, "columns_")), None)
    known = {} if encode is None else encode.columns_
    texts = {name: len(c.outputs) for name, c in known.items() if c and c.code == "O"}
    most = sorted(texts, key=texts.__getitem__, reverse=True)[:3]
    if encode is not None and 2 * sum(texts.values()) > encode.n_features_out_ > _WIDE:
        listed = ", ".join(f"{name!r} ({texts[name]})" for name in most)
        print_message(
            f"Categories are {sum(texts.values())} of {encode.n_features_out_} features, most of "
            f"them of {listed}. The time per row grows with the number of features, for least "
            "squares with its square. "
            f"--drop {quote(most[0])}, or --set encode__max_categories=10",
            quiet=quiet,
        )


def _task(stream: "Stream", source: str) -> str:
    """Return the task for the targets; raise a usage error if there is no target."""
    if stream.task is None:
        if stream.target is not None:
            next(iter(stream), None)  # raises if there are no rows
        raise CycloptsError(
            msg=f"run: {source} requires --target, the name of its target column.",
        )
    return stream.task
