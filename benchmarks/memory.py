"""Forgetting with each memory of ``op.memory``, by its size: measured, and as certified.

ORFit on three real streams with standardised columns and 400 random Fourier features; each row is
learned once, exactly (noise 0). *Change*: the root mean square, over all rows, of the change of a
prediction since its row was learned, in standard deviations of the targets. *Bound*: the same by
``forgetting_bound_``. *Step*: the largest change of all past predictions together by one more step
of length 1 that the memory allows, and its bound. ``SquareRoot`` requires noise: its steps are not
orthogonal to past rows, so there is no bound.

    python benchmarks/memory.py [--rows 1000]

writes docs/memory.png and docs/results/memory.md. Streams are read from the folder named by
ONEPASS_DATA.
"""

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from certificate import Floats, fourier, streams

import onepass as op
from onepass.evaluate.figures import COLOURS, DARK, new_figure

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("elevators", "kin40k", "protein")
SIZES = (5, 10, 20, 50, 100, 200, 300)
SIZED = {
    name: getattr(op.memory, name) for name in ("Principal", "Sketch", "LastDirections", "Random")
}
UNSIZED = {"NoMemory": op.memory.NoMemory, "Basis": op.memory.Basis}
NOISE = 0.01

Row = dict[str, Any]


def measured(A: Floats, y: Floats, memory: Any, noise: float) -> Row:
    """Learn a stream once; return change and bound per prediction, and those of one step."""
    model, then = op.ORFitRegressor(memory=memory, noise=noise), np.empty(len(y))
    for k, (x, target) in enumerate(zip(A, y, strict=True)):
        then[k] = model.learn_one(x, target).predict_one(x)
    found, each = model.forgetting_bound_, math.sqrt(len(y))
    change = float(np.linalg.norm(model.predict(A) - then))
    row = {"change": change / each, "error": float(np.sqrt(np.mean((model.predict(A) - y) ** 2)))}
    if found.kind != "none":
        free = model.memory_.split(A.T).lifted
        row |= {"bound": found.all_steps / each, "step": float(np.linalg.norm(free, 2)),
                "step bound": found.one_step}  # fmt: skip
        slack = 1e-9 * (1.0 + float(np.linalg.norm(y)))
        if change > found.all_steps + slack or row["step"] > found.one_step + slack:
            raise SystemExit(f"the bound is exceeded: {memory}, {row}")
    return row


def results(rows: int) -> list[Row]:
    lines = []
    found = streams(rows)
    for name in NAMES:
        A, y = fourier(found[name][0]), found[name][1]
        for kind, make in SIZED.items():
            lines += [
                {"stream": name, "memory": kind, "m": m, **measured(A, y, make(m), 0)}
                for m in SIZES
            ]
        for kind, make in UNSIZED.items():
            lines.append({"stream": name, "memory": kind, "m": None, **measured(A, y, make(), 0)})
        line = measured(A, y, op.memory.SquareRoot(), NOISE)
        lines.append({"stream": name, "memory": f"SquareRoot, noise {NOISE}", "m": None, **line})
        print(name, flush=True)
    return lines


def table(lines: list[Row]) -> str:
    """The results as Markdown: m = 20 and 200 of each memory with a size."""
    head = ("stream", "memory", "change", "bound", "step", "step bound", "error on all rows")
    text = ["| " + " | ".join(head) + " |", "|:--|:--|" + "--:|" * (len(head) - 2)]
    for line in lines:
        if line["m"] in {5, 10, 50, 300}:
            continue
        name = line["memory"] if line["m"] is None else f"{line['memory']}({line['m']})"
        values = [line.get(key) for key in ("change", "bound", "step", "step bound", "error")]
        numbers = [
            "–" if x is None else "0" if abs(x) < 1e-9 else f"{x:.3g}" for x in values
        ]  # below rounding
        text.append(f"| {line['stream']} | {name} | " + " | ".join(numbers) + " |")
    return "\n".join(text)


def draw(lines: list[Row], path: Path) -> None:
    """Change (solid) and bound (dashed) by m: of all steps above, of one step below."""
    with new_figure((7.2, 4.6), path) as figure:
        panels = figure.subplots(2, len(NAMES), sharex=True, sharey="row", squeeze=False)
        for name, column in zip(NAMES, panels.T, strict=True):
            for kind, colour in zip(SIZED, COLOURS, strict=False):
                those = [x for x in lines if (x["stream"], x["memory"]) == (name, kind)]
                sizes = [x["m"] for x in those]
                for axes, truth, bound in zip(
                    column, ("change", "step"), ("bound", "step bound"), strict=True
                ):
                    if truth in those[0]:
                        axes.plot(sizes, [x[truth] for x in those], color=colour, marker="o", ms=3)
                    if bound in those[0]:
                        axes.plot(sizes, [x[bound] for x in those], color=colour, ls=(0, (4, 2)))
            none = next(x for x in lines if (x["stream"], x["memory"]) == (name, "NoMemory"))
            column[0].axhline(none["change"], color=DARK, lw=0.8, ls=":")
            for axes in column:
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.set_xticks([5, 20, 100, 300], ["5", "20", "100", "300"])
                axes.minorticks_off()
            column[0].set_title(name, fontsize=8, loc="left", color=DARK)
            column[1].set_xlabel("m, retained directions")
        panels[0, 0].set_ylabel("change of a past prediction\nby all steps")
        panels[1, 0].set_ylabel("change of all past predictions\nby a step of length 1")
        for kind, colour in zip(SIZED, COLOURS, strict=False):
            panels[0, 0].plot([], [], color=colour, marker="o", ms=3, label=kind)
        panels[0, 0].plot([], [], color=DARK, ls=(0, (4, 2)), label="bound")
        panels[0, 0].plot([], [], color=DARK, lw=0.8, ls=":", label="NoMemory")
        figure.legend(loc="outside upper left", ncols=6, frameon=False, fontsize=7)


PAGE = """# Forgetting by memory

```bash
python benchmarks/memory.py
```

The command writes this page and its figure; the streams are read from the folder named by
`ONEPASS_DATA`. ORFit learns the first {rows:,} rows of three real streams once, in 400 random
Fourier features; targets have variance 1. Every memory of `op.memory` is measured.

![Above: the measured change of past predictions, and the bound. Below: of one step](../memory.png)

*change*: root mean square of the change of a prediction since its row was learned. *bound*: the
same by `forgetting_bound_.all_steps`. *step*: largest change of all past predictions together by
one more step of length 1, and `forgetting_bound_.one_step`. – : no bound exists. *error on all
rows*: root mean square error at the end, on all rows.

{table}

{text}

[A certificate of forgetting](../certificate.md) explains the bounds.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", op.errors.MemoryFullWarning)
    lines = results(arguments.rows)
    draw(lines, DOCS / "memory.png")
    path = DOCS / "results" / "memory.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    begin, end = "<!-- text -->", "<!-- end -->"
    text = begin + (text.split(begin)[1].split(end)[0] if begin in text else "\n\n") + end
    page = PAGE.format(rows=arguments.rows, table=table(lines), text=text)
    path.write_text(page, encoding="utf-8")
    print(table(lines))


if __name__ == "__main__":
    main()
