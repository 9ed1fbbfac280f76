"""docs/tasks.md runs, and its tables agree with the printed scores."""

import re
from pathlib import Path

import pytest

from documents import run_document

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/tasks.md", tmp_path) >= 1
    described = capsys.readouterr().out
    for name, score in re.findall(r"(NearestClassMean|Streaming.DA|SGDClassifier) (\d+)", PAGE):
        assert re.search(rf"'{name}': (np\.float64\()?{score}\b", described), (name, described)


def test_class_statistics_equal_a_batch_fit() -> None:
    rows = re.findall(r"^\| `\w+` \|( [\d.]+) \|.*\|( [\d.]+) \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == 6
    assert all(ours == theirs for ours, theirs in rows)
