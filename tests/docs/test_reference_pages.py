"""Pages document all commands, options, rules, metrics, formats and methods that exist."""

import inspect
import re

import pytest

from documents import COMMANDS, ROOT, options
from onepass import evaluate, forgetting, models
from onepass.cli.app import app
from onepass.forgetting.parse import rule
from onepass.stream.formats import PACKED, SUFFIXES
from onepass_experiments import baselines
from onepass_experiments.orfit_deep_networks import METHODS


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def undocumented(names: object, text: str) -> set[str]:
    """The names that a text does not contain as code."""
    return {name for name in names if f"`{name}`" not in text}  # type: ignore[attr-defined]


def test_links_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:src|href)="([^"#]+)"', text)
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert not [link for link in local if not (ROOT / link).exists()]


# -- commands -------------------------------------------------------------------------------------

CLI = page("cli")
GENERAL = {"--help", "--version", "--debug"}


def sections() -> dict[str, str]:
    """The sections of the page of the command line by their headings."""
    parts = re.split(r"^## ", CLI, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts}


def options_of(command: str) -> set[str]:
    """The options of a command and of its subcommands."""
    return GENERAL.union(*(options(c) for path, c in COMMANDS.items() if path[0] == command))


def options_in(text: str) -> set[str]:
    """The options that a text mentions."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def test_commands_and_options_are_found() -> None:
    assert ("data", "fetch") in COMMANDS
    assert {"--set", "--quiet", "-q"} <= options(COMMANDS["run",])
    assert options_in("`--bad-rows skip`, or `--na`") == {"--bad-rows", "--na"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_is_documented_and_its_help_has_examples(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert " ".join(path) in sections()[path[0]]
    assert f"`onepass {path[0]} " in CLI
    app([*path, "--help"])
    assert f"onepass {' '.join(path)}" in capsys.readouterr().out.partition("Examples:")[2]


@pytest.mark.parametrize("command", sorted({path[0] for path in COMMANDS}))
def test_documented_options_exist(command: str) -> None:
    existing = options_of(command)
    if command in {
        "predict",
        "merge",
    }:  # they mention options of run
        existing |= options_of("run")
    assert options_in(sections()[command]) <= existing


def test_models_and_metrics_of_the_command_line_are_documented() -> None:
    names = {*models.names(), *set().union(*evaluate.METRICS.values())}
    assert not undocumented(names, sections()["run"])


def test_documented_forgetting_rules_of_the_command_line_are_valid() -> None:
    table = CLI.partition("| `rls__forgetting=` |")[2].partition("\n\n")[0]
    rules = [text for text in table.split("`")[1::2] if not text.startswith("0")]
    assert len(rules) > 7
    for text in rules:
        rule(text)
    assert all(name.lower() in table for name in forgetting.__all__)


# -- other pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", forgetting.__all__)
def test_forgetting_rule_and_its_parameters_are_documented(name: str) -> None:
    assert f"op.forgetting.{name}" in page("drift")
    for parameter in inspect.signature(getattr(forgetting, name)).parameters:
        assert parameter in page("drift")


def test_metrics_are_documented() -> None:
    assert not undocumented(set().union(*evaluate.METRICS.values()), page("evaluate"))


def test_suffixes_of_sources_are_documented() -> None:
    assert not undocumented((*SUFFIXES, *PACKED), page("sources"))


def test_baselines_are_documented() -> None:
    assert not undocumented(baselines.__all__, page("baselines"))


def test_methods_of_the_orfit_experiment_are_documented() -> None:
    assert not undocumented(METHODS, page("results/orfit-deep"))
