"""Random gaps of up to 400 half-lives; `gaps.py` next to this file runs thousands of them."""

import pytest
from gaps import SETTINGS, check

WRONG = {
    (True, "plain", 1e-12): "features that several gaps have faded and that are then dependent",
}
"""Settings in which some of the seeds are wrong."""


@pytest.mark.parametrize(
    ("silent", "rule", "ridge"),
    [
        pytest.param(
            silent,
            rule,
            ridge,
            marks=[pytest.mark.xfail(strict=True, reason=WRONG[silent, rule, ridge])]
            if (silent, rule, ridge) in WRONG
            else [],
        )
        for silent in (False, True)
        for rule, ridge in SETTINGS
    ],
)
def test_predictions_after_gaps_stay_bounded_and_do_not_depend_on_blocks(
    silent: bool,  # noqa: FBT001
    rule: str,
    ridge: float,
) -> None:
    wrong = {seed: check(seed, rule, ridge, silent=silent) for seed in range(40)}
    assert not {seed: kinds for seed, kinds in wrong.items() if kinds}
