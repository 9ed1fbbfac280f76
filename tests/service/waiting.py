"""Wait for a condition that must come true; when is not tested."""

import time
from collections.abc import Callable
from typing import Any

__all__ = ["until"]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until the condition holds; fail after this time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
