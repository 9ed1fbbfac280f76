"""Forgetting rules given as text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op
from onepass.cli import main
from onepass.errors import ParameterError
from onepass.forgetting import Bounded, Directional, Exponential, Window
from onepass.forgetting.parse import rule


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (0.9, Bounded(0.9)),
        (1, Bounded(1.0)),
        (np.float32(0.5), Bounded(0.5)),
        (" 0.98", Bounded(0.98)),
        ("bounded:0.9", Bounded(0.9)),
        ("bounded:0.9,2", Bounded(0.9, 2.0)),
        ("bounded:half_life=1h,floor=2", Bounded(half_life="1h", floor=2.0)),
        ("bounded:half_life=90", Bounded(half_life=90.0)),
        ("Exponential : 0.98", Exponential(0.98)),
        ("exponential:factor=0.98", Exponential(0.98)),
        ("directional:0.98,block=50", Directional(0.98, 50)),
        ("directional:0.98,scaled=false", Directional(0.98, scaled=False)),
        ("window:1000", Window(1000)),
        ("window:span=7d", Window(span="7d")),
    ],
)
def test_text_is_parsed_as_rule(text: Any, same: Any) -> None:
    assert rule(text) == same


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("windows:10", "Did you mean 'window'"),
        ("sliding", "bounded, directional, exponential, window"),
        ("1.98", r"in \(0, 1\]"),
        ("true", "bounded, directional, exponential, window"),
        ("window", "exactly one of `rows` and `span`"),
        ("window:rows=10,rows=20", "at most once"),
        ("window:10,20,30", "at most once"),
        ("window:width=10", "rows, span"),
        ("window:1.5", "whole number"),
        ("bounded:2", "factor"),
        ("bounded:half_life=soon", "half_life"),
        ("directional:0.9,scaled=1", "True or False"),
        (1.5, "forgetting"),
        (0, r"op.ORFitRegressor\(memory=None\)"),
        (None, "rule of op.forgetting"),
        ([0.9], "rule of op.forgetting"),
        (Bounded, "rule of op.forgetting"),
    ],
)
def test_invalid_rule_is_refused_with_valid_ones(text: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words) as refused:
        op.RLSRegressor(forgetting=text).fit(np.eye(2), [1.0, 2.0])
    assert str(refused.value).startswith("RLSRegressor.fit: `forgetting`")


def test_command_line_accepts_forgetting_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hours = np.datetime64("2024-05-01T00:00") + np.timedelta64(30, "m") * np.arange(200)
    lines = [f"{at},{i % 7},{3 * (i % 7) + (i > 100)}" for i, at in enumerate(hours)]
    Path("t.csv").write_text("\n".join(["at,x,y", *lines]) + "\n")
    call = ["run", "t.csv", "--target", "y", "--drop", "at", "-q"]
    call += ["--model", "rls", "--save", "m.onepass"]
    timed = [*call, "--time", "at", "--set", "rls.forgetting=bounded:half_life=5h"]
    assert main(timed) == 0
    model = op.load("m.onepass")
    assert model._uses_time
    assert model.learner.time_ == hours[-1]
    assert model.predict_one({"x": 2.0}) == pytest.approx(7.0, abs=1e-2)
    capsys.readouterr()
    assert main([*call, "--set", "rls.forgetting=window:span=5h"]) == 2
    assert "time" in capsys.readouterr().err
    assert main(["inspect", "m.onepass"]) == 0
    assert "half_life=5h" in capsys.readouterr().out.replace("\n", "")
