"""The method merge of learners without a merge hook."""

import pickle

import onepass as op
from onepass.errors import MergeError
from raising import raises


class UnmergeableLearner(op.SGDRegressor):  # type: ignore[misc]
    """A learner that claims to be mergeable and has no merge hook."""

    def _unmergeable(self) -> str:
        return ""


def test_merge_of_learner_without_merge_hook_is_refused() -> None:
    one, other = (UnmergeableLearner().learn_one([1.0, 2.0], y) for y in (1.0, 2.0))
    before = pickle.dumps(one)
    with raises(
        MergeError, where="UnmergeableLearner.merge", got="a learner that does not", remedy="Learn"
    ):
        one.merge(other)
    assert pickle.dumps(one) == before
