"""Policy: how a durable learner is kept, and who watches it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onepass.service.blocks import Block

__all__ = ["Policy", "Watcher"]

Watcher = Callable[[Block, Any], Callable[[], object] | None]
"""Called with each block that was learned, and what was said of its rows before.

It may return what is left to be done: it is called once those who gave the rows are told, and is
left out if an interrupt comes in between.
"""


@dataclass(frozen=True)
class Policy:
    """How a learner is kept; ``op.durable`` tells what each of these is."""

    snapshot_rows: int
    snapshot_seconds: float
    keep: int
    key_seconds: float
    replacements: Mapping[str, Any]
    clock: Callable[[], float]
    watch: Callable[[Any], Watcher] | None
