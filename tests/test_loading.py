"""What a start waits for: which modules the import, the help and the first learner load."""

import subprocess
import sys

import pytest

SLOW = {
    "matplotlib", "narwhals", "numpy", "onepass.evaluate", "onepass.learners", "onepass.stream",
    "pandas", "pyarrow", "river", "scipy", "sklearn", "torch",
}  # fmt: skip
"""Modules that cost more than all that is needed to show a help."""


def loaded(code: str) -> set[str]:
    """The modules of a process that has run some code, their packages among them."""
    told = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(  # noqa: S603  our own words, our own interpreter
        [sys.executable, "-c", told], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_the_import_loads_names_alone() -> None:
    found = loaded("import onepass")
    assert not found & (SLOW | {"cyclopts", "rich", "importlib.metadata", "importlib.resources"})
    assert {name for name in found if name.startswith("onepass")} <= {"onepass"}


@pytest.mark.parametrize("words", [["--help"], [], ["data", "--help"], ["run", "--help"]])
def test_a_help_loads_no_learner(words: list[str]) -> None:
    found = loaded(f"from onepass.cli import main; main({words})")
    assert not found & (SLOW | {"rich.progress"})


def test_the_list_of_commands_is_not_parsed_as_markdown() -> None:
    assert not loaded("from onepass.cli import main; main(['--help'])") & {
        "markdown_it", "pygments", "rich.markdown"
    }  # fmt: skip


def test_a_learner_loads_no_room_above_its_own() -> None:
    found = loaded("import onepass; onepass.RLSRegressor")
    assert "onepass.learners.rls" in found
    assert not found & {
        "matplotlib", "onepass.cli", "onepass.evaluate", "onepass.nn", "onepass.stream", "rich",
        "river", "sklearn.kernel_approximation", "torch",
    }  # fmt: skip
