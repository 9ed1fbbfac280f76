"""Function ``fit``: learn files one by one, in parallel, and merge their models.

A merge of sums is exact, but rounds. So that the same shards give the same bits on every engine, in
every run and after a restart, models are merged in a fixed tree: neighbours in pairs, level by
level, whichever shard ends first. This process merges them: a merge costs O(p³), less than the
O(n p²) of learning a shard of n rows and p weights if n is much larger than p.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.base import clone
from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

from onepass.errors import (
    EmptySourceError,
    MergeError,
    OnepassError,
    ParameterError,
    RowsRefusedWarning,
    SourceError,
    TypeMismatchError,
    calling,
)
from onepass.scale.engines import ENGINES
from onepass.scale.shards import SUMMARIES, Shard, Summary, Task, learn
from onepass.serialization.atomic import write_errors
from onepass.serialization.codec import state_dict
from onepass.stream.files import File, is_url
from onepass.stream.formats import FoundFile, ReadOptions, format_of
from onepass.stream.read import find_files, read
from onepass.stream.stream import Stream
from onepass.validation.rows import Rows

_WHERE = "op.scale.fit"


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit.

    Parameters
    ----------
    shard : str
        The shard that was finished last.
    rows : int
        Number of rows learned so far.
    done, total : int
        Number of shards finished so far, and of all.
    """

    shard: str
    rows: int
    done: int
    total: int


@dataclass(frozen=True)
class FitReport:
    """Result of a fit.

    Parameters
    ----------
    model : learner or Pipeline
        The model that has learned the rows of all shards.
    merging : {"exact", "approximate"}
        Whether the model equals that of one pass, to rounding; see :doc:`merging`.
    rows, bad_rows : int
        Number of rows learned, and of invalid rows skipped because of ``bad_rows="skip"``.
    shards, reused : int
        Number of shards learned, and how many of them by a former run with the same ``workdir``.
    skipped : dict of str to str
        The shards left out because of ``on_bad_shard="skip"``, with their errors.
    """

    model: Any
    merging: str
    rows: int = 0
    bad_rows: int = 0
    shards: int = 0
    reused: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


