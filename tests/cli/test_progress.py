"""Progress without a terminal: lines with the share or the number of rows, and the rate."""

import pytest

from onepass.cli import terminal


def test_progress_of_slow_work_has_share_and_rate_per_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, part = 0.0, 0.05
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    with terminal.advancing(lambda: part, quiet=False, unit="runs") as advance:
        advance(0)
        now, part = 20.0, 0.25
        advance(2)
    assert capsys.readouterr().err == "2 runs (25%), 6 runs/min, 20 s, about 75 s left\n"


def test_progress_of_unknown_length_has_rows_per_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 0.0, 20.0, 20.0, 20.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(times))
    with terminal.advancing(lambda: None, quiet=False) as advance:
        advance(40_000)
    assert capsys.readouterr().err == "40,000 rows, 2,000 rows/s, 20 s\n"
