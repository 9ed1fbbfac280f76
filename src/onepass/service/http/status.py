"""Status of learners for the page, and metrics in the text format of Prometheus (0.0.4).

Messages to clients omit folder names; the log contains full paths.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from onepass.serialization.state import nbytes
from onepass.service.durable import Version
from onepass.service.registry import ModelRegistry, ModelServer

_FOLDERS = re.compile(r"(?:(?<=[\s'\"(=])|^)(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")
"""Matches the folders of an absolute path, but not a URL such as redis://…"""


def pathless(text: str, folder: Path) -> str:
    """Remove folders from a message.

    Parameters
    ----------
    text : str
    folder : Path
        Folder of the learners' files; may be a relative path, and may contain blanks.

    Examples
    --------
    >>> pathless("/srv/my data/flow.db could not be read, see /var/log/disk.", Path("/srv/my data"))
    'flow.db could not be read, see disk.'
    """
    paths = {os.path.realpath(folder), str(folder.absolute()), str(folder)} - {".", os.sep}
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(f"{path.rstrip(os.sep)}{os.sep}", "")
    return _FOLDERS.sub("", text)


@cache
def onepass_version() -> str:
    """Return the installed version of onepass."""
    return version("onepass")


# -- GET /state -----------------------------------------------------------------------------------


class BaselineState(msgspec.Struct):
    """Prequential error of a prediction without features, over the same rows as the model's."""

    name: str
    all: float | None
    window: float | None


class PrequentialErrorState(msgspec.Struct):
    """Prequential error over all rows, over the last ``window_rows``, and along the stream.

    ``r2`` is R² over the last rows, null for classification. ``curve`` has at most 400 points
    ``[rows, all, window, at, window of the baseline]`` of the whole stream, and 150 of each of the
    last hour, day and week.
    """

    name: str
    all: float | None
    window: float | None
    window_rows: int
    r2: float | None
    baseline: BaselineState
    curve: list[tuple[int, float | None, float | None, float | None, float | None]] | UnsetType = (
        UNSET
    )


class RateState(msgspec.Struct):
    """Rows per second over the last ten seconds; curve ``[seconds ago, learned, predicted]``."""

    learned: float
    predicted: float
    curve: list[tuple[int, int, int]] | UnsetType = UNSET


class DurationState(msgspec.Struct):
    """Median and 99th percentile of request durations in seconds, since the start."""

    p50: float | None
    p99: float | None


class LatencyState(msgspec.Struct):
    """Durations of requests to learn and to predict."""

    learn: DurationState
    predict: DurationState


class DriftState(msgspec.Struct):
    """An alarm of a drift detector: number of rows, time and detector."""

    rows: int
    at: float
    detector: str


class RefusalState(msgspec.Struct):
    """Refusals of one reason: last and first time, numbers of refusals and rows, last message."""

    at: float
    first: float
    times: int
    rows: int
    why: str


class ModelState(msgspec.Struct):
    """A model; if its file could not be opened, only ``name``, ``ready`` and ``error``.

    ``class`` and ``parameters`` are the class and the arguments of its constructor, such as
    ``"RLSRegressor"`` and ``"ridge=1e-06"``; ``version`` is the number of blocks learned, including
    rollbacks; ``labels_pending`` is the number of predicted rows that wait for their labels;
    ``detectors`` states whether each drift detector is active; ``positions`` contains the position
    in each source, null if no row of the source was learned yet.
    """

    name: str
    ready: bool
    error: str | None
    class_: str | UnsetType = msgspec.field(default=UNSET, name="class")
    parameters: str | UnsetType = UNSET
    version: int | UnsetType = UNSET
    rows_seen: int | UnsetType = UNSET
    rows_refused: int | UnsetType = UNSET
    nbytes: int | UnsetType = UNSET
    labels_pending: int | UnsetType = UNSET
    prequential_error: PrequentialErrorState | UnsetType = UNSET
    rates: RateState | UnsetType = UNSET
    latency: LatencyState | UnsetType = UNSET
    drift: list[DriftState] | UnsetType = UNSET
    refused: list[RefusalState] | UnsetType = UNSET
    snapshots: list[Version] | UnsetType = UNSET
    detectors: dict[str, bool] | UnsetType = UNSET
    positions: dict[str, str | None] | UnsetType = UNSET


