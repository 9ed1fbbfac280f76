"""Modules loaded by the import, by the help and by the first learner."""

import subprocess
import sys

SLOW = {
    "matplotlib", "narwhals", "numpy", "onepass.evaluate", "onepass.learners", "onepass.stream",
    "pandas", "pyarrow", "river", "scipy", "sklearn", "torch",
}  # fmt: skip
"""Modules that take longer to import than the help needs in total."""
HELPS = [["--help"], [], ["data", "--help"], ["run", "--help"]]


def modules_after(*steps: str) -> list[set[str]]:
    """The modules that a process has loaded after each step, a statement."""
    program = "import sys\n" + "".join(
        f"{step}\nprint(*sys.modules, file=sys.stderr)\n" for step in steps
    )
    done = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return [set(line.split()) for line in done.stderr.splitlines()]


def test_import_and_help_load_no_learners() -> None:
    found, _, *helps = modules_after(
        "import onepass",
        "from onepass.cli import main",
        *(f"main({arguments})" for arguments in HELPS),
    )
    assert not found & (SLOW | {"cyclopts", "rich", "importlib.metadata", "importlib.resources"})
    assert {name for name in found if name.startswith("onepass")} <= {"onepass"}

    assert not helps[0] & {"markdown_it", "pygments", "rich.markdown"}
    for arguments, modules in zip(HELPS, helps, strict=True):
        assert not modules & (SLOW | {"rich.progress"}), arguments


def test_learner_loads_no_higher_packages() -> None:
    (found,) = modules_after("import onepass; onepass.RLSRegressor")
    assert "onepass.learners.rls" in found
    assert not found & {
        "matplotlib", "onepass.cli", "onepass.evaluate", "onepass.nn", "onepass.stream", "rich",
        "river", "sklearn.kernel_approximation", "torch",
    }  # fmt: skip
