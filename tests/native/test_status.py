"""Users can see whether the compiled loops run."""

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import onepass as op
from onepass import native
from onepass.errors import NotCompiledWarning


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = dict(vars(native))
    yield
    vars(native).update(before)


def test_missing_loops_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEPASS_COMPILED", raising=False)
    monkeypatch.setitem(sys.modules, "onepass._compiled", None)
    with pytest.warns(NotCompiledWarning, match="are not installed. Install onepass again"):
        importlib.reload(native)
    assert native.loops is None
    assert native.status == "NumPy (the compiled loops are not installed)"


def test_loops_of_another_version_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEPASS_COMPILED", raising=False)
    monkeypatch.setitem(sys.modules, "onepass._compiled", SimpleNamespace(VERSION=-1))
    with pytest.warns(NotCompiledWarning, match="are of another version"):
        importlib.reload(native)
    assert native.loops is None


def test_disabled_loops_do_not_warn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONEPASS_COMPILED", "0")
    importlib.reload(native)
    op.show_versions()
    assert "loops: NumPy (ONEPASS_COMPILED=0)" in capsys.readouterr().out
