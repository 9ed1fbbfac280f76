"""About: what the service says of itself and of its learners."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from onepass.errors import UnknownError
from onepass.service import page
from onepass.service.protocol import v2
from onepass.service.served import Served
from onepass.service.shelf import Shelf
from onepass.service.web.exchange import Answer, Asking
from onepass.service.web.exposition import exposition
from onepass.service.web.metadata import of_model
from onepass.service.web.openapi import described
from onepass.service.web.pathless import pathless
from onepass.service.web.state import onepass_version, state
from onepass.service.web.threads import Threads

__all__ = ["About"]


class About:
    """What may be read.

    Parameters
    ----------
    shelf : Shelf
    threads : Threads
    statuses : mapping of int to int
        How many requests were answered with each.
    """

    def __init__(self, shelf: Shelf, threads: Threads, statuses: Mapping[int, int]) -> None:
        self._shelf, self._threads, self._statuses = shelf, threads, statuses

    async def live(self, asking: Asking) -> Answer:
        """``GET /v2/health/live``: it answers."""
        del asking
        return Answer(b'{"live":true}')

    async def ready(self, asking: Asking) -> Answer:
        """``GET /v2/health/ready``: whether a learner can learn, or none exists."""
        del asking
        names = self._shelf.names
        if names and not any(served.ready for served in self._shelf):
            self._shelf[names[0]].hold_ready()  # raises
        return Answer(b'{"ready":true}')

    async def version(self, asking: Asking) -> Answer:
        """``GET /version``, as MLflow asks for it."""
        del asking
        return Answer(onepass_version().encode(), "text/plain; charset=utf-8")

    async def server(self, asking: Asking) -> Answer:
        """``GET /v2``."""
        del asking
        return _sent(v2.server(onepass_version()))

    async def model(self, asking: Asking, name: str, version: str | None = None) -> Answer:
        """``GET /v2/models/NAME``."""
        del asking
        served = self._shelf[name]
        now, learner = served.answering(version)
        return _sent(of_model(name, now, learner))

    async def model_ready(self, asking: Asking, name: str, version: str | None = None) -> Answer:
        """``GET /v2/models/NAME/ready``."""
        del asking
        served = self._shelf[name]
        served.answering(version)
        served.hold_ready()
        return Answer(msgspec.json.encode({"name": name, "ready": True}))

    async def index(self, asking: Asking) -> Answer:
        """``/v2/repository/index``: which learners there are."""
        del asking
        folder = self._shelf.folder
        lines = [_line(served, folder) for served in self._shelf]
        lines += [
            {"name": name, "version": "", "state": "UNAVAILABLE",
             "reason": pathless(reason, folder)}
            for name, reason in self._shelf.failed.items()
        ]  # fmt: skip
        return Answer(msgspec.json.encode(lines))

    async def state(self, asking: Asking) -> Answer:
        """``GET /state``: what the page shows."""
        del asking
        found = await self._threads.look(lambda: state(self._shelf))
        return Answer(msgspec.json.encode(found), headers={"Cache-Control": "no-store"})

    async def metrics(self, asking: Asking) -> Answer:
        """``GET /metrics``, for Prometheus."""
        del asking
        statuses = dict(self._statuses)
        text = await self._threads.look(lambda: exposition(self._shelf, statuses))
        return Answer(text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, asking: Asking) -> Answer:
        """``GET /openapi.json``."""
        del asking
        return Answer(msgspec.json.encode(described(onepass_version())))

    async def page(self, asking: Asking, file: str = "index.html") -> Answer:
        """``GET /`` and what it needs."""
        found = page.file(file)
        if found is None:
            raise UnknownError(f"{asking.path[:200]}: there is no such file.")
        headers = {**page.HEADERS, "ETag": found.tag}
        if asking.header(b"if-none-match") == found.tag:
            return Answer(b"", found.kind, 304, headers)
        return Answer(found.body, found.kind, headers=headers)


def _sent(reply: Any) -> Answer:
    return Answer(reply.body, reply.kind, headers=reply.headers or {})


def _line(served: Served, folder: Path) -> dict[str, Any]:
    return {
        "name": served.name,
        "version": str(served.durable.published[0]),
        "state": "READY" if served.ready else "UNAVAILABLE",
        "reason": pathless(served.trouble or "", folder),
    }
