"""The blocks of docs/identify.md run and print what its comments state."""

from pathlib import Path

import pytest

from documents import run_document

PAGE = Path(__file__).parents[2] / "docs" / "identify.md"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE.read_text(encoding="utf-8"), "docs/identify.md", tmp_path) == 5
    first, timed, std, covered, *system = capsys.readouterr().out.splitlines()
    assert first == "[ 1.6 -0.8  0.5]"
    assert timed.startswith("[1. 2. 3.] ")
    assert std == "0.1"
    assert 0.9 <= float(covered) <= 1.0
    assert system[0].startswith("[[ 0.9")
