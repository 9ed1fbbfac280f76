"""Start-up time: importing this library, and the help of the command line.

Each time is from a separate process, interleaved with the others; files and bytecode are cached.
``import onepass`` loads only names. Access to the first learner imports its package, and NumPy,
SciPy and scikit-learn, which are imported before timing.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from limits import Limits
from turns import Work

TIMES = 3  # starts per round, since start-up times vary
BARE = "import numpy, scipy.linalg, sklearn.base"
RIVER = "import river.linear_model, river.metrics"
IMPORTS = {  # name -> (imports before timing, timed code)
    "import onepass": ("", "import onepass"),
    "first learner": (BARE, "import onepass; onepass.RLSRegressor"),
    "River": ("", RIVER),
    "River, beyond": (BARE, RIVER),
}
WHOLE = {
    "onepass --help": "from onepass.cli import main; main(['--help'])",
    "importing River": RIVER,
    "importing Vowpal Wabbit": "import vowpalwabbit",
}
TIMED = """{0}
import time
began = time.process_time()
{1}
print(time.process_time() - began)
"""
IMPORT, HELP = 0.080, 0.400  # max seconds

Times = dict[str, list[float]]


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """Measure the import, the first learner and the help."""
    del limits
    found = seconds(TIMES * rounds)
    note = "CPU seconds within a process; a ratio of 1 meets the target."
    river = {"River": found["River"]}
    yield start("import onepass", found["import onepass"], IMPORT, river, note)
    note = "CPU seconds with NumPy, scipy.linalg and sklearn.base already imported."
    river = {"River": found["River, beyond"]}
    yield start("the first learner", found["first learner"], IMPORT, river, note)
    imports = {name: found[name] for name in list(WHOLE)[1:]}
    note = (
        "Wall-clock seconds of the whole process. Other libraries have no command line: "
        "their import."
    )
    yield start("onepass --help", found["onepass --help"], HELP, imports, note)


def start(name: str, ours: list[float], wanted: float, others: Times, note: str) -> Work:
    """Return starts per second, compared with the target."""
    line = f"target, {1000 * wanted:.0f} ms"
    shown = {other: times for other, times in others.items() if times}
    return Work(
        name,
        "starts",
        "onepass",
        {"onepass": inverse(ours), line: [1.0 / wanted], **{k: inverse(shown[k]) for k in shown}},
        1.0,
        aside=tuple(shown),
        note=note,
    )


def inverse(times: list[float]) -> list[float]:
    """Return starts per second."""
    return [1.0 / took for took in times]


def seconds(times: int) -> Times:
    """Time processes in interleaved rounds; empty for missing libraries."""
    codes = {name: TIMED.format(*code) for name, code in IMPORTS.items()} | WHOLE
    there = {name: code for name, code in codes.items() if begun(code) is not None}
    found: Times = {name: [] for name in codes}
    for _ in range(times):
        for name, code in there.items():
            began = time.perf_counter()
            output = begun(code)
            whole = time.perf_counter() - began
            if output is not None:
                found[name].append(whole if name in WHOLE else float(output))
    return found


def begun(code: str) -> str | None:
    """Return the output of a process; None if it fails."""
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # always write bytecode
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", code], env=settings, capture_output=True, check=False, text=True
    )
    return None if done.returncode else done.stdout
