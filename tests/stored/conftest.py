"""Fixtures for tests of stored files."""

import pytest


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: files written by tests need not survive a power failure."""
    monkeypatch.setattr("os.fsync", lambda _: None)
