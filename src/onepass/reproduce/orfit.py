"""ORFit on rotated digits: Figures 6 and 7 of the extended paper, 2 and 3 of CDC 2022.

A linear model learns to tell by how much a digit is turned, from 100 images that come by growing
angle (:mod:`onepass.reproduce.digits`). After each row its error is measured, in degrees, over
the digits to test, over those learned, and of one row that is learned on the way:

    test, train   √ mean over the rows of (f(x; w) − y)²                                     (1)
    sample        |f(x₁₆; w) − y₁₆| in Figure 6, |f(x₁₁; w) − y₁₁| in Figure 7               (2)
    Greedy        says the last angle, whatever is asked, and so of all angles in
                  [0°, 180°) errs by √ (180²/12 + (90 − θ_k)²), as the papers calculate     (3)
    learned       (1) over the k rows learned so far: zero while k <= m                     (4)

The runs of a draw differ in w₀ alone, and so in no gradient: they are learned as that many
outputs of one model, each with its own weights ([1] Remark 3).

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 5.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from onepass import validation
from onepass.errors import Array, Floats
from onepass.evaluate.naive import LastValue
from onepass.learners import ORFitRegressor
from onepass.memory import Latest, Nothing, Principal, Random
from onepass.reproduce.digits import Draw, RotatedDigits
from onepass.reproduce.multipass import multipass_sgd
from onepass.reproduce.outcome import Line, Outcome, band
from onepass.reproduce.published import Published, published
from onepass.stream import Images
from onepass.stream import images as images_of

__all__ = ["orfit_figure6", "orfit_figure7"]

Progress: TypeAlias = Callable[[int, int], object]
_Errors: TypeAlias = dict[tuple[str, str], tuple[Array, Floats]]

_PUBLISHED = "orfit-published.json"
_PRINTED = "ORFit, rule of 2022 as printed"
_STEP_SIZE = 1e-5  # of multi-pass SGD on squared error ([1] section 5.2)
_MARKS = 60  # ends of epochs of multi-pass SGD at which errors are measured, at most


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
    """ORFit with a memory of m directions, beside One-Step SGD and Greedy: Figure 6.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given.
    m : int, default=10
        Directions that ORFit may keep.
    draws : int, default=16
        Choices of the images and the angles to test, of which the published is one.
    runs : int, default=10
        Runs a draw, each from its own w₀.
    seed : int, default=0
        Of all that is drawn.
    digits : RotatedDigits, optional
        Another set-up than the paper's.
    progress : callable, optional
        Called with the draws done and their number.

    Returns
    -------
    outcome : Outcome

    Raises
    ------
    ParameterError
        If m, draws or runs is no whole number >= 1, or there are too few images of the digit.
    SourceError
        If MNIST is wanted and cannot be had.
    """
    memories = {
        "ORFit": Principal(m),
        _PRINTED: Principal(m, of="projected"),
        "ORFit-random": Random(m, seed),
        "ORFit-latest": Latest(m),
        "One-Step SGD": Nothing(),
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
    # the paper of 2022 prints another rule than the extended one, and shows the same numbers
    paper = {**paper, (_PRINTED, "test"): paper["ORFit", "test"]} if m == 10 else {}
    setup = {"m": m, "sample": sample, **_setup(digits, draws, runs, seed)}
    title = f"Rotated digits, memory of {m} directions"
    lines = _lines(errors, paper, digits)
    return Outcome("orfit-fig6", title, source, setup, lines, _fitted(errors, m))


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
    """ORFit without a limit, beside SGD in one pass and in many: Figure 7.

    Parameters
    ----------
    images : Images, optional
        ``op.stream.images("mnist")`` if not given.
    epochs : int, default=1000
        Passes of multi-pass SGD over the rows, with step size 1e-5 on squared error.
    shuffled : bool, default=True
        Whether it takes the rows in a new order in each epoch, or by growing angle. The papers
        do not say; their curve over the first epoch is that of shuffled rows.
    draws, runs, seed, digits, progress
        As in :func:`orfit_figure6`.

    Returns
    -------
    outcome : Outcome

    Raises
    ------
    ParameterError
        If epochs, draws or runs is no whole number >= 1, or there are too few images.
    SourceError
        If MNIST is wanted and cannot be had.
    """
    validation.whole(epochs, "epochs", "orfit_figure7", low=1)
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
            "One-Step SGD": _one_pass(Nothing(), drawn),
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
    title = "Rotated digits, memory without a limit"
    lines = _lines(errors, paper, digits)
    return Outcome("orfit-fig7", title, source, setup, lines, _fitted(errors, digits.n))


def _one_pass(memory: Any, drawn: Draw) -> tuple[Array, Floats]:
    """The weights after each row (n, runs, p), by the library's own learner, all runs at once."""
    model = ORFitRegressor(memory, initial_coef=drawn.start)
    answers = np.ones(len(drawn.start))
    weights = [model.learn_one(x, y * answers).coef_ for x, y in zip(drawn.X, drawn.y, strict=True)]
    return np.arange(1, len(weights) + 1), np.stack(weights)


def _measured(weights: Floats, drawn: Draw, sample: int) -> dict[str, Floats]:
    """(1), (2) of weights (t, runs, p): errors of shape (t, runs), in degrees."""
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
    """(4) of weights (n, runs, p), one step a row: errors of shape (n, runs), in degrees."""
    gaps = np.einsum("kp,trp->trk", drawn.X, weights) - drawn.y
    squares = np.cumsum(gaps**2, axis=2)[np.arange(len(gaps)), :, np.arange(len(gaps))]
    return np.rad2deg(np.sqrt(squares / np.arange(1, len(gaps) + 1)[:, None]))


def _fitted(errors: _Errors, m: int) -> str:
    """What (4) is at most while it must be zero."""
    most = errors["ORFit", "learned"][1][:, :m].max()
    return (
        f"ORFit: the largest error over the rows learned so far, at any of the first {m} rows in "
        f"any run, is {most:.0e}."
    )


def _greedy(drawn: Draw, sample: int) -> _Errors:
    """(3), by the baseline that says the last answer: the same in every run."""
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
    """The errors of each draw, (draws, t, runs) for each line."""
    validation.whole(draws, "draws", "reproduce", low=1)
    validation.whole(runs, "runs", "reproduce", low=1)
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
    """The errors summed up, beside the paper's where the digits are the paper's."""
    usual = RotatedDigits()
    shown = paper if (digits.digit, digits.n) == (usual.digit, usual.n) else {}
    return tuple(
        Line(*key, band(steps, values), shown.get(key)) for key, (steps, values) in errors.items()
    )


def _setup(digits: RotatedDigits, draws: int, runs: int, seed: int) -> dict[str, Any]:
    return {"draws": draws, "runs": runs, "seed": seed, "digits": asdict(digits)}