class State(msgspec.Struct):
    """All models, the server's clock and version of onepass, and the roles of the request's token.

    Without tokens, each request has all roles. Times are seconds since 1970, durations seconds,
    sizes bytes.
    """

    now: float
    onepass: str
    roles: list[str]
    models: list[ModelState]


def state(registry: ModelRegistry, roles: Collection[str], curves: Collection[str] = ()) -> State:
    """Return the state of all models.

    Parameters
    ----------
    registry : ModelRegistry
    roles : collection of str
        Roles of the request.
    curves : collection of str
        Models whose curves to include; by default, those of all models.
    """
    failed = [
        ModelState(name, ready=False, error=pathless(reason, registry.folder))
        for name, reason in list(registry.failed.items())
    ]
    models = [
        _model_state(served, registry.folder, curve=not curves or served.name in curves)
        for served in registry
    ]
    return State(time.time(), onepass_version(), sorted(roles), models + failed)


def _model_state(served: ModelServer, folder: Path, *, curve: bool) -> ModelState:
    durable, gauges = served.durable, served.gauges
    rates = gauges.rates()
    if not curve:
        del rates["curve"]
    text = pathless(repr(durable.frozen_copy).partition("(")[2], folder)
    error = served.error or served.source_error or gauges.drift.error
    sources = {each.source.name: None for each in served.consumers if not each.positions}
    return msgspec.convert(
        {
            "name": served.name,
            "ready": served.ready,
            "error": error and pathless(error, folder),
            "class": type(durable.frozen_copy).__name__,
            "parameters": text.removesuffix(")")[:1000],
            "version": durable.version,
            "rows_seen": durable.rows_seen,
            "rows_refused": gauges.rows_refused,
            "nbytes": nbytes(durable.frozen_copy),
            "labels_pending": served.writer.pending,
            "prequential_error": gauges.prequential_error(curve=curve),
            "rates": rates,
            "latency": gauges.latency(),
            "drift": list(gauges.drift.marks),
            "refused": gauges.refused[::-1],
            "snapshots": durable.versions,
            "detectors": gauges.drift.active_detectors(),
            "positions": {**sources, **durable.positions},
        },
        ModelState,
        from_attributes=True,
    )


# -- GET /metrics ---------------------------------------------------------------------------------


_Values = dict[tuple[str, ...], float | None]  # by label values; None: no sample


def _errors(served: ModelServer, *, baseline: bool = False) -> _Values:
    error = served.gauges.prequential_error(curve=False)
    values = error["baseline"] if baseline else error
    return {(error["name"], over): values[over] for over in ("all", "window")}


