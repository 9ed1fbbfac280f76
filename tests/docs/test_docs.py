"""What stands in docs is true: every command and option is there, and what it shows runs."""

import re
from pathlib import Path

import pytest

from documents import COMMANDS, options, run_document
from onepass import evaluate
from onepass.cli.app import app
from onepass.features import presets

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """The page's section about a command."""
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[
        [part.partition("\n")[0] for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)].index(
            name
        )
    ]


def test_the_reader_of_commands_reads() -> None:
    assert ("data", "fetch") in COMMANDS
    assert {"--set", "--quiet", "-q"} <= options(COMMANDS["run",])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_documented(path: tuple[str, ...]) -> None:
    text = section(path[0])
    assert " ".join(path) in text
    assert not {name for name in options(COMMANDS[path]) if f"`{name}" not in text}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_option_is_documented_that_is_not_there(path: tuple[str, ...]) -> None:
    there = set().union(*(options(c) for each, c in COMMANDS.items() if each[0] == path[0]))
    assert set(re.findall(r"^\| `(--[a-z-]+)", section(path[0]), re.MULTILINE)) <= there


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_examples_in_its_help(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    app([*path, "--help"])
    assert f"onepass {' '.join(path)}" in capsys.readouterr().out.partition("Examples:")[2]


def test_models_and_metrics_are_documented() -> None:
    named = set(presets.names()).union(*evaluate.METRICS.values())
    assert not {name for name in named if f"`{name}`" not in section("run")}


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/cli.md", tmp_path) > 5
