"""The page of the command line has every command; its options exist, and its blocks run."""

import re
from pathlib import Path

import pytest

from documents import COMMANDS, options, run_document
from onepass import evaluate
from onepass.cli.app import app
from onepass.features import presets

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
GENERAL = {"--help", "--version", "--debug"}


def sections() -> dict[str, str]:
    """Return the sections of the page by their headings."""
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts}


def options_of(command: str) -> set[str]:
    """Return the options of a command and of the commands below it."""
    return GENERAL.union(*(options(c) for path, c in COMMANDS.items() if path[0] == command))


def options_in(text: str) -> set[str]:
    """Return the options that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def test_commands_and_options_are_found() -> None:
    assert ("data", "fetch") in COMMANDS
    assert {"--set", "--quiet", "-q"} <= options(COMMANDS["run",])
    assert options_in("`--bad-rows skip`, or `--na`") == {"--bad-rows", "--na"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_is_documented(path: tuple[str, ...]) -> None:
    text = sections()[path[0]]
    assert " ".join(path) in text
    assert f"`onepass {path[0]} " in PAGE


@pytest.mark.parametrize("command", sorted({path[0] for path in COMMANDS}))
def test_every_option_on_the_page_exists(command: str) -> None:
    known = options_of(command)
    if command in {"predict", "merge"}:  # whose sections name options of the run that saved a model
        known |= options_of("run")
    assert options_in(sections()[command]) <= known


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_examples_in_its_help(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    app([*path, "--help"])
    assert f"onepass {' '.join(path)}" in capsys.readouterr().out.partition("Examples:")[2]


def test_models_and_metrics_are_documented() -> None:
    names = set(presets.names()).union(*evaluate.METRICS.values())
    assert not {name for name in names if f"`{name}`" not in sections()["run"]}


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(PAGE, "docs/cli.md", tmp_path) > 5
