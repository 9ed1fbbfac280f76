"""A nursery: processes that are forked, and killed, from one that has loaded what they need."""

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

__all__ = ["ForkServer"]

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
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    killed = found.si_code != os.CLD_EXITED
    print(-found.si_status if killed else found.si_status, flush=True)
    os.waitpid(child, 0)  # from now on another process may have its number: all know that it ended
"""


class ForkServer:
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
            bufsize=0,  # so that what was said and not yet heard is seen by ``select``
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

    def begin(self, given: Any) -> None:
        """Fork; what the fork is given is JSON, or a dataclass of such."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(given, default=asdict).encode() + b"\n")
        self._child = int(self._line())

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether the fork has ended by itself, or does so within these seconds."""
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def end(self, number: int = signal.SIGKILL) -> int:
        """The fork's exit code, after a signal if it has not ended by itself."""
        if not self.ended():
            os.kill(self._child, number)
        return int(self._line())

    def run(self, given: Any, patience: float | None = None) -> int:
        """The exit code of a fork that is killed after so many seconds, if it is not done."""
        self.begin(given)
        if patience is None:
            return int(self._line())
        self.ended(patience)
        return self.end()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().decode().strip()
