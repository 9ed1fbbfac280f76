"""Survey of RLSRegressor on streams like users' data, against batch least squares.

    PYTHONPATH=src:tests python tests/learners/least_squares_survey.py --cases 1000 --jobs 2
    PYTHONPATH=src:tests python tests/learners/least_squares_survey.py --rule window --cases 100

A case is drawn from its seed: a signal (`realistic_signals.py`), its size, a ridge, a rule of
forgetting and a way to learn the stream. It is learned in all ways, and read at pairs of
checkpoints `AHEAD` rows apart, by the public interface only. The batch problem at row n is ::

    minimise over w and b   Σ_k v_k (y_k − b − x_kᵀ w)² + f ridge ‖w‖²                      (1)

with the weights v of the rule and the factor f by which its ridge has faded. A case is wrong if

refused
    a way raises an exception;
nonfinite
    a prediction is not finite;
objective
    at a checkpoint, the root of (1) is more than 1.01 times that of batch, which is at least 1e-7
    of the weighted size of y. Only for rules that minimise (1). Every backward stable method
    attains the least objective, whatever the condition number; but with a ridge below 1e-15 of a
    column's sum of squares it is compared only where the scaled condition number of (1) is less
    than 1e7: such a ridge resolves columns to 3e-8 of their lengths until they are determined,
    which predicts better than exact interpolation;
prediction
    the root mean square error on the next rows is more than 1.5 times that of batch at more than
    a tenth of the checkpoints (rounded up), or more than 10 times at one of them. The error of
    batch counts as at least `SMALL` deviations of y, and as one deviation before row 2 d. Rules
    that fade and do not minimise (1) are compared with the larger error of two batch fits, faded
    by their factor and not faded. Automatic forgetting, which selects factors by the errors of
    each next row, predicts the next rows one after the other, and is compared with batch that does
    not fade, and at least one deviation;
cutting
    predictions of the next rows differ between the ways by more than 1e-6 max|y| (Bounded and
    automatic forgetting: 1e-4), where the rows before determine them: there are at least 2 d, the
    condition number of the weighted rows and the ridge, in units of each column's norm, is less
    than 1e7, and the leverage of the predicted row is at most 10. The error of every backward
    stable method is then about 1e7 times the rounding error, or less.

Textbook QRD-RLS, whose rank is decided by an SVD when it is read, is measured beside it. The exit
status is 1 if a case with a ridge is wrong, or if more cases with ridge 0 are wrong than for the
textbook.
"""

import argparse
import multiprocessing
import sys
import time as clock
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from realistic_signals import SIGNALS
from threadpoolctl import threadpool_limits

import onepass as op

Floats = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
AHEAD = 20
"""Rows after a checkpoint that are predicted."""
SMALL = 1e-3
"""Errors below this number of deviations of y are equally good."""
RATIO, WORST_RATIO = 1.5, 10.0
"""Of errors to those of batch: at nine tenths of the checkpoints, and at each."""
CONDITION, LEVERAGE = 1e7, 10.0
"""Predictions are compared between ways to cut the stream up to these."""
KINDS = ("refused", "nonfinite", "objective", "prediction", "cutting")
WAYS = ("rows", "blocks", "cuts")
RIDGES = (0.0, 1e-12, 1e-6, 1e-3)


@dataclass(frozen=True)
class Rule:
    """A rule of forgetting.

    Attributes
    ----------
    make : callable
        Returns the parameter ``forgetting``.
    factor : float
        λ a row.
    window : int, optional
        Number of rows of a sliding window.
    exact : bool
        Whether the rule minimises (1).
    timed : bool
        Whether rows have times; then the first row does not fade the ridge.
    held : bool
        Whether the ridge does not fade.
    least_error : float
        Errors below this number of deviations of y are equally good.
    prequential : bool
        Whether each of the next rows is learned before the one after it is predicted.
    tolerance : float
        Of the comparison between the ways to cut a stream, in units of max|y|.
    """

    make: Callable[[], Any]
    factor: float = 1.0
    window: int | None = None
    exact: bool = True
    timed: bool = False
    held: bool = False
    least_error: float = SMALL
    prequential: bool = False
    tolerance: float = 1e-6

    def weights(self, n: int) -> Floats:
        """The weights v of n rows."""
        weights: Floats = self.factor ** np.arange(n - 1, -1, -1.0)
        if self.window is not None:
            weights[: max(0, n - self.window)] = 0.0
        return weights

    def ridge_factor(self, n: int) -> float:
        """The factor f after n rows."""
        return 1.0 if self.held else float(self.factor ** (n - self.timed))


