"""Forgetting rules on a stream with unexcited features; draws docs/forgetting.png.

Three of five features become zero and return, with unchanged or changed true weights. The table
shows the error of predictions against noise-free targets (noise 0.1) in the rows after the return,
as root mean square over seeds.

    python benchmarks/silent_stream.py [--seeds 40] [--silent 3000] [--out docs/forgetting.png]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onepass as op
from onepass.evaluate.figures import COLOURS, DARK, GREY, new_figure

Floats = NDArray[np.float64]

RULES = {
    "Bounded(0.98), the default": op.forgetting.Bounded(0.98),
    "Exponential(0.98)": op.forgetting.Exponential(0.98),
    "Directional(0.98)": op.forgetting.Directional(0.98),
    "Window(100)": op.forgetting.Window(100),
}
BEFORE, AFTER, NOISE = 1000, 200, 0.1
SHORT, SEED = 500, 12  # unexcited rows, and seed of the stream in the left panel


def stream(seed: int, silent: int, *, changed: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return features, targets, noise-free targets, and the true weights in each row."""
    rng = np.random.default_rng(seed)
    n = BEFORE + silent + AFTER
    X = rng.normal(size=(n, 5))
    X[BEFORE : BEFORE + silent, 2:] = 0.0
    truth = np.tile(rng.normal(size=5), (n, 1))
    if changed:
        truth[BEFORE:, 2:] += rng.normal(size=3)
    clean = (X * truth).sum(axis=1)
    return X, clean + NOISE * rng.normal(size=n), clean, truth


def after_the_return(rule: Any, seeds: int, silent: int, *, changed: bool) -> Floats:
    """Return the root mean square error of each row since the return."""
    errors = []
    for seed in range(seeds):
        X, y, clean, _ = stream(seed, silent, changed=changed)
        predictions = op.RLSRegressor(forgetting=rule).test_then_train(X, y)
        errors.append((predictions - clean)[-AFTER:])
    rms: Floats = np.sqrt(np.mean(np.square(errors), axis=0))
    return rms


def coefficient(rule: Any) -> tuple[Floats, Floats, Floats]:
    """Return rows, the coefficient of an unexcited feature, and its true value, which changes."""
    X, y, _, truth = stream(SEED, SHORT, changed=True)
    model, path = op.RLSRegressor(forgetting=rule), []
    for x, target in zip(X, y, strict=True):
        path.append(float(model.learn_one(x, target).coef_[2]))
    return np.arange(len(X)), np.array(path), truth[:, 2]


def smooth(errors: Floats) -> tuple[Floats, Floats]:
    """Return root mean squares over the rows from k to 1.3 k."""
    starts = np.unique(np.round(np.geomspace(1, AFTER / 1.3, 30)).astype(int))
    parts = [errors[k - 1 : max(k, int(1.3 * k))] for k in starts]
    return starts.astype(np.float64), np.array([np.sqrt(np.mean(part**2)) for part in parts])


def draw(errors: dict[bool, dict[str, Floats]], path: Path) -> None:
    """Draw three panels: a coefficient over the stream, and the errors after both returns."""
    with new_figure((7.2, 2.9), path) as figure:
        panels = figure.subplots(1, 3, width_ratios=[1.15, 1, 1])
        for name, colour in zip(RULES, COLOURS, strict=False):
            steps, path_of, truth = coefficient(RULES[name])
            panels[0].plot(steps, path_of, color=colour, lw=1.2, label=name)
            for axes, changed in zip(panels[1:], (False, True), strict=True):
                axes.plot(*smooth(errors[changed][name]), color=colour, lw=1.5)
        panels[0].plot(steps, truth, color=DARK, lw=0.9, ls=(0, (4, 2)), zorder=1, label="truth")
        panels[0].axvspan(BEFORE, BEFORE + SHORT, color=GREY, alpha=0.12, lw=0)
        low, high = float(truth.min()), float(truth.max())
        panels[0].set_ylim(min(low, 0.0) - 0.5, max(high, 0.0) + 0.7)
        panels[0].set_xlim(BEFORE - 200, BEFORE + SHORT + AFTER)
        top = panels[0].get_ylim()[1]
        panels[0].text(BEFORE + SHORT / 2, top, "unexcited", ha="center", va="top", color=DARK)
        panels[0].set_title("a coefficient whose true value changes", fontsize=8, loc="left")
        panels[0].set_xlabel("rows")
        for axes, what in zip(panels[1:], ("unchanged", "changed"), strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(1, AFTER / 1.3)
            axes.set_ylim(0.01, 10.0)
            axes.set_xticks([1, 10, 100], ["1", "10", "100"])
            axes.set_yticks([0.01, 0.1, 1.0, 10.0], ["0.01", "0.1", "1", "10"])
            axes.axhline(NOISE, color=DARK, lw=0.7, ls=(0, (1, 2)))
            axes.set_title(f"error after return; weights {what}", fontsize=8, loc="left")
            axes.set_xlabel("rows since the return")
        panels[1].text(AFTER / 1.35, NOISE * 1.1, "noise", ha="right", color=DARK, fontsize=7)
        figure.legend(loc="outside upper left", ncols=5, frameon=False, fontsize=7.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--silent", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    errors = {
        changed: {
            name: after_the_return(rule, arguments.seeds, arguments.silent, changed=changed)
            for name, rule in RULES.items()
        }
        for changed in (False, True)
    }
    print("| rule | rows 1–5, unchanged weights | rows 21–100, changed weights |")
    print("|:--|--:|--:|")
    for name in RULES:
        unchanged_errors, changed = errors[False][name][:5], errors[True][name][20:100]
        predictions = [f"{np.sqrt(np.mean(part**2)):.2g}" for part in (unchanged_errors, changed)]
        print(f"| `{name.partition(',')[0]}` | {predictions[0]} | {predictions[1]} |")
    if arguments.out is not None:
        draw(errors, arguments.out)


if __name__ == "__main__":
    main()
