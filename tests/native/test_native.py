"""The compiled loops are built for every machine that a compiler targets."""

import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")[:1]
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC"]


def compiled(source: Path, machine: str, to: Path) -> bool:
    done = subprocess.run(  # noqa: S603  our own words, Python's own compiler
        [*COMPILER, *FLAGS, machine, "-c", source, "-o", to],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    return not done.returncode


@pytest.mark.parametrize("machine", ["-march=native", "-march=nocona", "-march=haswell", "-maes"])
@pytest.mark.parametrize("name", ["strips", "givens"])
def test_a_machine_may_be_named(name: str, machine: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.c"
    plain.write_text("int one(void) { return 1; }\n", encoding="utf-8")
    try:
        known = compiled(plain, machine, tmp_path / "plain.o")
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    if not known:
        pytest.skip("the compiler knows no such machine")
    assert compiled(NATIVE / f"{name}.c", machine, tmp_path / "loops.o")