_FAMILIES: tuple[tuple[Any, str, str, tuple[str, ...], Callable[[ModelServer], _Values]], ...] = (
    (CounterMetricFamily, "rows_learned", "Rows learned, including before restarts.", (),
     lambda s: {(): s.durable.rows_seen}),
    (CounterMetricFamily, "blocks_learned", "Blocks learned, which is the version.", (),
     lambda s: {(): s.durable.version}),
    (CounterMetricFamily, "rows_predicted", "Rows predicted.", (),
     lambda s: {(): s.gauges.predicted_rows}),
    (CounterMetricFamily, "rows_refused", "Rows rejected.", (),
     lambda s: {(): s.gauges.rows_refused}),
    (GaugeMetricFamily, "prequential_error",
     "Prequential error: each row is predicted before it is learned.",
     ("measure", "over"), _errors),
    (GaugeMetricFamily, "baseline_error",
     "Prequential error of the mean, or of the most frequent label, of earlier rows.",
     ("measure", "over"), partial(_errors, baseline=True)),
    (GaugeMetricFamily, "r2", "R² over the last rows of a regression.", (),
     lambda s: {(): s.gauges.prequential_error(curve=False)["r2"]}),
    (GaugeMetricFamily, "innovation", "Target minus prediction over the last rows.", ("statistic",),
     lambda s: {(k,): v for k, v in s.gauges.innovations().items()}),
    (CounterMetricFamily, "drift_alarms", "Alarms of the drift detectors.", (),
     lambda s: {(): s.gauges.drift.alarms}),
    (GaugeMetricFamily, "drift_detector_active", "Whether a drift detector is active.",
     ("detector",),
     lambda s: {(k,): v for k, v in s.gauges.drift.active_detectors().items()}),
    (CounterMetricFamily, "outliers",
     "Rows whose error exceeds six times the root mean square of earlier errors.", (),
     lambda s: {(): s.gauges.outliers}),
    (CounterMetricFamily, "schema_violations", "Rows that do not conform to the schema.", (),
     lambda s: {(): None if s.schema is None else s.schema.violations}),
    (GaugeMetricFamily, "rows_queued", "Rows queued to be learned.", (),
     lambda s: {(): s.queued}),
    (GaugeMetricFamily, "labels_pending", "Predicted rows that wait for their labels.", (),
     lambda s: {(): s.writer.pending}),
    (GaugeMetricFamily, "memory_bytes", "Size of the learned state.", (),
     lambda s: {(): nbytes(s.durable.frozen_copy)}),
    (CounterMetricFamily, "commit_seconds", "Time in which blocks were written to the disk.", (),
     lambda s: {(): s.writer.commit_seconds}),
    (CounterMetricFamily, "commits", "Groups of requests written to the disk.", (),
     lambda s: {(): s.writer.commits}),
    (GaugeMetricFamily, "log_bytes", "Size of SQLite's write-ahead log.", (),
     lambda s: {(): s.writer.journal.log_bytes}),
    (GaugeMetricFamily, "ready", "Whether the model can learn.", (), lambda s: {(): s.ready}),
    (GaugeMetricFamily, "source_ready", "Whether a source can be read.", ("source",),
     lambda s: {(c.source.name,): c.error is None for c in s.consumers}),
    (GaugeMetricFamily, "source_lag", "Unread entries of a source.",
     ("source",), lambda s: {(c.source.name,): c.lag for c in s.consumers}),
)  # fmt: skip


class _Models(Collector):
    """Collector of a server's metrics."""

    def __init__(self, registry: ModelRegistry, statuses: Mapping[int, int]) -> None:
        self._registry, self._statuses = registry, statuses

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families with their samples."""
        info = GaugeMetricFamily("onepass_info", "Version of onepass.", labels=("version",))
        info.add_metric((onepass_version(),), 1.0)
        requests = CounterMetricFamily(
            "onepass_requests", "Requests by status.", labels=("status",)
        )
        # failures from zero on: increase() does not see the first value of a new series
        for status, count in sorted({500: 0, 503: 0, 507: 0, **self._statuses}.items()):
            requests.add_metric((str(status),), count)
        durations = Metric("onepass_request_seconds", "Duration of requests.", "histogram")
        for served in self._registry:
            for sample, verb, seconds in served.gauges.duration_samples():
                durations.add_sample(sample, {"model": served.name, **verb}, seconds)
        yield from (info, requests, durations)
        for kind, name, documentation, labels, values in _FAMILIES:
            family = kind(f"onepass_{name}", documentation, labels=("model", *labels))
            for served in self._registry:
                for label_values, value in values(served).items():
                    if value is not None:
                        family.add_metric((served.name, *label_values), value)
            for failed in self._registry.failed if name == "ready" else ():
                family.add_metric((failed,), 0.0)
            yield family


def exposition(registry: ModelRegistry, statuses: Mapping[int, int]) -> str:
    """Return the metrics of all models in the text format of Prometheus.

    Parameters
    ----------
    registry : ModelRegistry
    statuses : mapping of int to int
        Number of requests by status.
    """
    collectors = CollectorRegistry()
    collectors.register(_Models(registry, statuses))
    ProcessCollector(registry=collectors)  # process_cpu_seconds_total, process_open_fds, …
    return generate_latest(collectors).decode()
