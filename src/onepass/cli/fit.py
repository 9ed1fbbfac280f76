"""Command ``fit``: learn the files of a table in parallel, and save the merged model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onepass.cli.arguments import (
    Count,
    Files,
    Names,
    Quiet,
    Settings,
    Source,
    check_not_overwritten,
    usage_errors,
    values,
)
from onepass.cli.terminal import INTERRUPTED, advancing, print_message, terminable

if TYPE_CHECKING:
    from onepass.scale import FitProgress


def fit(
    source: Source,
    /,
    *more: str,
    target: Names,
    save: Path,
    model: str = "rls",
    task: Literal["regression", "classification"] | None = None,
    by: str | None = None,
    time: str | None = None,
    files_as: Files = Files(),  # noqa: B008  it is frozen
    missing: Literal["impute", "skip", "error"] = "impute",
    settings: Settings = (),
    engine: Literal["local", "ray", "dask", "spark", "beam"] = "local",
    workers: Count | None = None,
    workdir: Path | None = None,
    on_bad_shard: Literal["error", "skip"] = "error",
    restart: bool = False,
    quiet: Quiet = False,
) -> int:
    """Learn files (shards) in parallel, each with its own model, and save the merged model.

    The model equals that of one pass over all files, to rounding, if its merge is exact; otherwise
    a message says that it is approximate. Rows are not predicted; "onepass run" scores a model.

    Parameters
    ----------
    source
        A quoted pattern, a folder, a file or a URL of these.
    *more
        Further files, learned in this order.
    target
        Target column, or several separated by commas.
    save
        File for the model, such as m.onepass.
    model
        The model: rls (default, here without forgetting, unless --set rls__forgetting), orfit,
        nearestclassmean, streaminglda, streamingqda, artipca. Columns are not standardised, as the
        statistics of the files differ.
    task
        Task of the model. By default inferred from the targets of the first file.
    by
        Key column, such as a device: each key has its own copy of the model. Not used as a feature.
    time
        Column with the time of each row, for models that forget by time.
    files_as
        Options for reading files.
    missing
        How to handle missing features: impute (default), skip or error.
    settings
        Parameter of a model or feature, such as rls__ridge=10.
    engine
        What runs the shards: local (default), ray, dask, spark or beam.
    workers
        Number of shards learned at a time; local: 1 by default.
    workdir
        Folder of the summaries, one file per shard, that all workers share. The same command
        continues an interrupted fit there. By default a temporary folder.
    on_bad_shard
        How to handle a file that cannot be read or learned: error (default), or skip it and report
        it.
    restart
        Discard the summaries in --workdir.
    quiet
        Print no messages.
    """
    from sklearn.utils import get_tags

    from onepass.features.pipeline import Pipeline
    from onepass.learners.keyed import Keyed
    from onepass.models import pipelines
    from onepass.scale.fit import first_task, fit_shards
    from onepass.serialization.models import save as saved

    policy = "keep" if missing == "impute" else missing
    shards = [source, *more] if more else source
    options: dict[str, Any] = {
        "target": list(target) if len(target) > 1 else target[0], "time": time,
        "missing": policy, **files_as.options(),
        "dtypes": dict.fromkeys(target, "number") if task == "regression" else None,
    }  # fmt: skip
    fraction: float | None = None

    with terminable() as code, advancing(lambda: fraction, quiet=quiet) as advance:

        def notify(progress: "FitProgress") -> None:
            nonlocal fraction
            fraction = progress.done / progress.total
            advance(progress.rows)

        try:
            with usage_errors("fit", settings=settings):
                check_not_overwritten([source, *more], [save], "fit: --save")
                save.parent.mkdir(parents=True, exist_ok=True)
                chosen = task or first_task(shards, skip=on_bad_shard == "skip", **options)
                plain = {"rls__forgetting": 1.0} if model == "rls" else {}
                fixed = {"encode__missing": policy, **plain, **values(settings)}
                one: Any = pipelines([model], str(chosen), fixed)[model]
                if get_tags(one).merging == "refused":
                    *features, learner = one.steps
                    exact = (step for step in features if get_tags(step).merging == "exact")
                    one = Pipeline(*exact, learner)  # without Scale
                report = fit_shards(
                    one if by is None else Keyed(one, by=by), shards, engine=engine,
                    workers=workers, workdir=workdir, on_bad_shard=on_bad_shard, restart=restart,
                    binary=task is None and chosen == "classification", on_progress=notify,
                    **options,
                )  # fmt: skip
        except KeyboardInterrupt:
            print_message(
                "Interrupted; no model was saved. With --workdir, a fit continues where it ended."
                if workdir is None
                else "Interrupted. The same command continues with the other shards.",
                quiet=quiet,
            )
            if code() == INTERRUPTED:
                raise
            return code()
    saved(report.model, save)
    kind = "" if report.merging == "exact" else f", {report.merging} merge"
    again = f", {report.reused:,} of them learned before" if report.reused else ""
    bad = f" Bad rows skipped: {report.bad_rows:,}." if report.bad_rows else ""
    print_message(
        f"{report.rows:,} rows of {report.shards:,} shards{again}{kind}: {save}{bad}", quiet=quiet
    )
    return 0
