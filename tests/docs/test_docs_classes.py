"""docs/classes.md runs and prints the documented scores."""

import re
from pathlib import Path

import pytest

from documents import run_document

PAGE = (Path(__file__).parents[2] / "docs" / "classes.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/classes.md", tmp_path) == 4
    printed = capsys.readouterr().out
    documented = re.findall(r"print\(scores\)  # (.*)", PAGE)[0].split(", ")
    assert len(documented) == 5
    for name, score in (one.rsplit(" ", 1) for one in documented):
        assert f"'{name}': {score}" in printed
    for score in re.findall(r"print\(round\(.*\)  # (0\.\d+)", PAGE):
        assert f"\n{score}\n" in printed
