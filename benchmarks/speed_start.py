"""Speed of the start: what importing this library costs, and the command line's help.

Each time is of a process of its own, begun in turn with the others; what is imported lies in the
file cache, and its bytecode beside it. ``import onepass`` loads nothing but names. The first
learner that is asked for loads its room, and NumPy, SciPy and scikit-learn, whose time is taken
off turn by turn.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from limits import Limits
from turns import Work

TIMES = 3  # starts in a round: a start is short, and its time scatters
BARE = "import numpy, scipy.linalg, sklearn.base"
CODE = {
    "nothing": "pass",
    "import onepass": "import onepass",
    "bare": BARE,
    "learner": f"{BARE}; import onepass; onepass.RLSRegressor",
    "river": f"{BARE}; import river.linear_model, river.metrics",
    "onepass --help": "from onepass.cli import main; main(['--help'])",
    "vw": "import vowpalwabbit",
    "river alone": "import river.linear_model, river.metrics",
}
IMPORT, HELP = 0.080, 0.400  # seconds that are wanted, at most

Times = dict[str, list[float]]


def works(rounds: int, limits: Limits) -> Iterator[Work]:
    """The import, the first learner, and the help."""
    del limits
    found, wall = seconds(TIMES * rounds)
    note = (
        "Processor seconds beyond those of the interpreter alone; a ratio of 1 is what is wanted."
    )
    alone = {"River": beyond(found, "river alone", "nothing")}
    yield start("import onepass", beyond(found, "import onepass", "nothing"), IMPORT, alone, note)
    note = "Processor seconds beyond those of importing NumPy, scipy.linalg and sklearn.base."
    river = {"River": beyond(found, "river", "bare")}
    yield start("the first learner", beyond(found, "learner", "bare"), IMPORT, river, note)
    imports = {
        f"importing {name}": wall[code]
        for name, code in (("River", "river alone"), ("Vowpal Wabbit", "vw"))
        if code in wall
    }
    note = "Seconds of the whole process on the wall; others have no help to show: their import."
    yield start("onepass --help", wall["onepass --help"], HELP, imports, note)


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
    """Starts a second; a difference of two times may be nothing."""
    return [1.0 / max(took, 1e-3) for took in times]


def beyond(found: Times, more: str, less: str) -> list[float]:
    """How much longer, turn by turn: what the machine is busy with hits both of a turn alike."""
    return [a - b for a, b in zip(found.get(more, ()), found[less], strict=False)]


def seconds(times: int) -> tuple[Times, Times]:
    """Seconds of processes that run each code, in turns, of the processor and on the wall.

    What cannot be imported is left out.
    """
    there = {name: code for name, code in CODE.items() if begun(code) is not None}
    found: tuple[Times, Times] = ({name: [] for name in there}, {name: [] for name in there})
    for _ in range(times):
        for name, code in there.items():
            for kept, took in zip(found, begun(code) or (0.0, 0.0), strict=True):
                kept[name].append(took)
    return found


def begun(code: str) -> tuple[float, float] | None:
    """Seconds of one process; None where it fails."""
    settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # kept, whatever is said of it
    began, used = time.perf_counter(), _used()
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", code], env=settings, capture_output=True, check=False
    )
    if done.returncode:
        return None
    return _used() - used, time.perf_counter() - began


def _used() -> float:
    """Processor seconds of all processes that were begun here and have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
