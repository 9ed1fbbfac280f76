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


CORE = ("numpy", "scipy", "scikit-learn", "safetensors")
"""What learners, transformers and model files need."""
ALONE = f"""
import doctest, importlib, pkgutil, re, sys
from importlib.metadata import packages_distributions, requires

needed, found = set(), list({CORE})
while found:
    needed.add(name := found.pop().lower())
    lines = [line for line in requires(name) or [] if "extra ==" not in line]
    found += [one for line in lines if (one := re.match(r"[\\w.-]+", line)[0]) not in needed]
known = needed | {{"onepass"}}
there = packages_distributions().items()
others = {{top for top, of in there if not known & {{name.lower() for name in of}}}}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import onepass.features, onepass.forgetting, onepass.learners, onepass.memory
import onepass.serialization.models

names = ["onepass.serialization.models"]
for package in (onepass.learners, onepass.features, onepass.forgetting, onepass.memory):
    names += [one.name for one in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
failed, tried = 0, 0
for name in sorted(names):
    if name.rpartition(".")[2] not in ("onnx", "torch_module"):
        result = doctest.testmod(importlib.import_module(name))
        failed, tried = failed + result.failed, tried + result.attempted
assert tried > 200, tried
sys.exit(failed)
"""


def test_learners_features_and_model_files_need_only_the_core() -> None:
    done = subprocess.run(  # noqa: S603  a fixed command
        [sys.executable, "-W", "ignore", "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
