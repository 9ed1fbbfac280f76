"""The verb merge, for learners that do not say how."""

import pickle

import pytest

import onepass as op
from onepass.errors import MergeError


class Careless(op.SGDRegressor):  # type: ignore[misc]
    """It says that it can be merged, and not how."""

    def _unmergeable(self) -> str:
        return ""


def test_a_learner_without_a_merge_hook_is_refused_and_unchanged() -> None:
    one, other = (Careless().learn_one([1.0, 2.0], y) for y in (1.0, 2.0))
    before = pickle.dumps(one.__dict__)
    with pytest.raises(MergeError, match=r"Careless\.merge: .* got a learner that does not\. L"):
        one.merge(other)
    assert pickle.dumps(one.__dict__) == before


def test_the_hook_for_outputs_of_a_merge_is_abstract() -> None:
    from onepass.learners.estimator.learner import Learner

    assert "_join_outputs" in Learner.__abstractmethods__
    assert not op.SGDRegressor.__abstractmethods__ | op.SGDClassifier.__abstractmethods__
