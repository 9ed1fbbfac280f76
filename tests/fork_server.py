"""Fork server: fork and kill processes of one that has loaded the library."""

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
null = os.open(os.devnull, os.O_RDWR)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        for stream in (0, 1):
            os.dup2(null, stream)
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
    os.waitpid(child, 0)  # only now may the process id be reused
"""


class ForkServer:
    """A process that has loaded the library and forks others.

    Parameters
    ----------
    prepare : str
        Statements to execute first.
    do : str
        An expression that each fork evaluates, with its argument as ``given``; its value is the
        exit code.
    """

    def __init__(self, prepare: str, do: str) -> None:
        self._program = _PROGRAM.format(path=sys.path, prepare=prepare, do=do)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  a fixed command
            [sys.executable, "-c", self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # unbuffered, so that ``select`` sees unread output
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
        """Fork; ``given`` is JSON or a dataclass of JSON values."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(given, default=asdict).encode() + b"\n")
        self._child = int(self._line())

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether the fork has exited, or exits within this time."""
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def end(self, number: int = signal.SIGKILL) -> int:
        """The exit code of the fork, after a signal if it has not exited."""
        if not self.ended():
            os.kill(self._child, number)
        return int(self._line())

    def run(self, given: Any, timeout: float | None = None) -> int:
        """The exit code of a fork, which is killed after the timeout in seconds."""
        self.begin(given)
        if timeout is None:
            return int(self._line())
        self.ended(timeout)
        return self.end()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().decode().strip()
