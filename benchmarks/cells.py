"""Cells: numbers and tables of results, as Markdown."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Found = Mapping[str, Any]


def write(path: Path, found: Found) -> None:
    """What a benchmark found, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(head: list[str], rows: list[list[str]], words: int = 1) -> str:
    """A table whose first columns are words, the others numbers."""
    rule = ["---" if i < words else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def times(ratio: float) -> str:
    """A ratio, to two figures below ten."""
    return f"{ratio:.2g}×" if ratio < 9.5 else f"{ratio:,.0f}×"


def three(value: float) -> str:
    """Three figures, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