@calling("op.scale.fit")
def fit(
    model: Any,
    shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str | Sequence[str],
    engine: str = "local",
    workers: int | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_bad_shard: str = "error",
    restart: bool = False,
    on_progress: Callable[[FitProgress], object] | None = None,
    **options: Any,
) -> FitReport:
    r"""Learn files in parallel, and merge their models in a fixed order.

    A new copy of the model learns each file (shard), block by block, and is stored as its summary
    in ``workdir``. The summaries are merged in pairs of neighbours, level by level, so that the
    result has the same bits for each engine, number of workers and run. Where ``merging`` is
    ``"exact"``, it equals the model of one pass over the shards in their order, to rounding. With
    forgetting, later shards thus count more.

    Parameters
    ----------
    model : learner or Pipeline
        A model whose tag ``merging`` is ``"exact"`` or ``"approximate"``. It is not changed, and
        what it has learned is ignored.
    shards : path, address, pattern, folder, or list of paths and addresses
        Files as in :func:`onepass.stream.read`, which must have the same columns; the first one
        that has rows determines their types. Patterns and folders are
        read in natural order, lists in the given order.
    target : str or list of str
        The target column, or a list of them.
    engine : {"local", "ray", "dask", "spark", "beam"}
        What runs the shards: processes of this machine (default), or the Ray, Dask or Spark cluster
        to which this process is connected, otherwise a new one on this machine. Ray also connects
        to a cluster that ``ray.init`` finds. Beam uses its default options. Each worker must be
        able to read the shards and to write to ``workdir``.
    workers : int, optional
        Number of shards that are learned at a time, each with one thread. By default 1 for
        ``"local"``, without further processes; otherwise as many as the cluster can run. It has no
        effect on a Dask cluster or Spark session that exists.
    workdir : path, optional
        Folder of the summaries, one file per shard, which all workers share. If it has valid
        summaries of a former run, their shards are not learned again, unless they have changed. By
        default a temporary folder.
    on_bad_shard : {"error", "skip"}
        How to handle a shard that cannot be read or learned: stop (default), or leave the whole
        shard out, with a warning.
    restart : bool
        Whether to discard the summaries in ``workdir``.
    on_progress : callable, optional
        Called with a :class:`FitProgress` after each shard.
    **options
        Options of :func:`onepass.stream.read`, such as ``drop``, ``time``, ``types`` or
        ``bad_rows``.

    Returns
    -------
    FitReport

    Raises
    ------
    SourceError
        If there are no shards, or one of them is damaged, changes while it is read, or cannot be
        learned; the message names it.
    TypeMismatchError
        If ``model`` is of another type.
    MergeError
        If models of this kind, or the models of two shards, cannot be merged.
    ParameterError
        If an option is invalid, or ``workdir`` has summaries of another model, target or options.
    ProcessError
        If worker processes ended early repeatedly, or Spark cannot be started.
    MissingExtraError
        If the engine is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from onepass import RLSRegressor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(4):
    ...         rows = f"x,y\n{i},{2 * i}\n{i + 1},{2 * i + 2}\n"
    ...         _ = Path(folder, f"{i}.csv").write_text(rows)
    ...     report = fit(RLSRegressor(), f"{folder}/*.csv", target="y")
    >>> report.rows, report.merging, round(float(report.model.coef_[0]), 6)
    (8, 'exact', 2.0)
    """
    return fit_shards(
        model, shards, target=target, engine=engine, workers=workers, workdir=workdir,
        on_bad_shard=on_bad_shard, restart=restart, on_progress=on_progress, **options,
    )  # fmt: skip


@calling("op.scale.fit")
def fit_shards(
    model: Any,
    shards: Any,
    *,
    target: str | Sequence[str],
    engine: str,
    workers: int | None,
    workdir: str | os.PathLike[str] | None,
    on_bad_shard: str,
    restart: bool,
    on_progress: Callable[[FitProgress], object] | None,
    binary: bool = False,
    **options: Any,
) -> FitReport:
    """Learn shards; see ``fit``. If ``binary``, targets other than 0 and 1 are errors."""
    _check(model, engine, workers, workdir, on_bad_shard, options)
    with ExitStack() as stack:
        if workdir is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="onepass-")))
        else:
            folder = Path(os.path.abspath(workdir))  # noqa: PTH100  of another process too
            with write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                for old in folder.glob(SUMMARIES) if restart else ():
                    old.unlink()
        chosen = _shards(shards, options)
        options = {**options, "target": target}
        task = _task(model, chosen, options, folder, skip=on_bad_shard == "skip", binary=binary)
        run = _Run(task, chosen, skip=on_bad_shard == "skip", on_progress=on_progress)
        stack.enter_context(threadpool_limits(1))
        left = run.resume()
        with closing(ENGINES[engine](task, left, workers)) as calls:
            for shard in calls:
                run.add(shard, task.summary(shard))
    return run.report(get_tags(model).merging, reused=len(chosen) - len(left))


