"""Modules loaded by the import, by the help and by the first learner."""

import subprocess
import sys

import pytest

SLOW = {
    "matplotlib", "narwhals", "numpy", "onepass.evaluate", "onepass.learners", "onepass.stream",
    "pandas", "pyarrow", "river", "scipy", "sklearn", "torch",
}  # fmt: skip
"""Modules that take longer to import than the help needs in total."""


def loaded(code: str) -> set[str]:
    """The modules that a process has loaded after running some code."""
    program = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_import_loads_no_submodules() -> None:
    found = loaded("import onepass")
    assert not found & (SLOW | {"cyclopts", "rich", "importlib.metadata", "importlib.resources"})
    assert {name for name in found if name.startswith("onepass")} <= {"onepass"}


@pytest.mark.parametrize("arguments", [["--help"], [], ["data", "--help"], ["run", "--help"]])
def test_help_loads_no_learners(arguments: list[str]) -> None:
    found = loaded(f"from onepass.cli import main; main({arguments})")
    assert not found & (SLOW | {"rich.progress"})


def test_help_does_not_load_markdown() -> None:
    assert not loaded("from onepass.cli import main; main(['--help'])") & {
        "markdown_it", "pygments", "rich.markdown"
    }  # fmt: skip


def test_a_learner_loads_no_higher_packages() -> None:
    found = loaded("import onepass; onepass.RLSRegressor")
    assert "onepass.learners.rls" in found
    assert not found & {
        "matplotlib", "onepass.cli", "onepass.evaluate", "onepass.nn", "onepass.stream", "rich",
        "river", "sklearn.kernel_approximation", "torch",
    }  # fmt: skip
