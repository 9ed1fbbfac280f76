"""What holds for stored files."""

import pytest


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests write need not outlive a power failure."""
    monkeypatch.setattr("os.fsync", lambda _: None)
