"""README.md and the pages of docs/ are executed, and their output is what they document."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sybil import Document
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from documents import PAGES, ROOT, SYBIL


def baselines(text: str, output: str, folder: Path) -> None:
    del text, folder
    accuracy = dict(re.findall(r"(.+): (\d+) %", output))
    assert float(accuracy["iCaRL"]) > 75
    assert float(accuracy["EWC"]) < 50


def certificate(text: str, output: str, folder: Path) -> None:
    del text, folder
    assert output.split() == ["bound", "True", "estimate", "True"]


def classes(text: str, output: str, folder: Path) -> None:
    del folder
    documented = re.findall(r"print\(scores\)  # (.*)", text)[0].split(", ")
    assert len(documented) == 5
    for name, score in (one.rsplit(" ", 1) for one in documented):
        assert f"'{name}': {score}" in output
    for score in re.findall(r"print\(round\(.*\)  # (0\.\d+)", text):
        assert f"\n{score}\n" in output


def evaluation(text: str, output: str, folder: Path) -> None:
    del folder
    table = text.partition("```text\n")[2].partition("```")[0].splitlines()
    rows = [line for line in table if line.startswith("  rls")]
    assert rows
    assert set(rows) <= set(output.splitlines())


def identification(text: str, output: str, folder: Path) -> None:
    del text, folder
    coefficients, timed, std, covered, shapes, *system = output.splitlines()
    assert coefficients == "[ 1.6 -0.8  0.5]"
    assert timed.startswith("[1. 2. 3.] ")
    assert std == "0.1"
    assert 0.9 <= float(covered) <= 1.0
    assert shapes == "(3,) (3, 3)"
    assert system[0].startswith("[[ 0.9")
    assert "[2.09 0.5 ]" in system


def resumption(text: str, output: str, folder: Path) -> None:
    del text
    assert "500 paid_at 8 []" in output
    report = (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert "500 rows learned in one pass, resumed after 300" in report


def serving(text: str, output: str, folder: Path) -> None:
    del text, folder
    restored, _, state, loop, source = output.splitlines()
    assert (restored, state, loop) == ("500 [6.]", "0 True None", "500 None")
    assert source == "(500, {'sensors': '500'}) (500, {'sensors': '500'})"


def sources(text: str, output: str, folder: Path) -> None:
    del text, folder
    assert "32 []" in output
    assert "{'code': '7'} [2.]" in output
    assert "day-11.jsonl: row 0 (counting from 0), column 'room.warm'" in output


def tables(text: str, output: str, folder: Path) -> None:
    del text
    assert "got also 'kn'" in output
    predictions = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert predictions[0] == "at,prediction"
    assert len(predictions) == 1 + 500


def tasks(text: str, output: str, folder: Path) -> None:
    del folder
    scores = re.findall(r"(NearestClassMean|Streaming.DA|SGDClassifier) (\d+)", text)
    assert scores
    for line in ("4 (100, 3)", "['0°', '30°', '60°', '90°'] (500, 1, 8, 8)", "60–90° True"):
        assert line in output.splitlines()
    for name, score in scores:
        assert re.search(rf"'{name}': (np\.float64\()?{score}\b", output), (name, output)


CHECKS: dict[str, Callable[[str, str, Path], None]] = {
    "docs/baselines.md": baselines,
    "docs/certificate.md": certificate,
    "docs/classes.md": classes,
    "docs/evaluate.md": evaluation,
    "docs/identify.md": identification,
    "docs/resume.md": resumption,
    "docs/serving.md": serving,
    "docs/sources.md": sources,
    "docs/tables.md": tables,
    "docs/tasks.md": tasks,
}
"""Checks of the text, the output and the written files of pages."""

EXECUTED = {
    str(path.relative_to(ROOT)): document for path in PAGES if list(document := SYBIL.parse(path))
}


def test_checked_pages_have_blocks() -> None:
    assert EXECUTED.keys() >= {"README.md", *CHECKS}


EXECUTED_LANGUAGES = {"bash", "pycon", "python"}
LANGUAGES = {*EXECUTED_LANGUAGES, "", "json", "sh", "text", "yaml"}


def test_languages_of_blocks_are_known() -> None:
    """A block whose language is misspelt would not be executed."""
    lexer = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n]*)\n"))
    found = {
        (str(path.relative_to(ROOT)), region.lexemes["language"])
        for path in PAGES
        for region in lexer(Document(path.read_text(encoding="utf-8"), str(path)))
    }
    assert {language for _, language in found} >= EXECUTED_LANGUAGES
    assert not {(name, language) for name, language in found if language not in LANGUAGES}


@pytest.mark.parametrize(
    ("language", "lines", "message"),
    [
        ("python", "assert 1 + 1 == 3, 'wrong block'", "wrong block"),
        ("python", ">>> 1 + 1\n3", "Expected:\n    3\nGot:\n    2"),
        ("pycon", ">>> 1 + 1\n3", "Expected:\n    3\nGot:\n    2"),
        ("bash", "onepass run none.csv --target y", "none.csv"),
    ],
)
def test_wrong_blocks_fail_unless_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, lines: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    page, block = tmp_path / "page.md", f"```{language}\n{lines}\n```\n"
    page.write_text(f"# Page\n\n{block}", encoding="utf-8")
    [example] = SYBIL.parse(page)
    with pytest.raises(AssertionError, match=message):
        example.evaluate()
    page.write_text(f"# Page\n\n<!-- not run: wrong -->\n{block}", encoding="utf-8")
    assert not list(SYBIL.parse(page))


@pytest.mark.filterwarnings("ignore::onepass.errors.RowsRefusedWarning")  # docs/tables.md
@pytest.mark.parametrize("name", EXECUTED)
def test_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The blocks run in order, in one namespace and an empty directory."""
    document = EXECUTED[name]
    for extra in ("river", "torch"):
        if re.search(rf"^(import|from) {extra}\b", document.text, re.MULTILINE):
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for example in document:
        example.evaluate()
    if name in CHECKS:
        CHECKS[name](document.text, capfd.readouterr().out, tmp_path)
