"""The cost model agrees with the sizes of real states, and scales as derived."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import onepass as op
from onepass.errors import ParameterError
from onepass.scale import Machine, cost, federated
from raising import raises

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "scale_cost.json"


@pytest.mark.parametrize(("p", "c"), [(100, 1), (100, 20), (300, 4)])
def test_memory_of_least_squares(p: int, c: int) -> None:
    rng = np.random.default_rng(0)
    model = op.RLSRegressor().fit(rng.normal(size=(2 * p, p)), rng.normal(size=(2 * p, c)))
    assert cost(1, p, c).memory_bytes == pytest.approx(model.nbytes, rel=0.15)
    sent = len(federated.summary(model))
    assert cost(1, p, c, machines=2).sent_bytes == pytest.approx(sent, rel=0.2)


@pytest.mark.parametrize(("p", "m"), [(1000, 20), (4000, 30), (2000, 100)])
def test_memory_of_orfit(p: int, m: int) -> None:
    rng = np.random.default_rng(0)
    model = op.ORFitRegressor(m)
    for _ in range(6):
        model.partial_fit(rng.normal(size=(m, p)), rng.normal(size=m))
    assert cost(1, p, m=m).memory_bytes == pytest.approx(model.nbytes, rel=0.25)


def test_rows_are_split_with_one_message_for_each_merge() -> None:
    one, many = cost(1e9, 50, 2), cost(1e9, 50, 2, machines=8)
    assert (one.messages, one.sent_bytes) == (0.0, 0.0)
    assert many.messages == 7
    assert many.sent_bytes == 7 * 8 * (50 * 50 + 2 * 50 * 2)
    assert (one.read_bytes, one.flops) == (many.read_bytes, many.flops)
    t = Machine()
    merge = t.merge * 50**3 + t.message + t.byte * many.sent_bytes / 7
    assert many.seconds == pytest.approx(one.seconds / 8 + 3 * merge)


def test_weights_are_split_with_messages_for_each_row() -> None:
    one, many = cost(1e4, 1e8, 3, m=50), cost(1e4, 1e8, 3, m=50, machines=16)
    assert many.memory_bytes == one.memory_bytes / 16
    assert many.messages == 1e4 * 2 * 15
    assert many.sent_bytes == many.messages * 8 * (50 + 9)
    assert one.seconds / 16 < many.seconds < one.seconds


def test_time_is_linear_in_the_constants() -> None:
    """This is what allows the constants to be fitted by least squares."""
    for settings in ({"outputs": 4, "machines": 4}, {"m": 30, "machines": 4}):
        parts = [
            cost(1e5, 300, **settings, machine=Machine(*np.eye(len(Machine._fields))[i])).seconds
            for i in range(len(Machine._fields))
        ]
        whole = cost(1e5, 300, **settings).seconds
        assert whole == pytest.approx(math.fsum(np.multiply(parts, Machine())))


@pytest.mark.parametrize(
    "settings", [{"rows": -1}, {"p": 0}, {"outputs": 0}, {"m": 0}, {"machines": 0}]
)
def test_numbers_out_of_range_are_refused(settings: dict[str, int]) -> None:
    with raises(ParameterError, where="scale.cost", argument=next(iter(settings))):
        cost(**{"rows": 10, "p": 3} | settings)


def test_constants_are_those_of_the_benchmark() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert Machine()._asdict() == found["machine"], "copy the constants to Machine"
    assert sum(run["held_back"] for run in found["runs"]) == 3
