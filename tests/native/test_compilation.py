"""The core of least squares compiles for any target machine, without Python."""

import shlex
import subprocess
import sysconfig
from itertools import product
from pathlib import Path

import pytest

from sampling import sample

CORE = Path(__file__).parents[2] / "native" / "core"
COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")[:1]
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC"]


def compiles(source: Path, machine: str, to: Path) -> bool:
    done = subprocess.run(  # noqa: S603  our own words, Python's own compiler
        [*COMPILER, *FLAGS, machine, "-c", source, "-o", to],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    return not done.returncode


MACHINES = ["-march=native", "-march=nocona", "-march=haswell", "-maes"]


@pytest.mark.parametrize(
    ("name", "machine"),
    sample(list(product(["least_squares", "window", "mixture"], MACHINES)), 4, "machines"),
)
def test_core_compiles_for_named_machines(name: str, machine: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.c"
    plain.write_text("int one(void) { return 1; }\n", encoding="utf-8")
    try:
        known = compiles(plain, machine, tmp_path / "plain.o")
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    if not known:
        pytest.skip("the compiler knows no such machine")
    assert compiles(CORE / f"{name}.c", machine, tmp_path / "core.o")
