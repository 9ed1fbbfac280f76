"""Random gaps of up to 400 half-lives; `gaps.py` next to this file runs thousands of them."""

import pytest
from gaps import SETTINGS, check


@pytest.mark.parametrize(
    ("silent", "rule", "ridge"),
    [(silent, rule, ridge) for silent in (False, True) for rule, ridge in SETTINGS],
)
def test_predictions_after_gaps_stay_bounded_and_do_not_depend_on_blocks(
    silent: bool,  # noqa: FBT001
    rule: str,
    ridge: float,
) -> None:
    found = {seed: check(seed, rule, ridge, silent=silent) for seed in range(40)}
    wrong = {seed: kinds for seed, kinds in found.items() if kinds}
    assert not wrong
