"""Python processes that are forked from one that has the service loaded: they start at once."""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["ForkedPython", "run_forked"]

_PROGRAM = """
import contextlib, gc, json, os, select, signal, sys
sys.path[:] = {path!r}
import importlib.resources.readers, numpy, sklearn.utils._pprint
import onepass, onepass.cli.app, onepass.cli.model, onepass.cli.serve, onepass.models
import onepass.learners, onepass.service, onepass.service.http.app
import onepass.service.http.connection, onepass.service.http.server, onepass.service.http.status
import uvicorn.lifespan.off, uvicorn.loops.auto
with contextlib.suppress(ImportError):
    import uvicorn.loops.uvloop

replies = os.dup(1)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1)
wake, woken = os.pipe()
os.set_blocking(woken, False)
signal.set_wakeup_fd(woken)
signal.signal(signal.SIGCHLD, lambda *_: None)
children = set()
gc.collect()
gc.freeze()


def reap():
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        children.discard(pid)
        os.write(replies, b"%d %d\\n" % (pid, os.waitstatus_to_exitcode(status)))


def next_fork():
    buffer = b""
    while True:
        readable = select.select([0, wake], [], [])[0]
        if wake in readable:
            os.read(wake, 4096)
        reap()
        if 0 in readable:
            data = os.read(0, 65536)
            if not data:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            buffer += data
        while b"\\n" in buffer:
            line, _, buffer = buffer.partition(b"\\n")
            pid = os.fork()
            if pid == 0:
                return json.loads(line)
            children.add(pid)
            os.write(replies, b"%d\\n" % pid)


request = next_fork()
signal.set_wakeup_fd(-1)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
os.dup2(null, 0)
for descriptor in (replies, null, wake, woken):
    os.close(descriptor)
for descriptor, name in ((1, "stdout"), (2, "stderr")):
    if request[name]:
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
os.chdir(request["directory"])
os.environ.clear()
os.environ.update(request["environment"])
sys.argv = ["-c", *request["arguments"]]
exec(compile(request["code"], "<forked>", "exec"), {{"__name__": "__main__"}})
"""

_START_SECONDS = 120.0  # the first fork waits until the service is loaded


class _ForkServer:
    """The process that is forked; it ends, with its forks, when this process ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  a fixed command
            [sys.executable, "-c", _PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._lock = threading.Lock()
        self._buffer = b""
        self._started: list[int] = []
        self._codes: dict[int, int] = {}
        atexit.register(self._close)

    def start(self, request: dict[str, Any]) -> int:
        """Fork; the process id."""
        assert self._process.stdin
        end = time.monotonic() + _START_SECONDS
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            while not self._started:
                self._read(end - time.monotonic())
                if not self._started and time.monotonic() > end:
                    self._process.kill()  # a late reply would be that of the next request
                    raise TimeoutError(f"the fork server did not fork within {_START_SECONDS:g} s")
            return self._started.pop()

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """The exit code of a fork, or None if it is still running after the timeout."""
        end = time.monotonic() + timeout
        while True:
            with self._lock:
                while pid not in self._codes and self._read(0.0):
                    pass
                if pid in self._codes:
                    return self._codes[pid]
            left = end - time.monotonic()
            if left <= 0.0:
                return None
            # without the lock, and not for long: another thread may read the reply
            self._readable(min(left, 0.05))

    def _readable(self, timeout: float) -> bool:
        return bool(select.select([self._process.stdout], [], [], max(0.0, timeout))[0])

    def _read(self, timeout: float) -> bool:
        """Read replies: the process id of each fork, and its exit code once it has ended."""
        assert self._process.stdout
        if not self._readable(timeout):
            return False
        data = os.read(self._process.stdout.fileno(), 65536)
        assert data, "the fork server has ended"
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            pid, _, code = line.partition(b" ")
            if code:
                self._codes[int(pid)] = int(code)
            else:
                self._codes.pop(int(pid), None)  # of a former process
                self._started.append(int(pid))
        return True

    def _close(self) -> None:
        self._process.communicate()


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


class ForkedPython:
    """A process that executes a program, with the methods of ``subprocess.Popen``.

    Parameters
    ----------
    code : str
        The program.
    *arguments : str
        Its ``sys.argv[1:]``.
    environment : dict, optional
        That of this process by default.
    stdout, stderr : Path, optional
        Files of its output, which is discarded or that of this process by default.
    """

    def __init__(
        self,
        code: str,
        *arguments: str,
        environment: dict[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
    ) -> None:
        request = {
            "code": code,
            "arguments": arguments,
            "directory": str(Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "stdout": "" if stdout is None else str(stdout),
            "stderr": "" if stderr is None else str(stderr),
        }
        self.pid = _fork_server().start(request)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None."""
        if self.returncode is None:
            self.returncode = _fork_server().exit_code(self.pid, 0.0)
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        """The exit code, once the process has ended."""
        if self.returncode is None:
            self.returncode = _fork_server().exit_code(self.pid, timeout)
            if self.returncode is None:
                raise subprocess.TimeoutExpired("forked Python", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Execute a program in a fork to its end; its exit code and output."""
    with tempfile.TemporaryDirectory() as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        process = ForkedPython(code, *arguments, stdout=stdout, stderr=stderr)
        code_ = process.wait()
        return subprocess.CompletedProcess(arguments, code_, stdout.read_text(), stderr.read_text())
