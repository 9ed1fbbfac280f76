"""Numbers and tables as Markdown, and results as JSON."""

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Found = Mapping[str, Any]


def write(path: Path, found: Found) -> None:
    """Write the results of a benchmark as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def versions(libraries: Iterable[str]) -> dict[str, Any]:
    """Return the versions of the libraries, and the names of those that are not installed."""
    found: dict[str, str] = {}
    missing = []
    for library in libraries:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            missing.append(library)
    return {"versions": found, "missing": missing}


def table(head: list[str], rows: list[list[str]], words: int = 1) -> str:
    """Return a table; the first ``words`` columns hold text, the others numbers."""
    rule = ["---" if i < words else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def times(ratio: float) -> str:
    """Format a ratio, with two digits below ten."""
    return f"{ratio:.2g}×" if ratio < 9.5 else f"{ratio:,.0f}×"


def three(value: float) -> str:
    """Format with three digits, or as an integer from 100."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
