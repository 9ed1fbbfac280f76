"""A server whose disk stalls or is full for as long as a file says so."""

from pathlib import Path
from types import TracebackType
from typing import Self

from web_server import Server

_PROGRAM = """
import sys, time
from pathlib import Path

from onepass.cli import main
from onepass.service.journal import Journal

stalled, full = Path({stalled!r}), Path({full!r})

def reached(self, step):
    if step == "begun":
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        self._db.execute(f"PRAGMA max_page_count = {{pages if full.exists() else 1 << 30}}")
    while step == "before commit" and stalled.exists():
        time.sleep(0.01)

Journal.reached = reached
sys.exit(main())
"""


class FaultyDiskServer(Server):
    """``onepass serve``, as :class:`web_server.Server`.

    A commit takes as long as ``stalled`` is there; its files grow no more while ``full`` is there.
    """

    def __init__(self, folder: Path, *options: str, token: str | None = None) -> None:
        super().__init__(folder, *options, token=token)
        self.stalled, self.full = Path(f"{folder}.stalled"), Path(f"{folder}.full")
        self.program = _PROGRAM.format(stalled=str(self.stalled), full=str(self.full))

    def __enter__(self) -> Self:
        for each in (self.stalled, self.full):
            each.unlink(missing_ok=True)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for each in (self.stalled, self.full):
            each.unlink(missing_ok=True)
        super().__exit__(kind, error, at)