class _Run:
    """The shards finished so far, and the merged models of neighbours."""

    def __init__(
        self,
        task: Task,
        shards: Sequence[Shard],
        *,
        skip: bool,
        on_progress: Callable[[FitProgress], object] | None,
    ) -> None:
        self._task, self._shards, self._skip = task, shards, skip
        self._notify = on_progress
        self._nodes: dict[tuple[int, int], Any] = {}  # (level, position) -> model, None if no rows
        self._rows = self._bad_rows = self._done = 0
        self._skipped: dict[int, str] = {}

    def resume(self) -> list[Shard]:
        """Add the shards that a former run has learned; return the others."""
        left = []
        for shard in self._shards:
            summary = self._task.summary(shard)
            if summary is None or summary.error:
                left.append(shard)
            else:
                self.add(shard, summary)
        return left

    def add(self, shard: Shard, summary: Summary | None) -> None:
        """Add the summary of a shard, and merge the models of complete neighbours."""
        if summary is None:
            raise SourceError(
                f"the summary of shard {shard} must be in `workdir` after it was "
                f"learned, got none in {self._task.folder} for the present file. Use a "
                "folder that all workers share, and do not change shards meanwhile.",
                _WHERE,
            )
        if summary.error:
            if not self._skip or summary.fatal:
                raise _bad_shard(shard, summary.error)
            self._skipped[shard.index] = summary.error
        self._rows += summary.rows
        self._bad_rows += summary.bad_rows
        self._done += 1
        self._merge(shard.index, summary.model)
        if self._notify is not None:
            self._notify(FitProgress(str(shard), self._rows, self._done, len(self._shards)))

    def _merge(self, i: int, model: Any) -> None:
        """Add the model at position i of the lowest level, and merge upwards."""
        level, width = 0, len(self._shards)
        while width > 1:
            if i ^ 1 < width:  # otherwise the last of an odd number, which moves up alone
                if (level, i ^ 1) not in self._nodes:
                    break
                pair = model, self._nodes.pop((level, i ^ 1))
                model = self._merged(*(pair[::-1] if i % 2 else pair), level, i)
            level, i, width = level + 1, i // 2, (width + 1) // 2
        self._nodes[level, i] = model

    def _merged(self, one: Any, two: Any, level: int, i: int) -> Any:
        """Merge two neighbours, each None if it has no rows."""
        if one is None or two is None:
            return two if one is None else one
        try:
            return one.merge(two)
        except MergeError as error:
            left, right = (self._shards[(j) << level] for j in (i & ~1, i | 1))
            raise MergeError(
                f"the models of {2**level} shard(s) from {left} and of the next from "
                f"{right} must be mergeable, got: {error}",
                _WHERE,
            ) from error

    def report(self, merging: str, *, reused: int) -> FitReport:
        """Return the report; warn about skipped shards."""
        (model,) = self._nodes.values()
        skipped = {str(self._shards[i]): error for i, error in sorted(self._skipped.items())}
        if model is None:
            raise SourceError(
                "at least one shard must have rows that can be learned, got none of "
                f"{len(self._shards)}{''.join(f'; {n}: {e}' for n, e in [*skipped.items()][:1])}.",
                _WHERE,
            )
        if skipped:
            warnings.warn(
                f"{_WHERE}: {len(skipped)} of {len(self._shards)} shards were left out: "
                f"{'; '.join(f'{name}: {error}' for name, error in skipped.items())}",
                RowsRefusedWarning,
                stacklevel=5,
            )
        return FitReport(
            model, merging, self._rows, self._bad_rows, self._done - len(skipped), reused, skipped
        )


def _bad_shard(shard: Shard, error: object) -> SourceError:
    """Return the error for a shard that cannot be learned."""
    return SourceError(
        f"shard {shard} (number {shard.index + 1}) must be a complete file that the "
        f"model can learn, got: {error} Fix it and fit again, or leave it out with "
        "on_bad_shard='skip' (--on-bad-shard skip).",
        _WHERE,
    )


