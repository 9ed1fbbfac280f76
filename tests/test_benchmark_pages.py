"""Result pages: tables equal the results of their commands."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts import script

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "libraries.md"

tables, cells, frames = script("tables"), script("cells"), script("frames")
speed_tables, turns = script("speed_tables"), script("turns")


def result(name: str) -> Any:
    return json.loads((tables.RESULTS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_tables_equal_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "<!-- end -->" in text
    assert tables.page(text) == text, "run: python benchmarks/tables.py"


def test_tables_are_on_a_page_with_their_command() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in tables.PAGES)
    for name in tables.TABLES:
        assert f"<!-- {name}: {tables.newest(name)['command']} -->" in texts


def test_manual_change_of_a_table_is_detected() -> None:
    text = PAGE.read_text(encoding="utf-8")
    figure = re.search(r"\d[\d,]{4,}", text.partition("<!-- peers:")[2])
    assert figure is not None
    begin = text.index("<!-- peers:") + len("<!-- peers:") + figure.start()
    assert tables.page(text[:begin] + "9" + text[begin:]) == text


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: path.name)
def test_tables_are_inside_the_markers(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    rest = re.sub(r"<!-- \w+: [^\n]* -->\n.*?<!-- end -->", "", text, flags=re.DOTALL)
    assert "| --:" not in rest


def test_commands_have_no_path_of_a_machine() -> None:
    for name in tables.TABLES:
        assert " /" not in tables.newest(name)["command"]


def test_experiments_have_enough_seeds_and_rows() -> None:
    stability = result("stability.json")
    assert stability["seeds"] >= 10
    assert all(one["seeds"] >= 10 for rule in stability["rules"].values() for one in rule.values())
    assert set(result("peers.json")["features"]) == {"10", "100", "1000"}
    for one in result("streams.json")["sets"].values():
        assert one["rows"] > 17_000
        assert sum(model["baseline"] for model in one["models"].values()) == 2


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1254, "0.125"), (None, "–"), ("inf", "inf"), (6e132, "6e+132")]
)
def test_format_of_errors(value: Any, shown: str) -> None:
    assert tables.shown(value) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(0.347, "0.35×"), (9.96, "10×"), (18.6, "19×"), (1234.0, "1,234×")]
)
def test_format_of_ratios(ratio: float, shown: str) -> None:
    assert cells.times(ratio) == shown


def test_format_of_scores() -> None:
    assert tables.score("accuracy", 0.87654) == "87.65 %"
    assert tables.score("mae", 4466599.2) == "4,466,599"
    assert tables.score("mae", 0.079153) == "0.07915"


def test_missing_libraries_are_named() -> None:
    absent = type("Absent", (), {"package": "no_such_library"})
    present = type("Present", (), {"package": "numpy"})
    assert frames.installed([absent, present]) == ([present], ("no-such-library",))
    found = cells.versions(["numpy", "no-such-library"])
    assert list(found["versions"]) == ["numpy"]
    assert found["missing"] == ["no-such-library"]


def test_weights_after_a_row_predict_the_next_row() -> None:
    weights, X = np.array([[1.0], [2.0], [3.0]]), np.array([[5.0], [7.0], [9.0]])
    assert frames.following(weights, X)[1:].tolist() == [7.0, 18.0]


def test_losses_are_listed_first_and_bold_below_the_required_ratio() -> None:
    works = [
        turns.Work(f"work {fast}", "rows", "onepass", {"onepass": [fast], "other": [1.0]}, 1.0)
        for fast in (0.9, 3.0, 0.2)
    ]
    found = {"sections": {"one": {"works": [work.to_dict() for work in works]}}}
    assert re.findall(r"work [\d.]+", speed_tables.speed_losses(found)) == ["work 0.2", "work 0.9"]
    assert speed_tables.measured(works[0].to_dict()) == "**0.9×**"
    assert speed_tables.measured(works[1].to_dict()) == "3×"


def test_differences_ignore_rows_without_a_prediction() -> None:
    assert turns.difference([1.0, 2.0], [[np.nan, 2.5]], [2.0, -4.0]) == 0.125
    assert turns.difference([1.0], [], [1.0]) is None
