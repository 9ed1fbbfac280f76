"""Number of examples of property tests."""

import os

__all__ = ["examples"]


def examples(few: int, many: int) -> int:
    """``few``, but ``many`` with the environment variable ``ONEPASS_TEST_ALL=1``."""
    return many if os.environ.get("ONEPASS_TEST_ALL") == "1" else few
