"""ORFit on rotated digits: Figures 6 and 7 of the extended paper, 2 and 3 of CDC 2022.

A linear model learns the angle of rotation of a digit from 100 images, each seen once. The training
rows are sorted by angle, so that the last rows differ from the first ones ([1] section 5, [2]
section V):

    θ_k = 180° k / n,   x_k = (rotated by θ_k(image_k) / 255 − 0.1307) / 0.3081,  k = 1 … n   (1)
    y_k = θ_k in radians,   w₀ uniform in ±1/√784 = ±1/28, sampled for each run              (2)

Test digits are rotated by angles uniform in [0°, 180°). The papers do not publish which images were
used: a :class:`Draw` samples them, and results are shown over several draws. After each row the
error is measured, in degrees, over the test digits, over the training digits, and on one training
row:

    test, train   √ mean over the rows of (f(x; w) − y)²                                     (3)
    sample        |f(x₁₆; w) − y₁₆| in Figure 6, |f(x₁₁; w) − y₁₁| in Figure 7               (4)
    Greedy        always predicts the last angle, so its error over all angles in
                  [0°, 180°) is √ (180²/12 + (90 − θ_k)²), as the papers calculate           (5)
    learned       (3) over the k rows learned so far: zero while k <= m                      (6)

The runs of a draw differ only in w₀, so all gradients agree: the runs are learned as the outputs of
one model, each with its own weights ([1] Remark 3).

One-pass learning is compared with multi-pass SGD ([1] section 5.2, Corollary 1), which takes the
following step for each row k in every epoch

    w ← w + 2η (y_k − x_kᵀ w) x_k                                                           (7)

Let r be the errors at the start of an epoch and δ_k = 2η (y_k − x_kᵀ w) the coefficient of row k in
the epoch. It depends on the steps of the preceding rows, so that with K = X Xᵀ all coefficients
solve one triangular system:

    (I / 2η + stril K) δ = r,   w ← w + Xᵀ δ,   r ← r − K δ                                  (8)

where stril K is the strictly lower triangle of K, with rows and columns in the order of the epoch.
This equals (7) up to rounding, for all runs at once, and costs O(n²) per epoch instead of O(np).

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The same title, CDC 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from onepass import linalg, validation
from onepass.errors import ParameterError, calling
from onepass.evaluate.naive import LastValue
from onepass.learners import ORFitRegressor
from onepass.memory import LastDirections, NoMemory, Principal, Random
from onepass.stream import Images
from onepass.stream import images as images_of
from onepass.stream.digits import SplineOrder, rotated
from onepass.types import Array, Floats
from onepass_experiments.outcome import Line, Outcome, Published, band, published

_MEAN, _DEVIATION = 0.1307, 0.3081  # of all pixels of MNIST's training images, over 255


@dataclass(frozen=True, eq=False, slots=True)
class Draw:
    """One sample of images and angles, and the initial weights of each run.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Training rows, sorted by angle.
    y : ndarray of shape (n,)
        Their angles, in radians.
    X_test : ndarray of shape (k, p)
        Test rows.
    y_test : ndarray of shape (k,)
        Their angles, in radians.
    start : ndarray of shape (runs, p)
        w₀ of each run.
    """

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    start: Floats


@dataclass(frozen=True)
class RotatedDigits:
    """Set-up of the experiment. Choices that the papers do not specify are parameters.

    Parameters
    ----------
    digit : int, default=2
        Digit whose images are rotated.
    n : int, default=100
        Number of training rows.
    order : {0, 1, 2, 3, 4, 5}, default=0
        Order of the spline interpolation between pixels. 0 takes the nearest pixel; only this
        reproduces the published training error of multi-pass SGD.
    clockwise : bool, default=True
        Direction of rotation. The published numbers do not determine it.
    bias : bool, default=False
        Whether to add a constant feature 1, as in PyTorch's ``Linear``. The papers' model is wᵀx.
        The bias changes the errors far less than another draw of images.
    """

    digit: int = 2
    n: int = 100
    order: SplineOrder = 0
    clockwise: bool = True
    bias: bool = False

    def draw(self, images: Images, runs: int, seed: list[int]) -> Draw:
        """Sample n training images, an angle for each test image, and w₀ of each run.

        Parameters
        ----------
        images : Images
            A set such as ``op.stream.images("mnist")``.
        runs : int
            Number of runs, each with its own w₀.
        seed : list of int
            Seed of the sample.

        Raises
        ------
        ParameterError
            If there are fewer than n training images of the digit, or no test image.
        """
        known = images.train_images[images.train_labels == self.digit]
        unknown = images.test_images[images.test_labels == self.digit]
        if len(known) < self.n or not len(unknown):
            raise ParameterError(
                f"`images` must contain {self.n} images of digit {self.digit} to learn "
                f"and at least 1 to test, got {len(known)} and {len(unknown)}. Lower "
                "`n`, or choose another digit.",
                "RotatedDigits.draw",
            )
        rng = np.random.default_rng(seed)
        chosen = rng.choice(len(known), self.n, replace=False)
        learned = 180.0 * np.arange(1, self.n + 1) / self.n  # (1)
        tested = rng.uniform(0.0, 180.0, len(unknown))
        X = self._features(known[chosen], learned)
        reach = 1.0 / np.sqrt(known[0].size)  # (2)
        start = rng.uniform(-reach, reach, (runs, X.shape[1]))
        X_test = self._features(unknown, tested)
        return Draw(X, np.deg2rad(learned), X_test, np.deg2rad(tested), start)

    def _features(self, pictures: Array, degrees: Floats) -> Floats:
        """Return the rows x of (1)."""
        turns = -degrees if self.clockwise else degrees
        pixels = rotated(pictures, turns, self.order).reshape(len(pictures), -1)
        X = (pixels / 255.0 - _MEAN) / _DEVIATION
        return np.column_stack([X, np.ones(len(X))]) if self.bias else X


def multipass_sgd(
    X: Floats,
    y: Floats,
    start: Floats,
    step_size: float,
    steps: Array,
    shuffle: np.random.Generator | None = None,
) -> Floats:
    """Return the weights of SGD on the squared error after given steps, for several runs at once.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Training rows, each used once per epoch.
    y : ndarray of shape (n,)
    start : ndarray of shape (runs, p)
        w₀ of each run.
    step_size : float
        η of (7), > 0. Converges below 1 / max ‖x_k‖².
    steps : ndarray of int of shape (t,)
        Increasing step numbers >= 1; step n is the end of the first epoch.
    shuffle : numpy.random.Generator, optional
        Shuffles the rows in each epoch, in the same order for all runs. By default the order of
        the rows is kept.

    Returns
    -------
    weights : ndarray of shape (t, runs, p)

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.eye(2), np.ones(2)
    >>> multipass_sgd(X, y, np.zeros((1, 2)), 0.25, np.array([1, 2, 3]))[:, 0]
    array([[0.5 , 0.  ], [0.5 , 0.5 ], [0.75, 0.5 ]])
    """
    n = len(X)
    K = X @ X.T
    r = y[:, None] - X @ start.T
    total = np.zeros(r.shape)  # w = w₀ + Xᵀ total
    rows, delta = _epoch(K, r, step_size, shuffle)
    known, epoch = [], 0
    for step in steps:
        while (step - 1) // n > epoch:
            total[rows] += delta
            r -= K[:, rows] @ delta  # (8)
            rows, delta = _epoch(K, r, step_size, shuffle)
            epoch += 1
        used = (step - 1) % n + 1
        known.append(X.T @ total + X[rows[:used]].T @ delta[:used])
    return start + np.stack(known).transpose(0, 2, 1)


def _epoch(
    K: Floats, r: Floats, step_size: float, shuffle: np.random.Generator | None
) -> tuple[Array, Floats]:
    """Return the order of the rows in an epoch, and δ in this order, by (8)."""
    n = len(K)
    rows = np.arange(n) if shuffle is None else shuffle.permutation(n)
    triangle = K[np.ix_(rows, rows)]
    triangle[np.arange(n), np.arange(n)] = 1.0 / (2.0 * step_size)
    return rows, linalg.solve_lower(triangle, r[rows])  # the upper triangle is not read


Progress: TypeAlias = Callable[[int, int], object]
_Errors: TypeAlias = dict[tuple[str, str], tuple[Array, Floats]]

_PUBLISHED = "orfit-published.json"
_PRINTED = "ORFit, rule of 2022 as printed"
_STEP_SIZE = 1e-5  # of multi-pass SGD on squared error ([1] section 5.2)
_MARKS = 60  # max epochs of multi-pass SGD after which errors are measured


@calling("orfit_figure6")
def orfit_figure6(
    images: Images | None = None,
    *,
    m: int = 10,
    draws: int = 16,
    runs: int = 10,
    seed: int = 0,
    digits: RotatedDigits | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Reproduce Figure 6: ORFit with a memory of m directions, One-Step SGD and Greedy.

    Parameters
    ----------
    images : Images, optional
        By default ``op.stream.images("mnist")``.
    m : int, default=10
        Number of directions that ORFit retains.
    draws : int, default=16
        Number of samples of images and test angles. The published result is one such sample.
    runs : int, default=10
        Runs per draw, each from its own w₀.
    seed : int, default=0
        Seed of all random choices.
    digits : RotatedDigits, optional
        Set-up of the experiment; by default that of the paper.
    progress : callable, optional
        Called with the number of completed draws and the total.

    Returns
    -------
    outcome : Outcome

    Raises
    ------
    ParameterError
        If m, draws or runs is not a whole number >= 1, or there are too few images of the digit.
    SourceError
        If MNIST is required and not available.
    """
    memories = {
        "ORFit": Principal(m),
        _PRINTED: Principal(m, of="projected"),
        "ORFit-random": Random(m, seed),
        "ORFit-latest": LastDirections(m),
        "One-Step SGD": NoMemory(),
    }
    digits = digits or RotatedDigits()
    sample = min(16, digits.n)

    def measured(drawn: Draw) -> _Errors:
        errors: _Errors = {}
        for method, memory in memories.items():
            steps, weights = _one_pass(memory, drawn)
            found = _measured(weights, drawn, sample)
            errors |= {(method, error): (steps, found[error]) for error in ("test", "sample")}
            if method == "ORFit":
                errors[method, "learned"] = (steps, _learned(weights, drawn))
        return errors | _greedy(drawn, sample)

    errors = _over_draws(measured, images, digits, draws, runs, seed, progress)
    source, paper = published(_PUBLISHED, "orfit-fig6")
    # the paper of 2022 prints a different rule than the extended paper but shows the same numbers
    paper = {**paper, (_PRINTED, "test"): paper["ORFit", "test"]} if m == 10 else {}
    setup = {"m": m, "sample": sample, **_setup(digits, draws, runs, seed)}
    title = f"Rotated digits, memory of {m} directions"
    lines = _lines(errors, paper, digits)
    return Outcome("orfit-fig6", title, source, setup, lines, _fitted(errors, m))


