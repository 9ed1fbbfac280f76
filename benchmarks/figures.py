"""Repeat experiments, and put figures and tables where the pages have them.

The tables of a page stand between ``<!-- name: command -->`` and ``<!-- end -->``; tests hold them
to what this wrote. MNIST is found or fetched as ``onepass.stream.images("mnist")`` says, and
Fashion-MNIST likewise. Without a name ORFit's figures are repeated, which takes a minute or so;
``art`` is both tables of ART-IPCA and takes ten minutes, ``orfit-deep`` most of an hour, and
``continual`` one or two, on two cores. The last writes a page of its own, keeps its runs in
runs/continual, and goes on where it was stopped.

    python benchmarks/figures.py [orfit-fig6] [orfit-fig7] [orfit-deep] [art] [continual]
"""

import argparse
import io
import os
import re
from pathlib import Path
from time import process_time
from typing import Any

from PIL import Image  # it comes with matplotlib

from onepass_experiments import EXPERIMENTS, art_tables

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = Path(__file__).parent / "results"
PAPERS = ("orfit-fig6", "orfit-fig7")
DEEP = "orfit-deep"
CONTINUAL = "continual"
NETWORKS = "art-networks"  # those of the former that have published numbers
KEPT = Path(__file__).parents[1] / "runs" / CONTINUAL
ART = ("art-table1", "art-table2")
PAGES = {
    **dict.fromkeys(PAPERS, DOCS / "reproduce.md"),
    DEEP: DOCS / "deep.md",
    **dict.fromkeys((*ART, NETWORKS), DOCS / "prototypes.md"),
}
DOTS = 170  # an inch, of the pictures
COLOURS = 96  # as many are enough for lines and their bands, and make small files


def picture(figure: Any, path: Path) -> None:
    """A figure as a small PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS, bbox_inches="tight", pad_inches=0.04)
    flat = Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    flat.save(path, optimize=True)


def page(text: str, results: Path = RESULTS) -> str:
    """A page, with each of its tables as it was found."""

    def put(place: re.Match[str]) -> str:
        path = results / f"{place['name']}.md"
        if not path.exists():
            return place[0]  # its turn is still to come
        table = path.read_text(encoding="utf-8").strip()
        return f"<!-- {place['name']}: {place['command']} -->\n\n{table}\n\n<!-- end -->"

    marked = rf"<!-- (?P<name>{'|'.join(PAGES)}): (?P<command>[^\n]*) -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def figure(name: str) -> Any:
    """A figure of the papers: its curves, and a picture."""
    outcome: Any = EXPERIMENTS[name]()
    outcome.to_csv(RESULTS / f"{name}.csv")
    picture(outcome.plot(), DOCS / f"{name}.png")
    return outcome


def deep() -> Any:
    """The streams of tasks: each draw of each method, and two pictures."""
    done = os.cpu_count() or 1
    outcome: Any = EXPERIMENTS[DEEP](processes=done, clock=process_time, progress=told)
    outcome.to_csv(RESULTS / f"{DEEP}.csv")
    picture(outcome.plot(), DOCS / f"{DEEP}.png")
    picture(outcome.plot_curves(), DOCS / f"{DEEP}-curves.png")
    return outcome


def art(processes: int | None = None) -> list[Any]:
    """Both tables of ART-IPCA, from the same runs."""
    processes = processes or os.cpu_count() or 1
    outcomes: Any = art_tables(processes=processes, clock=process_time, progress=told)
    for outcome in outcomes:
        outcome.to_csv(RESULTS / f"{outcome.name}.csv")
        picture(outcome.plot(), DOCS / f"{outcome.name}.png")
    return list(outcomes)


def continual() -> None:
    """Continual learning in one table: the page, its picture, and each run."""
    outcome: Any = EXPERIMENTS[CONTINUAL](
        processes=os.cpu_count() or 1, path=KEPT / "runs", clock=process_time, progress=told
    )
    outcome.save(KEPT)
    outcome.to_csv(RESULTS / f"{outcome.name}.csv")
    picture(outcome.plot(), DOCS / f"{outcome.name}.png")
    (DOCS / f"{outcome.name}.md").write_text(outcome.to_markdown(), encoding="utf-8")
    (RESULTS / f"{NETWORKS}.md").write_text(outcome.published(), encoding="utf-8")
    path = PAGES[NETWORKS]
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


def told(done: int, of: int) -> None:
    print(f"{done} of {of}", flush=True)


def main() -> None:
    """Run what is named, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    known = (*PAPERS, DEEP, "art", CONTINUAL)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    names = parser.parse_args().names or PAPERS
    if unknown := set(names) - set(known):
        parser.error(f"names must be among {', '.join(known)}, got {', '.join(sorted(unknown))}")
    for name in names:
        if name == CONTINUAL:
            continual()
            continue
        for outcome in art() if name == "art" else [deep() if name == DEEP else figure(name)]:
            put(outcome)


def put(outcome: Any) -> None:
    """An outcome's table into the results, and onto its page."""
    (RESULTS / f"{outcome.name}.md").write_text(outcome.to_markdown(), encoding="utf-8")
    print(f"{outcome.name}\n\n{outcome.to_markdown()}")
    path = PAGES[outcome.name]
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
