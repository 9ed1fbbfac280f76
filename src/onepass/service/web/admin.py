"""Admin: learners are made, retired, saved and taken back, over HTTP."""

from typing import Any

import msgspec

from onepass.errors import ParameterError
from onepass.features.presets import pipelines
from onepass.serialization import archive
from onepass.serialization.models import given_back
from onepass.service.shelf import Shelf
from onepass.service.trial import hold_learnable
from onepass.service.web.exchange import Answer, Asking
from onepass.service.web.threads import Threads

__all__ = ["Admin"]

_MODEL = "application/x-onepass"
_FILE = "the model file"


class _Making(msgspec.Struct, forbid_unknown_fields=True):
    """How a learner is described in JSON."""

    model: str
    task: str = "regression"
    settings: dict[str, Any] = {}


class _Going(msgspec.Struct, forbid_unknown_fields=True):
    """To which version to go back."""

    to: int


class Admin:
    """The verbs of whoever administers.

    Parameters
    ----------
    shelf : Shelf
    threads : Threads
    """

    def __init__(self, shelf: Shelf, threads: Threads) -> None:
        self._shelf, self._threads = shelf, threads

    async def create(self, asking: Asking, name: str) -> Answer:
        """``PUT /v2/models/NAME``: a model file, or a model by its name and parameters."""
        kind = (asking.header(b"content-type") or "").partition(";")[0].strip().lower()

        def made() -> int:
            whole = asking.unpacked()
            file = kind == _MODEL or (kind != "application/json" and not whole.startswith(b"{"))
            if file:
                model = _loaded(whole)
            else:
                said = _decoded(whole, _Making)
                model = pipelines([said.model], said.task, said.settings)[said.model]
                hold_learnable(model)
            return self._shelf.create(name, model).durable.version

        return _json({"name": name, "version": await self._threads.change(made)}, status=201)

    async def load(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/repository/models/NAME/load``: reopen a learner that failed."""
        del asking
        served = await self._threads.change(lambda: self._shelf.load(name))
        return _json({"name": name, "version": served.durable.version})

    async def retire(self, asking: Asking, name: str) -> Answer:
        """``DELETE /v2/models/NAME``: it is served no longer; its file is kept."""
        del asking
        kept = await self._threads.change(lambda: self._shelf.retire(name))
        return _json({"name": name, "kept": kept.name})

    async def snapshot(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/snapshot``."""
        del asking
        version = await self._threads.change(self._shelf[name].durable.snapshot)
        return _json({"name": name, "version": version})

    async def rollback(self, asking: Asking, name: str) -> Answer:
        """``POST /v2/models/NAME/rollback`` with ``{"to": VERSION}``."""
        durable = self._shelf[name].durable

        def gone_back() -> int:
            return durable.rollback(to=_decoded(asking.unpacked(), _Going).to)

        return _json({"name": name, "version": await self._threads.change(gone_back)})


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        fields = ", ".join(map(repr, kind.__struct_fields__))
        came = f"what is none: {wrong}" if body else "nothing"
        raise ParameterError(
            f"the body must be an object of JSON with {fields}, got {came}. See /openapi.json."
        ) from wrong


def _loaded(body: bytes) -> Any:
    return given_back(archive.unpacked(body, _FILE), _FILE, {})


def _json(said: dict[str, Any], status: int = 200) -> Answer:
    return Answer(msgspec.json.encode(said), status=status)
