"""The decay rate as a factor or a half-life."""

import datetime as dt
from typing import Any

import pytest

from onepass.errors import ParameterError
from onepass.forgetting import Bounded, Directional, Exponential
from raising import raises

FADING = [Bounded, Directional, Exponential]


@pytest.mark.parametrize("rule", FADING)
def test_exactly_one_of_factor_and_half_life_is_required(rule: Any) -> None:
    remedy = f"Use {rule.__name__}(0.99) or {rule.__name__}(half_life='1h')"
    with raises(ParameterError, got="neither", remedy=remedy):
        rule()
    with raises(ParameterError, got="both", remedy=remedy):
        rule(0.9, half_life=3.0)


@pytest.mark.parametrize("rule", FADING)
def test_factor_and_half_life_out_of_range_are_refused(rule: Any) -> None:
    for wrong in (0.0, 1.5, float("nan"), "much"):
        with raises(ParameterError, where=rule.__name__, argument="factor"):
            rule(wrong)
    for wrong in (0.0, -1.0, "soon"):
        with raises(ParameterError, where=rule.__name__, argument="half_life"):
            rule(half_life=wrong)


@pytest.mark.parametrize("rule", FADING)
def test_half_life_sets_clock_and_unit(rule: Any) -> None:
    assert rule(0.9).clock is None
    assert (rule(half_life=30).clock, rule(half_life=30).unit) == ("number", 30.0)
    for hour in ("1h", "60min", dt.timedelta(hours=1)):
        assert (rule(half_life=hour).clock, rule(half_life=hour).unit) == ("date", 3600.0)


@pytest.mark.parametrize("rule", FADING)
def test_half_life_is_keyword_only(rule: Any) -> None:
    names = list(rule(0.9).__dataclass_fields__)
    with pytest.raises(TypeError, match="positional argument"):
        rule(*[None] * len(names))
