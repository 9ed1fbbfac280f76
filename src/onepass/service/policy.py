"""Policy: how a durable learner is kept, and who watches it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onepass.service.blocks import Block

__all__ = ["Policy", "Watcher"]

Watcher = Callable[[Block, Any], Callable[[], object] | None]
"""Called with each block that was learned, and what was said of its rows before.

It may return a function for what may take longer. That is called after the rows are settled, so
that other threads go on, though a ``learn`` in this thread returns only then; it is left out if an
interrupt comes in between. Of blocks that are learned again on opening it is called at once.
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
    most_features: int | None = None
    most_pending: int = 1 << 20
