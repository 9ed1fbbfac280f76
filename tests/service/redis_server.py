"""A Redis of its own for a test, which can be killed and started again."""

import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from ports import free_port
from waiting import until

from programs import program

redis = pytest.importorskip("redis")
PROGRAM = program("Redis")
if PROGRAM is None:
    pytest.skip("redis-server is not installed", allow_module_level=True)


class RedisServer:
    """``redis-server`` on a free port, which syncs acknowledged writes.

    Parameters
    ----------
    folder : Path
    *options : str
        Further ones of its command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        folder.mkdir(exist_ok=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        assert PROGRAM
        self.process = subprocess.Popen(  # noqa: S603  our own words
            [PROGRAM, "--port", str(self.port), "--dir", str(self.folder), "--appendonly", "yes",
             "--appendfsync", "always", "--save", "", *self.options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._listens)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def client(self, **options: Any) -> Any:
        return redis.Redis(port=self.port, protocol=2, **options)

    def url(self, *, before: str = "", stream: str = "flow", **parameters: str) -> str:
        """The address of a stream."""
        more = "".join(f"&{name}={value}" for name, value in parameters.items())
        target = "" if "target" in parameters else "&target=y"
        return f"redis://{before}127.0.0.1:{self.port}/0?stream={stream}{target}{more}"

    def _listens(self) -> bool:
        try:
            self.client().ping()
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True
        except (redis.RedisError, OSError):
            return False
        return True
