"""Repeat the papers' figures, and put figures, tables and curves where docs/reproduce.md has them.

The tables of the page stand between ``<!-- name: python benchmarks/figures.py -->`` and
``<!-- end -->``; a test holds them to what this wrote. MNIST is found or fetched as
``onepass.stream.images("mnist")`` says. It takes a minute or so.

    python benchmarks/figures.py
"""

import io
import re
from pathlib import Path
from typing import Any

from PIL import Image  # it comes with matplotlib

from onepass.reproduce import EXPERIMENTS

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = Path(__file__).parent / "results"
PAGE = DOCS / "reproduce.md"
NAMES = ("orfit-fig6", "orfit-fig7")
DOTS = 170  # an inch, of the pictures
COLOURS = 96  # as many are enough for lines and their bands, and make small files


def picture(figure: Any, path: Path) -> None:
    """A figure as a small PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS, bbox_inches="tight", pad_inches=0.04)
    flat = Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    flat.save(path, optimize=True)


def page(text: str, results: Path = RESULTS) -> str:
    """The page, with each of its tables as it was found."""

    def put(place: re.Match[str]) -> str:
        table = (results / f"{place['name']}.md").read_text(encoding="utf-8").strip()
        return f"<!-- {place['name']}: python benchmarks/figures.py -->\n\n{table}\n\n<!-- end -->"

    marked = rf"<!-- (?P<name>{'|'.join(NAMES)}): [^\n]* -->\n.*?<!-- end -->"
    return re.sub(marked, put, text, flags=re.DOTALL)


def main() -> None:
    """Run both, and write what came of them."""
    for name in NAMES:
        outcome: Any = EXPERIMENTS[name]()
        outcome.to_csv(RESULTS / f"{name}.csv")
        (RESULTS / f"{name}.md").write_text(outcome.to_markdown(), encoding="utf-8")
        picture(outcome.plot(), DOCS / f"{name}.png")
        print(f"{name}\n\n{outcome.to_markdown()}")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
