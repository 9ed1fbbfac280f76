"""A model to begin with, from the first rows of a stream.

The models of :mod:`onepass.models`, except ``orfit`` and ``mirrororfit``, are evaluated
prequentially on the first rows, without lagged targets; the best three also with the last target,
and, for a numeric target, with the last target and that of a season before. The suggestion is the
candidate with the lowest error over the second half of these rows, when the learners have left
their initial state; among candidates within 1 %, the first, which is smaller or has fewer lags. It
is also measured on random earlier rows, which it may have forgotten. The error is the log loss if
all labels but one have less than 10 % of the rows together, since the proportion of wrong labels is
then that of the majority. The season is the highest local maximum of the autocorrelation of the
target.

Wide tables are compared by fewer learners and columns, so that the time is bounded: with more than
100 features, as encoded, learners that factorise matrices or compare prototypes are left out; of
more than 200 features, about 200 are used, evenly chosen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import detrend
from sklearn.base import clone

from onepass.errors import OnepassError, ParameterError, calling
from onepass.evaluate.past import PastRows
from onepass.evaluate.prequential import prequential
from onepass.features.pipeline import Pipeline
from onepass.models import names, pipelines
from onepass.stream import Rows, read
from onepass.stream.stream import Stream
from onepass.types import Array
from onepass.validation import whole
from onepass.validation.rows import concatenate_tables
from onepass.validation.table import Table

_TIE = 1.01
_CORRELATED = 0.2  # minimum autocorrelation of a season
_NEGLIGIBLE = 1e-4  # error, relative to that of the baselines
_LAGGED = 3  # learners that are evaluated with lagged targets
_RARE = 0.1  # share of the rows with a label other than the majority
_WIDTH = 100  # features up to which all learners are evaluated; twice as many are used at most
_FIRST = ("rls", "mixture")  # of candidates that are equally good
_UNSUITABLE = {"mirrororfit", "orfit"}  # noisy rows of tables exceed their memory
_SAMPLED = 200  # earlier rows
_SLOW = {"artipca", "orfit", "streaminglda", "streamingqda"}


@dataclass(frozen=True)
class Suggestion:
    """The result of :func:`suggest`; ``print`` shows the reasons.

    Parameters
    ----------
    model : Pipeline
        A new model that has learned no rows.
    name : str
        Name of the learner, as in ``onepass run --model``.
    task : str
        ``regression`` or ``classification``.
    lags : tuple of int
        The lagged targets of the model.
    reasons : tuple of str
        One sentence each about learner, lags, forgetting and memory.
    errors : dict of str to float
        Candidate or baseline -> its error on the second half of the rows: the mean absolute error,
        the proportion of wrong labels, or the log loss if labels are rare. Ascending.
    """

    model: Pipeline
    name: str
    task: str
    lags: tuple[int, ...]
    reasons: tuple[str, ...]
    errors: dict[str, float]

    @property
    def options(self) -> str:
        """Options of ``onepass run`` for the model."""
        return _label(self.name, self.lags)

    def __str__(self) -> str:
        return "\n".join([self.options, *(f"- {reason}" for reason in self.reasons)])


@calling("op.suggest")
def suggest(
    source: Any,
    target: str | Sequence[str] | None = None,
    *,
    rows: int = 2000,
    task: str | None = None,
    **reading: Any,
) -> Suggestion:
    """Suggest a learner, forgetting and lagged targets for a stream, from its first rows.

    Parameters
    ----------
    source : Stream, path, frame, or another source of ``op.stream.read``
        Its rows should be in the order in which they will arrive. The first rows of a generator are
        consumed.
    target : str or sequence of str, optional
        The target column, if the source is neither a Stream nor ``(X, y)``.
    rows : int, default=2000
        Number of rows to evaluate, at least 20.
    task : {"regression", "classification"}, optional
        By default inferred from the targets, as by ``onepass run``.
    **reading
        Further arguments of ``op.stream.read``.

    Returns
    -------
    Suggestion

    Raises
    ------
    ParameterError
        If there are fewer than 20 rows with a target, or the task is unknown.
    OnepassError
        If no learner can learn the rows, the error of the first.

    Notes
    -----
    Time: that of about twelve evaluations of the first rows: for 2,000 rows seconds, most of them
    for 100 columns. With more columns, fewer learners and at most 200 features are compared. The
    best model of the first rows need not be the best of all rows: evaluate several on the whole
    stream.

    Examples
    --------
    >>> import numpy as np
    >>> import onepass as op
    >>> load = np.sin(np.arange(1000) / 12.0 * np.pi) + np.arange(1000) / 500.0
    >>> op.suggest((np.ones((1000, 1)), load)).options
    '--model mixture --lags 1,24'
    """
    count = whole(rows, "rows", low=20)
    given = [*reading, *([] if target is None else ["target"])]
    if isinstance(source, Stream) and given:
        raise ParameterError(
            f"`{given[0]}` must be omitted for a Stream, which has its own. Pass it to "
            "op.stream.read."
        )
    stream = source if isinstance(source, Stream) else read(source, target=target, **reading)
    chosen = task or stream.task or "regression"
    X, y = _first_rows(stream, count)
    every = sorted(set(names(chosen)) - _UNSUITABLE - set(_FIRST))
    X, candidates, narrowed = _narrowed(X, y, [*_FIRST, *every], chosen)
    metric = "mae"
    if chosen == "classification":
        rare = np.unique(y, return_counts=True)[1].max() > (1.0 - _RARE) * len(y)
        metric = "log_loss" if rare else "accuracy"
    lags: list[tuple[int, ...]] = [(), (1,)]
    if chosen == "regression" and y.dtype.kind in "iuf" and (season := _season(y)):
        lags.append((1, season))
    errors: dict[str, float] = {}
    failed: OnepassError | None = None
    fitted: dict[str, tuple[str, tuple[int, ...], Pipeline]] = {}
    for lag in lags:
        for name, model in pipelines(candidates, chosen, lags=lag).items():
            label = _label(name, lag)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    errors |= _errors({label: model}, X, y, metric, baselines=not errors)
            except OnepassError as error:  # a learner that cannot learn these rows
                failed = failed or error
                continue
            fitted[label] = name, lag, model
        best = sorted(fitted, key=lambda label: errors[label])[:_LAGGED]
        candidates = candidates if lag else [fitted[label][0] for label in best]
    if not fitted and failed is not None:
        raise failed
    limit = _TIE * min(errors[label] for label in fitted) + _NEGLIGIBLE * max(errors.values())
    label = next(label for label in fitted if errors[label] <= limit)
    name, lag, model = fitted[label]
    ranked = dict(sorted(errors.items(), key=lambda pair: pair[1]))
    reasons = (*_reasons(label, fitted, ranked, metric), *_retention(model, X, y), *narrowed)
    return Suggestion(clone(model), name, chosen, lag, reasons, ranked)


def _label(name: str, lags: Sequence[int]) -> str:
    """The options of a candidate."""
    return f"--model {name}" + (f" --lags {','.join(map(str, lags))}" if lags else "")


def _first_rows(stream: Iterable[Rows], count: int) -> tuple[Table, Array]:
    """Return the first rows and their targets."""
    blocks, seen = [], 0
    for block in stream:
        blocks.append((block.X[: count - seen], block.y))
        seen += len(blocks[-1][0])
        if seen >= count:
            break
    if seen < 20 or blocks[0][1] is None:
        got = "no target" if seen and blocks[0][1] is None else f"{seen} rows"
        raise ParameterError(
            f"the stream must have a target and at least 20 rows, got {got}. Name the "
            "target with `target`, or wait for more rows."
        )
    X = concatenate_tables(tuple(rows for rows, _ in blocks))
    return X, np.concatenate([y for _, y in blocks if y is not None])[: len(X)]


def _narrowed(
    X: Table, y: Array, candidates: list[str], task: str
) -> tuple[Table, list[str], list[str]]:
    """Return the columns and learners to compare, and the reason if some are left out."""
    try:
        sample = pipelines(["sgd"], task)["sgd"].partial_fit(X[:_WIDTH], y[:_WIDTH])
    except OnepassError:  # raised again by the candidates
        return X, candidates, []
    width = sample.learner_.n_features_in_
    if width <= _WIDTH:
        return X, candidates, []
    chosen = X.names[:: -(-width // (2 * _WIDTH))]
    reason = f"Compared without slower learners, on {len(chosen)} of {len(X.names)} columns."
    X = Table({name: X[name] for name in chosen}, len(X))
    return X, [name for name in candidates if name not in _SLOW], [reason]


def _errors(
    models: dict[str, Pipeline], X: Any, y: Array, metric: str, *, baselines: bool
) -> dict[str, float]:
    """The error of each model over the second half of the rows."""
    report = prequential(models, (X, y), metric, baselines=baselines, window=len(X) // 2)
    found = {name: (score.recent or {})[metric] or 0.0 for name, score in report.scores.items()}
    return {name: 1.0 - value if metric == "accuracy" else value for name, value in found.items()}


def _season(y: Array) -> int | None:
    """The lag of the highest local maximum of the autocorrelation; None if it is too low."""
    z = y.reshape(len(y), -1).astype(float)
    z = detrend(z / (z.std(axis=0) + np.abs(z).max(axis=0) * _NEGLIGIBLE + 1e-300), axis=0)
    n = len(z)
    spectrum = np.abs(np.fft.rfft(z, 2 * n, axis=0)) ** 2
    r = np.fft.irfft(spectrum.mean(axis=1))[: n // 3] / (n - np.arange(n // 3))
    peaks = 1 + np.flatnonzero((r[1:-1] > r[:-2]) & (r[1:-1] >= r[2:]))
    high = peaks[r[peaks] > _CORRELATED * r[0]]
    return int(high[np.argmax(r[high] >= 0.9 * r[high].max())]) if len(high) else None


def _retention(model: Pipeline, X: Any, y: Array) -> Iterable[str]:
    """Yield a sentence if a model without lags predicts random earlier rows worse than before."""
    if model._target_delay is not None:  # noqa: SLF001
        return
    sample, again = PastRows(_SAMPLED), clone(model)
    sample.add(X, y, {"": again.test_then_train(X, y)})
    errors = sample.errors("", again)
    if errors.forgotten:
        what = "mean absolute error" if errors.numbers else "share of wrong labels"
        recalled = "" if errors.recalled is None else f", {errors.recalled:.4g} with recall"
        yield (
            f"Predictions are for the next row: of {errors.rows} random earlier rows the {what} "
            f"was {errors.before:.4g} before each was learned, and is {errors.now:.4g} at the end"
            f"{recalled}."
        )


def _reasons(
    label: str,
    fitted: dict[str, tuple[str, tuple[int, ...], Pipeline]],
    errors: dict[str, float],
    metric: str,
) -> Iterable[str]:
    """Yield the reasons for a candidate."""
    name, lags, model = fitted[label]
    kind = {"accuracy": "classification error", "mae": "mean absolute error"}.get(
        metric, "log loss"
    )
    others = [other for other in errors if other in fitted and fitted[other][0] != name]
    baselines = [other for other in errors if other not in fitted]
    compared = [*others[:1], *baselines]
    listed = ", ".join(f"{other} {errors[other]:.4g}" for other in compared)
    yield f"{kind} on the second half of the rows: {errors[label]:.4g} ({listed})."
    if baselines and errors[baselines[0]] < errors[label]:
        yield f"No model is better than the baseline {baselines[0]!r} on these rows."
    plain, lagged = errors.get(_label(name, ())), errors.get(_label(name, (1,)))
    if lags and plain is not None:
        yield f"Lagged targets reduce the error from {plain:.4g}."
    elif lagged is not None:
        yield f"With the last target as a feature the error is {lagged:.4g}."
    factor = getattr(model.learner_, "forgetting_factor_", None)
    if factor is not None:
        least = float(np.min(factor))
        half_life = np.inf if least == 1.0 else -np.log(2.0) / np.log(least)
        yield (
            "Forgetting is automatic; no forgetting leads so far."
            if np.isinf(half_life)
            else f"Forgetting is automatic; a half-life of {half_life:.0f} rows leads so far."
        )
    yield f"The learned state takes {model.nbytes / 1024:,.1f} KiB and does not grow with the rows."
