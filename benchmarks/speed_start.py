"""Speed of the start: what importing this library costs, and the command line's help.

Each time is of a process of its own, begun in turn with the others; what is imported lies in the
file cache, and its bytecode beside it. ``import onepass`` loads nothing but names. The first
learner that is asked for loads its room, and NumPy, SciPy and scikit-learn, which are imported
before the clock is read.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from limits import Limits
from turns import Work

TIMES = 3  # starts in a round: a start is short, and its time scatters
BARE = "import numpy, scipy.linalg, sklearn.base"
RIVER = "import river.linear_model, river.metrics"
IMPORTS = {  # what is there before, and what is timed
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
IMPORT, HELP = 0.080, 0.400  # seconds that are wanted, at most

Times = dict[str, list[float]]


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """The import, the first learner, and the help."""
    del limits
    found = seconds(TIMES * rounds)
    note = "Processor seconds within a process; a ratio of 1 is what is wanted."
    river = {"River": found["River"]}
    yield start("import onepass", found["import onepass"], IMPORT, river, note)
    note = "The same, where NumPy, scipy.linalg and sklearn.base are imported already."
    river = {"River": found["River, beyond"]}
    yield start("the first learner", found["first learner"], IMPORT, river, note)
    imports = {name: found[name] for name in list(WHOLE)[1:]}
    note = "Seconds of the whole process on the wall; others have no help to show: their import."
    yield start("onepass --help", found["onepass --help"], HELP, imports, note)


def start(name: str, ours: list[float], wanted: float, others: Times, note: str) -> Work:
    """Starts a second, beside as many as are wanted."""
    line = f"as wanted, {1000 * wanted:.0f} ms"
    shown = {other: times for other, times in others.items() if times}
    return Work(
        name,
        "starts",
        "onepass",
        {"onepass": inverse(ours), line: [1.0 / wanted], **{k: inverse(shown[k]) for k in shown}},
        1.0,
        aside=tuple(shown),
        note=note,
        lead=True,
    )


def inverse(times: list[float]) -> list[float]:
    """Starts a second."""
    return [1.0 / took for took in times]


def seconds(times: int) -> Times:
    """Seconds of processes, in turns; none of what cannot be imported."""
    codes = {name: TIMED.format(*code) for name, code in IMPORTS.items()} | WHOLE
    there = {name: code for name, code in codes.items() if begun(code) is not None}
    found: Times = {name: [] for name in codes}
    for _ in range(times):
        for name, code in there.items():
            began = time.perf_counter()
            told = begun(code)
            whole = time.perf_counter() - began
            if told is not None:
                found[name].append(whole if name in WHOLE else float(told))
    return found


def begun(code: str) -> str | None:
    """What a process prints; None where it fails."""
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # kept, whatever is said of it
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", code], env=settings, capture_output=True, check=False, text=True
    )
    return None if done.returncode else done.stdout
