"""A nursery: processes that are forked, and killed, from one that has loaded what they need."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

__all__ = ["Nursery"]

_PROGRAM = """
import json, os, sys
sys.path[:] = {path!r}
{prepare}
nothing = os.open(os.devnull, os.O_RDWR)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        for stream in (0, 1):
            os.dup2(nothing, stream)
        code = 1
        try:
            given = json.loads(line)
            code = {do} or 0
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """A process that has the library loaded, and of which others are forked.

    Parameters
    ----------
    prepare : str
        Statements that it begins with.
    do : str
        What a fork does with what it is ``given``: an expression, whose value is the exit code.
    """

    def __init__(self, prepare: str, do: str) -> None:
        self._program = _PROGRAM.format(path=sys.path, prepare=prepare, do=do)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  our own words
            [sys.executable, "-c", self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._line() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, given: Any, patience: float | None = None) -> int:
        """The exit code of a fork that is killed after so many seconds, if it is not done.

        What it is given is JSON, or a dataclass of such.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps(given, default=asdict) + "\n")
        self._process.stdin.flush()
        child = int(self._line())
        if patience is not None:
            time.sleep(patience)
            # a child that is done is waited for by its parent alone, and cannot be another by now
            # unless the parent has said so
            if not self._said():
                os.kill(child, signal.SIGKILL)
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def _said(self) -> bool:
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], 0)[0])