@calling("orfit_figure7")
def orfit_figure7(
    images: Images | None = None,
    *,
    epochs: int = 1000,
    shuffled: bool = True,
    draws: int = 16,
    runs: int = 10,
    seed: int = 0,
    digits: RotatedDigits | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Reproduce Figure 7: ORFit with unlimited memory, SGD in one pass and in many passes.

    Parameters
    ----------
    images : Images, optional
        By default ``op.stream.images("mnist")``.
    epochs : int, default=1000
        Passes of multi-pass SGD over the rows, with step size 1e-5 on squared error.
    shuffled : bool, default=True
        Whether to shuffle the rows in each epoch; otherwise they are sorted by angle. The papers
        do not specify it; their curve over the first epoch matches shuffled rows.
    draws, runs, seed, digits, progress
        As in :func:`orfit_figure6`.

    Returns
    -------
    outcome : Outcome

    Raises
    ------
    ParameterError
        If epochs, draws or runs is not a whole number >= 1, or there are too few images.
    SourceError
        If MNIST is required and not available.
    """
    validation.whole(epochs, "epochs", low=1)
    digits = digits or RotatedDigits()
    sample = min(11, digits.n)
    many = f"SGD, {epochs} epochs"
    ends = np.unique(np.geomspace(1, epochs, _MARKS).astype(int)) * digits.n
    marks = np.union1d(np.arange(1, digits.n + 1), ends)

    orders = np.random.default_rng([seed, 0, 1]) if shuffled else None  # [seed, i] draws images

    def measured(drawn: Draw) -> _Errors:
        found = multipass_sgd(drawn.X, drawn.y, drawn.start, _STEP_SIZE, marks, orders)
        passes = {
            "ORFit": _one_pass(None, drawn),
            "One-Step SGD": _one_pass(NoMemory(), drawn),
            many: (marks, found),
        }
        errors = {
            (method, error): (steps, values)
            for method, (steps, weights) in passes.items()
            for error, values in _measured(weights, drawn, sample).items()
        }
        steps, weights = passes["ORFit"]
        return errors | {("ORFit", "learned"): (steps, _learned(weights, drawn))}

    errors = _over_draws(measured, images, digits, draws, runs, seed, progress)
    source, paper = published(_PUBLISHED, "orfit-fig7")
    setup = {
        "epochs": epochs,
        "shuffled": shuffled,
        "step_size": _STEP_SIZE,
        "sample": sample,
        **_setup(digits, draws, runs, seed),
    }
    title = "Rotated digits, unlimited memory"
    lines = _lines(errors, paper, digits)
    return Outcome("orfit-fig7", title, source, setup, lines, _fitted(errors, digits.n))


def _one_pass(memory: Any, drawn: Draw) -> tuple[Array, Floats]:
    """Return the weights after each row (n, runs, p), with ``ORFitRegressor`` for all runs."""
    model = ORFitRegressor(memory, initial_coef=drawn.start)
    ones = np.ones(len(drawn.start))
    weights = [model.learn_one(x, y * ones).coef_ for x, y in zip(drawn.X, drawn.y, strict=True)]
    return np.arange(1, len(weights) + 1), np.stack(weights)


def _measured(weights: Floats, drawn: Draw, sample: int) -> dict[str, Floats]:
    """Return the errors (3), (4) of weights (t, runs, p), of shape (t, runs), in degrees."""
    flat = weights.reshape(-1, weights.shape[2]).T
    shape = weights.shape[:2]
    test = drawn.X_test @ flat - drawn.y_test[:, None]
    train = drawn.X @ flat - drawn.y[:, None]
    errors = {
        "test": np.sqrt((test**2).mean(axis=0)),
        "train": np.sqrt((train**2).mean(axis=0)),
        "sample": np.abs(train[sample - 1]),
    }
    return {name: np.rad2deg(values).reshape(shape) for name, values in errors.items()}


def _learned(weights: Floats, drawn: Draw) -> Floats:
    """Return the errors (6) of weights (n, runs, p) after each row, (n, runs), in degrees."""
    gaps = np.einsum("kp,trp->trk", drawn.X, weights) - drawn.y
    squares = np.cumsum(gaps**2, axis=2)[np.arange(len(gaps)), :, np.arange(len(gaps))]
    return np.rad2deg(np.sqrt(squares / np.arange(1, len(gaps) + 1)[:, None]))


def _fitted(errors: _Errors, m: int) -> str:
    """Report the largest value of (6) among the first m rows, where it must be zero."""
    largest = errors["ORFit", "learned"][1][:, :m].max()
    return (
        f"ORFit: the largest error over the rows learned so far, at any of the first {m} rows in "
        f"any run, is {largest:.0e}."
    )


def _greedy(drawn: Draw, sample: int) -> _Errors:
    """Return (5), by the baseline that predicts the last target; it is the same in every run."""
    model, runs = LastValue(), len(drawn.start)
    test, one = [], []
    for x, y in zip(drawn.X, drawn.y, strict=True):
        model.learn_one(x, y)
        test.append(np.sqrt(np.mean((model.predict(drawn.X_test) - drawn.y_test) ** 2)))
        one.append(abs(model.predict_one(drawn.X[sample - 1]) - drawn.y[sample - 1]))
    steps = np.arange(1, len(test) + 1)
    return {
        ("Greedy", error): (steps, np.repeat(np.rad2deg(values)[:, None], runs, axis=1))
        for error, values in (("test", test), ("sample", one))
    }


def _over_draws(
    measured: Callable[[Draw], _Errors],
    images: Images | None,
    digits: RotatedDigits,
    draws: int,
    runs: int,
    seed: int,
    progress: Progress | None,
) -> _Errors:
    """Return the errors of all draws, (draws, t, runs) for each line."""
    validation.whole(draws, "draws", low=1)
    validation.whole(runs, "runs", low=1)
    known = images_of("mnist") if images is None else images
    all_errors = []
    for i in range(draws):
        all_errors.append(measured(digits.draw(known, runs, [seed, i])))
        if progress is not None:
            progress(i + 1, draws)
    first = all_errors[0]
    return {
        key: (steps, np.stack([errors[key][1] for errors in all_errors]))
        for key, (steps, _) in first.items()
    }


def _lines(
    errors: _Errors, paper: Mapping[tuple[str, str], Published], digits: RotatedDigits
) -> tuple[Line, ...]:
    """Summarize the errors, with the published ones if the set-up is that of the paper."""
    usual = RotatedDigits()
    shown = paper if (digits.digit, digits.n) == (usual.digit, usual.n) else {}
    return tuple(
        Line(*key, band(steps, values), shown.get(key)) for key, (steps, values) in errors.items()
    )


def _setup(digits: RotatedDigits, draws: int, runs: int, seed: int) -> dict[str, Any]:
    return {"draws": draws, "runs": runs, "seed": seed, "digits": asdict(digits)}
