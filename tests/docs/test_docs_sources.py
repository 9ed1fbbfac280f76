"""The blocks of docs/sources.md run, and the page names every format and suffix."""

from pathlib import Path

import pytest

from documents import run_document
from onepass.stream.formats import PACKED, SUFFIXES

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/sources.md", tmp_path) > 6
    described = capsys.readouterr().out
    assert "32 []" in described
    assert "day-11.jsonl: row 0 (counting from 0), column 'room.warm'" in described


def test_every_suffix_is_named() -> None:
    assert not [suffix for suffix in (*SUFFIXES, *PACKED) if f"`{suffix}`" not in PAGE]
