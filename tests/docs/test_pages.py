"""README.md and the pages of docs/ are executed, and their output is what they document."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

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
    assert set(rows) <= set(output.splitlines())


def identification(text: str, output: str, folder: Path) -> None:
    del text, folder
    coefficients, timed, std, covered, *system = output.splitlines()
    assert coefficients == "[ 1.6 -0.8  0.5]"
    assert timed.startswith("[1. 2. 3.] ")
    assert std == "0.1"
    assert 0.9 <= float(covered) <= 1.0
    assert system[0].startswith("[[ 0.9")


def resumption(text: str, output: str, folder: Path) -> None:
    del text
    assert "500 paid_at 8 []" in output
    report = (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert "500 rows learned in one pass, resumed after 300" in report


def serving(text: str, output: str, folder: Path) -> None:
    del text, folder
    assert output.splitlines() == ["500 [6.]", "500 None"]


def sources(text: str, output: str, folder: Path) -> None:
    del text, folder
    assert "32 []" in output
    assert "day-11.jsonl: row 0 (counting from 0), column 'room.warm'" in output


def tables(text: str, output: str, folder: Path) -> None:
    del text, output
    predictions = (folder / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert predictions[0] == "at,prediction"
    assert len(predictions) == 1 + 500


def tasks(text: str, output: str, folder: Path) -> None:
    del folder
    scores = re.findall(r"(NearestClassMean|Streaming.DA|SGDClassifier) (\d+)", text)
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