HALF_LIFE = 69.0
RULES = {
    "none": Rule(lambda: 1.0),
    "exponential": Rule(lambda: op.forgetting.Exponential(0.99), 0.99),
    "half_life": Rule(
        lambda: op.forgetting.Exponential(half_life=HALF_LIFE),
        0.5 ** (1.0 / HALF_LIFE),
        timed=True,
    ),
    "window": Rule(lambda: op.forgetting.Window(300), window=300),
    "bounded": Rule(lambda: op.forgetting.Bounded(0.99), 0.99, exact=False, tolerance=1e-4),
    "directional": Rule(lambda: op.forgetting.Directional(0.99), 0.99, exact=False, tolerance=1e-5),
    "auto": Rule(lambda: "auto", exact=False, least_error=1.0, prequential=True, tolerance=1e-4),
    "held": Rule(
        lambda: op.forgetting.Exponential(0.99, ridge="held"), 0.99, exact=False, held=True
    ),  # in turns: not exactly (1)
}
DRAWN = ("none", "exponential", "half_life", "window", "bounded", "directional", "auto", "held")
"""The rules of a survey."""


@dataclass(frozen=True)
class Case:
    """A stream and how it is learned."""

    seed: int
    signal: str
    ridge: float
    rule: str
    way: str
    X: Floats
    y: Floats
    checkpoints: list[int]

    def __str__(self) -> str:
        n, d = self.X.shape
        return (
            f"seed {self.seed}: {self.signal}, n {n}, d {d}, ridge {self.ridge:g}, {self.rule}, "
            f"{self.way}"
        )


class Fit(NamedTuple):
    """Coefficients, and the point through which the linear function passes."""

    coef: Floats
    center: Floats
    offset: float

    def predict(self, X: Floats) -> Floats:
        return np.asarray(self.offset + (X - self.center) @ self.coef)


@dataclass
class Reading:
    """What one way of learning gave at one checkpoint.

    ``past`` are predictions of the rows learned, ``ahead`` those of the next rows at the
    checkpoint, and ``prequential`` those of the same rows, each before it is learned (0 where the
    way does not predict).
    """

    coef: Floats
    past: Floats
    ahead: Floats
    prequential: Floats


@dataclass
class Result:
    """How wrong a case is, by kind; and the same of the textbook."""

    case: Case
    wrong: dict[str, float] = field(default_factory=dict)
    textbook: dict[str, float] = field(default_factory=dict)
    note: str = ""