def _check(
    model: Any, engine: str, workers: object, workdir: Any, on_bad_shard: str,
    options: Iterable[str],
) -> None:  # fmt: skip
    """Check the arguments."""
    ranges: dict[str, tuple[object, object, str]] = {
        "engine": (engine, engine in ENGINES, f"one of {', '.join(ENGINES)}"),
        "workers": (workers, workers is None or (type(workers) is int and workers > 0), ">= 1"),
        "on_bad_shard": (on_bad_shard, on_bad_shard in {"error", "skip"}, "'error' or 'skip'"),
        "workdir": (
            workdir, workdir is None or not is_url(os.fspath(workdir)), "a folder, not an address"
        ),
    }  # fmt: skip
    for name, (value, valid, expected) in ranges.items():
        if not valid:
            raise ParameterError(f"`{name}` must be {expected}, got {value!r}.", _WHERE)
    if extra := {"start", "leave_unterminated"} & set(options):
        raise ParameterError(
            f"{min(extra)!r} must be omitted, as shards are learned as a whole, got a "
            "value. Omit it.",
            _WHERE,
        )
    fits = hasattr(model, "merge") and hasattr(model, "partial_fit")
    if isinstance(model, type) or not fits:
        raise TypeMismatchError(
            "`model` must be a learner of onepass or a Pipeline, which can be merged, "
            f"got {model!r}. Choose one of those, such as op.RLSRegressor().",
            _WHERE,
        )
    if get_tags(model).merging == "refused":
        reason = "got one whose tag `merging` is 'refused'. Leave out the steps that prevent it."
        try:
            clone(model).merge(clone(model))
        except MergeError as refused:
            reason = str(refused.at(where=""))
        raise MergeError(f"the models of shards must be mergeable: {reason}", _WHERE)


def _shards(source: Any, options: dict[str, Any]) -> list[Shard]:
    """Return the files to learn, with absolute paths, since workers may have other folders."""
    found, _ = find_files(source, ReadOptions(format=options.get("format")))
    shards = []
    for i, (file, partitions) in enumerate(found):
        if file.local and not file.is_file():
            raise SourceError(
                f"shards must be regular files, which can be read again, got {file}. "
                "Write its rows to files first.",
                _WHERE,
            )
        absolute = File(os.path.abspath(file.path)) if file.local else file  # noqa: PTH100
        shards.append(Shard(i, FoundFile(absolute, partitions)))
    return shards


def _task(
    model: Any, shards: Sequence[Shard], options: dict[str, Any], folder: Path, *, skip: bool,
    binary: bool,
) -> Task:  # fmt: skip
    """Return the task, with the types of the columns of the first shard that has rows."""
    state = state_dict(clone(model), f"{_WHERE}: the model")
    shard, stream, rows = _first(shards, options, skip=skip)
    types = {name: kind for name, kind in stream.fingerprint["columns"].items() if kind is not None}
    typed = {**options, "dtypes": {**types, **(options.get("dtypes") or {})}}
    fixed = format_of(shard.found.file.name) != "jsonl"
    task = Task(state, typed, sorted(rows.X.names) if fixed else None, str(folder), binary)
    first = task.model()
    try:  # invalid parameters of the model are errors before any work
        learn(first, rows)
    except ParameterError:
        raise
    except OnepassError:
        pass  # of the row
    return task


def first_task(source: Any, *, skip: bool, **options: Any) -> str | None:
    """Return the task of the targets, from the first shard that has rows.

    Parameters
    ----------
    source : path, address, pattern, folder, or list of paths and addresses
        As ``shards`` of :func:`fit`.
    skip : bool
        Whether unreadable shards are left out.
    **options
        As those of :func:`fit`.
    """
    return _first(_shards(source, options), options, skip=skip)[1].task


def _first(
    shards: Sequence[Shard], options: dict[str, Any], *, skip: bool
) -> tuple[Shard, Stream, Rows]:
    """Return the first shard that has rows, its stream and its first block."""
    error: SourceError | None = None
    for shard in shards:
        try:
            stream = read(shard.found, **options)
            return shard, stream, next(iter(stream))
        except ParameterError:
            raise
        except EmptySourceError:
            continue
        except OnepassError as unreadable:
            error = _bad_shard(shard, unreadable)
            if not skip:
                raise error from unreadable
    raise error or SourceError(
        f"at least one shard must have rows, got none of {len(shards)}. Check the files.", _WHERE
    )
