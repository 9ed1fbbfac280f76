"""Repeat experiments, and write their figures and tables into the pages of docs.

The tables of a page are between ``<!-- name: command -->`` and ``<!-- end -->``; tests check that
they agree with the results. MNIST and Fashion-MNIST are loaded by ``onepass.stream.images``. By
default ORFit's figures are repeated, which takes about a minute. ``art`` is both tables of ART-IPCA
and takes ten minutes, ``orfit-deep`` most of an hour, and ``continual`` one or two hours, on two
cores. ``continual`` writes a separate page, stores its runs in runs/continual and resumes there.
``--redraw`` draws the figures again from the stored results, without running an experiment.

    python benchmarks/figures.py [orfit-fig6] [orfit-fig7] [orfit-deep] [art] [continual]
    python benchmarks/figures.py --redraw [orfit-fig6] [orfit-fig7] [art] [continual]
"""

import argparse
import io
import os
import re
from pathlib import Path
from time import process_time
from typing import Any

from PIL import Image  # it comes with matplotlib
from stored_results import ART, PAPERS, RESULTS, art_outcome, continual_figure, orfit_outcome

from onepass_experiments import EXPERIMENTS, art_tables

DOCS = Path(__file__).parents[1] / "docs"
DEEP = "orfit-deep"
CONTINUAL = "continual"
NETWORKS = "art-networks"  # the part of the continual results with published numbers
RUNS = Path(__file__).parents[1] / "runs" / CONTINUAL
PAGES = {
    **dict.fromkeys(PAPERS, DOCS / "results" / "orfit.md"),
    DEEP: DOCS / "results" / "orfit-deep.md",
    **dict.fromkeys((*ART, NETWORKS), DOCS / "results" / "art-ipca.md"),
}
CONTINUAL_PAGE = DOCS / "results" / "continual.md"
DOTS = 170  # dots per inch of the pictures
COLOURS = 96  # enough colours for lines and bands, with small files


def picture(figure: Any, path: Path) -> None:
    """Write a figure as a small PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS, bbox_inches="tight", pad_inches=0.04)
    flat = Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    flat.save(path, optimize=True)


def page(text: str, results: Path = RESULTS) -> str:
    """Return a page with its tables replaced by the current results."""

    def put(place: re.Match[str]) -> str:
        path = results / f"{place['name']}.md"
        if not path.exists():
            return place[0]  # not computed yet
        table = path.read_text(encoding="utf-8").strip()
        return f"<!-- {place['name']}: {place['command']} -->\n\n{table}\n\n<!-- end -->"

    marked = rf"<!-- (?P<name>{'|'.join(PAGES)}): (?P<command>[^\n]*) -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def figure(name: str) -> Any:
    """Reproduce a figure of the papers: curves and a picture."""
    outcome: Any = EXPERIMENTS[name]()
    outcome.to_csv(RESULTS / f"{name}.csv")
    picture(outcome.plot(), DOCS / f"{name}.png")
    return outcome


def deep() -> Any:
    """Run ``orfit-deep``: all draws and two pictures."""
    done = os.cpu_count() or 1
    outcome: Any = EXPERIMENTS[DEEP](processes=done, clock=process_time, progress=print_progress)
    outcome.to_csv(RESULTS / f"{DEEP}.csv")
    picture(outcome.plot(), DOCS / f"{DEEP}.png")
    picture(outcome.plot_curves(), DOCS / f"{DEEP}-curves.png")
    return outcome


def art(processes: int | None = None) -> list[Any]:
    """Reproduce both tables of ART-IPCA from the same runs."""
    processes = processes or os.cpu_count() or 1
    outcomes: Any = art_tables(processes=processes, clock=process_time, progress=print_progress)
    for outcome in outcomes:
        outcome.to_csv(RESULTS / f"{outcome.name}.csv")
        picture(outcome.plot(), DOCS / f"{outcome.name}.png")
    return list(outcomes)


def continual() -> None:
    """Run ``continual``: the page, its picture, and all runs."""
    outcome: Any = EXPERIMENTS[CONTINUAL](
        processes=os.cpu_count() or 1,
        path=RUNS / "runs",
        clock=process_time,
        progress=print_progress,
    )
    outcome.save(RUNS)
    outcome.to_csv(RESULTS / f"{outcome.name}.csv")
    picture(outcome.plot(), DOCS / f"{outcome.name}.png")
    text = outcome.to_markdown().replace(f"]({outcome.name}.png)", f"](../{outcome.name}.png)")
    CONTINUAL_PAGE.write_text(text, encoding="utf-8")
    (RESULTS / f"{NETWORKS}.md").write_text(outcome.published(), encoding="utf-8")
    path = PAGES[NETWORKS]
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


def redraw(name: str) -> None:
    """Draw the figures of an experiment from its stored results."""
    if name == CONTINUAL:
        picture(continual_figure(), DOCS / "continual-results.png")
    elif name == "art":
        for table in ART:
            picture(art_outcome(table).plot(), DOCS / f"{table}.png")
    else:
        picture(orfit_outcome(name).plot(), DOCS / f"{name}.png")


def print_progress(done: int, of: int) -> None:
    print(f"{done} of {of}", flush=True)


def main() -> None:
    """Run the named experiments and write their results, or only redraw their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    known: tuple[str, ...] = (*PAPERS, DEEP, "art", CONTINUAL)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    parser.add_argument("--redraw", action="store_true", help="only draw the stored results")
    arguments = parser.parse_args()
    names = arguments.names or PAPERS
    if arguments.redraw:
        known = (*PAPERS, "art", CONTINUAL)
    if unknown := set(names) - set(known):
        parser.error(f"names must be among {', '.join(known)}, got {', '.join(sorted(unknown))}")
    for name in names:
        if arguments.redraw:
            redraw(name)
            continue
        if name == CONTINUAL:
            continual()
            continue
        for outcome in art() if name == "art" else [deep() if name == DEEP else figure(name)]:
            put(outcome)


def put(outcome: Any) -> None:
    """Write the table of an outcome into the results and its page."""
    (RESULTS / f"{outcome.name}.md").write_text(outcome.to_markdown(), encoding="utf-8")
    print(f"{outcome.name}\n\n{outcome.to_markdown()}")
    path = PAGES[outcome.name]
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