def draw(seed: int, rule: str | None = None, signal: str | None = None) -> Case:
    """The case of a seed, with another rule or signal if one is given."""
    rng = np.random.default_rng(seed)
    signal = signal or list(SIGNALS)[seed % len(SIGNALS)]
    d = round(2.0 * 75.0 ** rng.random())
    n = round(400.0 * 5.0 ** rng.random()) if d <= 50 else int(rng.integers(500, 901))
    ridge = float(rng.choice(RIDGES))
    drawn = str(rng.choice(DRAWN))
    way = str(rng.choice(WAYS))
    X, y = SIGNALS[signal](rng, n, d)
    pairs = 4 if d <= 50 else 3
    early = rng.integers(d // 2 + 2, 3 * d + 3, pairs // 2)
    late = rng.integers(3 * d + 3, n - 2 * AHEAD, pairs - pairs // 2)
    starts = [int(start) for start in (*early, *late)]
    checkpoints = sorted({row for start in starts for row in (start, start + AHEAD)})
    return Case(seed, signal, ridge, rule or drawn, way, X, y, checkpoints)


# -- the learner -----------------------------------------------------------------------------------


def learn(case: Case, way: str) -> list[Reading]:
    """Learn the stream in one way, and read it at each checkpoint.

    "rows" are single rows, each predicted and learned; "blocks" blocks of 50 rows, predicted and
    learned in one call; "cuts" random blocks. All end at checkpoints.
    """
    X, y, rule = case.X, case.y, RULES[case.rule]
    model: Any = op.RLSRegressor(case.ridge, rule.make())
    rng = np.random.default_rng([case.seed, 1])
    prequential = np.zeros(len(y))
    readings: list[Reading] = []
    row = 0
    for checkpoint in [*case.checkpoints, case.checkpoints[-1] + AHEAD]:
        while row < checkpoint:
            size = {"rows": 1, "blocks": 50, "cuts": int(rng.integers(1, 200))}[way]
            rows = slice(row, min(checkpoint, row + size))
            times = np.arange(rows.start, rows.stop, dtype=np.float64)
            if way == "rows":
                prequential[row] = model.predict_one(X[row])
                model.learn_one(X[row], float(y[row]), **({"time": row} if rule.timed else {}))
            else:
                learn_rows = model.test_then_train if way == "blocks" else model.partial_fit
                learned = learn_rows(X[rows], y[rows], **({"time": times} if rule.timed else {}))
                prequential[rows] = learned if way == "blocks" else 0.0
            row = rows.stop
        readings.append(
            Reading(
                np.array(model.coef_),
                model.predict(X[:checkpoint]),
                model.predict(X[checkpoint : checkpoint + AHEAD]),
                prequential[checkpoint : checkpoint + AHEAD],
            )
        )
    return readings[:-1]


# -- references ------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch fit, its condition number, and the scaled rows and scales of the problem."""

    fit: Fit
    condition: float
    A: Floats
    scales: Floats

    def determines(self, X: Floats) -> NDArray[np.bool_]:
        """Whether the fit determines the predictions of rows, so that rounding cannot matter."""
        if self.condition >= CONDITION:
            return np.zeros(len(X), dtype=np.bool_)
        R = np.linalg.qr(self.A, mode="r")
        rows = scipy.linalg.solve_triangular(R, ((X - self.fit.center) / self.scales).T, trans="T")
        return np.asarray((rows**2).sum(axis=0) <= LEVERAGE)


def batch(X: Floats, y: Floats, weights: Floats, ridge: float) -> Batch:
    """Solve (1) by SVD of all rows, in units of the norm of each column."""
    used = weights > 0.0
    X, y, roots = X[used], y[used], np.sqrt(weights[used])
    center, offset = _weighted_mean(X, weights[used]), float(_weighted_mean(y, weights[used]))
    A = roots[:, None] * (X - center)
    levels = np.linalg.norm(roots[:, None] * X, axis=0)
    A[:, np.linalg.norm(A, axis=0) <= len(X) * EPS * levels] = 0.0  # constant but for rounding
    b = roots * (y - offset)
    if ridge > 0.0:
        A = np.vstack([A, np.sqrt(ridge) * np.eye(X.shape[1])])
        b = np.append(b, np.zeros(X.shape[1]))
    scales = np.linalg.norm(A, axis=0)
    scales[scales == 0.0] = 1.0
    A /= scales
    solution, _, rank, singular = np.linalg.lstsq(A, b, rcond=EPS * max(A.shape))
    condition = singular[0] / singular[-1] if rank == X.shape[1] else np.inf
    return Batch(Fit(solution / scales, center, offset), float(condition), A, scales)


def textbook(X: Floats, y: Floats, rule: Rule, ridge: float, checkpoints: list[int]) -> list[Fit]:
    """Textbook QRD-RLS, read at checkpoints.

    Rows are centred at the running mean; the triangle is updated by a QR of itself and the rows
    between two checkpoints, in units of the last row.
    """
    if rule.window is not None:
        unfaded = replace(rule, window=None)
        windows = [slice(max(0, row - rule.window), row) for row in checkpoints]
        return [
            textbook(X[rows], y[rows], unfaded, ridge, [rows.stop - rows.start])[0]
            for rows in windows
        ]
    d, factor = X.shape[1], rule.factor
    faded_first = 1.0 if rule.timed else factor
    R: Floats = np.sqrt(ridge * (1.0 if rule.held else faded_first)) * np.eye(d, d + 1)
    mean, rest, mass = X[0].copy(), np.zeros(d), 1.0
    offset, learned, fits = float(y[0]), 1, []
    for checkpoint in checkpoints:
        rows = []
        for k in range(learned, checkpoint):
            mass *= factor
            innovation, error = (X[k] - mean) - rest, y[k] - offset
            root = np.sqrt(mass / (mass + 1.0) * factor ** (checkpoint - 1 - k))
            rows.append(root * np.append(innovation, error))
            mass += 1.0
            step = rest + innovation / mass  # the mean has two parts: no digits of it are lost
            new_mean = mean + step
            rest, mean = step - (new_mean - mean), new_mean
            offset += error / mass
        fade = factor ** (checkpoint - learned)
        top_up = np.sqrt(ridge * (1.0 - fade)) * np.eye(d if rule.held else 0, d + 1)
        R = np.asarray(np.linalg.qr(np.vstack([np.sqrt(fade) * R, *rows, top_up]), mode="r"))[:d]
        learned = checkpoint
        fits.append(Fit(_read(R, checkpoint), mean + rest, offset))
    return fits


def _read(R: Floats, n: int) -> Floats:
    """The coefficients of least norm of a triangle [R z], in units of the norm of each column."""
    d = R.shape[1] - 1
    norms = np.linalg.norm(R[:, :d], axis=0)
    norms[norms == 0.0] = 1.0
    U, singular, Vt = np.linalg.svd(R[:, :d] / norms, full_matrices=False)
    large = singular > EPS * max(n, d) * singular[0]
    return np.asarray(Vt[large].T @ ((U.T @ R[:, d])[large] / singular[large]) / norms)


def _weighted_mean(values: Floats, weights: Floats) -> Any:
    mean = weights @ values / weights.sum()
    return mean + weights @ (values - mean) / weights.sum()  # the second step removes its rounding


def objective(y: Floats, predictions: Floats, coef: Floats, weights: Floats, ridge: float) -> float:
    """The root of (1)."""
    errors = y - predictions
    return float(np.sqrt(weights @ errors**2 + ridge * (coef @ coef)))


# -- checks ----------------------------------------------------------------------------------------


def check(seed: int, rule: str | None = None, signal: str | None = None) -> Result:
    """Learn the case of a seed, and compare it with the references."""
    case = draw(seed, rule, signal)
    result = Result(case)
    readings: dict[str, list[Reading]] = {}
    with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for way in WAYS:
            try:
                readings[way] = learn(case, way)
            except Exception as error:  # noqa: BLE001 - any exception is a refusal
                result.wrong["refused"] = np.inf
                result.note = f"{way}: {type(error).__name__}: {error}"[:160]
        _compare(result, readings)
    return result


def _compare(result: Result, readings: dict[str, list[Reading]]) -> None:
    case = result.case
    X, y, rule = case.X, case.y, RULES[case.rule]
    bad_values = sum(
        int((~np.isfinite(values)).sum())
        for way in readings.values()
        for reading in way
        for values in (reading.past, reading.ahead, reading.prequential)
    )
    if bad_values:
        result.wrong["nonfinite"] = bad_values
    texts = textbook(X, y, rule, case.ridge, case.checkpoints)
    objectives: list[tuple[float, float]] = []
    predictions: list[tuple[float, float]] = []
    determined: list[NDArray[np.bool_]] = []
    for i, (row, text) in enumerate(zip(case.checkpoints, texts, strict=True)):
        weights, ridge = rule.weights(row), case.ridge * rule.ridge_factor(row)
        problem = batch(X[:row], y[:row], weights, ridge)
        fit, ahead = problem.fit, slice(row, row + AHEAD)
        determined.append(problem.determines(X[ahead]) & (row >= 2 * X.shape[1]))
        reference = _rms(y[ahead] - fit.predict(X[ahead]))
        if not rule.exact and rule.factor < 1.0:
            unfaded = batch(X[:row], y[:row], np.ones(row), case.ridge).fit
            reference = max(reference, _rms(y[ahead] - unfaded.predict(X[ahead])))
        least = 1.0 if row < 2 * X.shape[1] else rule.least_error
        reference = max(reference, least * float(y.std()))
        candidates = [(text.coef, text.predict(X[:row]), text.predict(X[ahead]))]
        if case.way in readings:
            reading = readings[case.way][i]
            if rule.prequential and "blocks" in readings:
                way = "rows" if case.way == "rows" else "blocks"
                reading = replace(reading, ahead=readings[way][i].prequential)
            candidates.append((reading.coef, reading.past, reading.ahead))
        best = objective(y[:row], fit.predict(X[:row]), fit.coef, weights, ridge)
        size = np.sqrt(weights @ (y[:row] - fit.offset) ** 2)
        best = max(best, 1e-7 * float(size), 1e-300)
        away = X[:row] - weights @ X[:row] / weights.sum()
        faint = ridge < 1e-15 * float((weights @ away**2).max())
        judged = not faint or problem.condition < CONDITION
        of_text, *of_learner = [
            (
                objective(y[:row], past, coef, weights, ridge) / best if judged else 1.0,
                _rms(y[ahead] - next_rows) / reference,
            )
            for coef, past, next_rows in candidates
        ]
        of_case = of_learner[0] if of_learner else (1.0, 1.0)
        objectives.append((of_case[0], of_text[0]))
        predictions.append((of_case[1], of_text[1]))
    for figures, column in ((result.wrong, 0), (result.textbook, 1)):
        if rule.exact:
            _note(figures, "objective", max(_number(pair[column]) for pair in objectives), 1.01)
        ratios = sorted(_number(pair[column]) for pair in predictions)
        tolerated = -(-len(ratios) // 10)
        _note(figures, "prediction", ratios[-1 - tolerated], RATIO)
        _note(figures, "prediction", ratios[-1], WORST_RATIO)
    _compare_ways(result, readings, determined)


def _compare_ways(
    result: Result, readings: dict[str, list[Reading]], determined: list[NDArray[np.bool_]]
) -> None:
    """Compare predictions of the rows after a checkpoint, by the fit there and by those after it.

    The latter only if the rows up to the next checkpoint of the pair determine some fit, since rows
    may leave a window.
    """
    case = result.case
    if case.way not in readings:
        return
    scale, worst = float(np.abs(case.y).max()), 0.0
    for i, (row, rows) in enumerate(zip(case.checkpoints, determined, strict=True)):
        drawn = readings[case.way][i]
        pairs = [(drawn.ahead, readings[way][i].ahead) for way in readings]
        paired = row + AHEAD in case.checkpoints[i + 1 : i + 2] and bool(determined[i + 1].any())
        if paired and {"rows", "blocks"} <= set(readings):
            pairs.append((readings["rows"][i].prequential, readings["blocks"][i].prequential))
        for a, b in pairs:
            difference = float(np.abs(a - b)[rows].max(initial=0.0))
            worst = max(worst, _number(difference / scale))
    _note(result.wrong, "cutting", worst, RULES[case.rule].tolerance)


def _note(figures: dict[str, float], kind: str, value: float, most: float) -> None:
    if value > most:
        figures[kind] = value


def _number(value: float) -> float:
    """The value, or infinity instead of nan."""
    return value if np.isfinite(value) else np.inf


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


# -- report ----------------------------------------------------------------------------------------


def line(result: Result) -> str:
    """One line of a wrong case."""
    parts = []
    for kind, value in result.wrong.items():
        beside = ""
        if kind in {"objective", "prediction"}:
            figure = result.textbook.get(kind)
            beside = f" (textbook {'right' if figure is None else format(figure, '.3g')})"
        parts.append(f"{kind} {value:.3g}{beside}")
    return f"{result.case}: {', '.join(parts)} {result.note}".rstrip()


def table(results: list[Result]) -> str:
    """Numbers of wrong cases by rule, ridge, signal and way."""
    width = max(len(name) for name in SIGNALS)
    head = f"{'':{width}}{'cases':>7}{'wrong':>7}" + "".join(f"{kind:>12}" for kind in KINDS)
    lines = [head + f"{'textbook':>12}"]
    groupings: list[Callable[[Case], str]] = [
        lambda _: "all",
        lambda case: case.rule,
        lambda case: f"ridge {case.ridge:g}",
        lambda case: case.signal,
        lambda case: case.way,
    ]
    for name in groupings:
        lines.append("")
        names = {name(result.case) for result in results}
        for group in sorted(names):
            members = [result for result in results if name(result.case) == group]
            kinds = Counter(kind for result in members for kind in result.wrong)
            counts = [len(members), sum(bool(result.wrong) for result in members)]
            cells = "".join(f"{count:7}" for count in counts)
            cells += "".join(f"{kinds[kind]:12}" for kind in KINDS)
            cells += f"{sum(bool(result.textbook) for result in members):12}"
            lines.append(f"{group:{width}}{cells}")
    return "\n".join(lines)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--rule", choices=list(RULES), help="this rule in all cases")
    parser.add_argument("--signal", choices=list(SIGNALS), help="this signal in all cases")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.cases)
    survey = partial(check, rule=options.rule, signal=options.signal)
    start, results = clock.perf_counter(), []
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for result in pool.imap(survey, seeds):
            results.append(result)
            if result.wrong:
                print(line(result), flush=True)
    print(table(results))
    print(f"{len(results)} cases in {clock.perf_counter() - start:.0f} s")
    ridged = [result for result in results if result.case.ridge > 0.0 and result.wrong]
    plain = [result for result in results if result.case.ridge == 0.0]
    wrong, textbook_wrong = (
        sum(bool(figures) for figures in column)
        for column in ([r.wrong for r in plain], [r.textbook for r in plain])
    )
    print(
        f"wrong with a ridge: {len(ridged)}; with ridge 0: {wrong}, the textbook: {textbook_wrong}"
    )
    return int(bool(ridged) or wrong > textbook_wrong)


if __name__ == "__main__":
    sys.exit(main())
