"""The model of a durable learner: a learner or a Pipeline that the writer owns.

The model is a copy of the user's learner; snapshots contain its encoding. The same blocks in the
same order result in the same learner, bit for bit.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import NotFittedError, ParameterError, TypeMismatchError, calling
from onepass.serialization import archive
from onepass.serialization.codec import state_dict
from onepass.serialization.models import dumps, from_contents
from onepass.service.requests import Block, read_rows
from onepass.types import Array
from onepass.validation.table import Table, TableLike

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner

__all__ = ["ManagedModel", "predict_rows"]


class ManagedModel:
    """A learner or Pipeline that a writer owns.

    Parameters
    ----------
    learner : learner or Pipeline
    """

    def __init__(self, learner: Learner | Pipeline) -> None:
        self.learner = learner

    @classmethod
    def of(cls, learner: Learner | Pipeline, where: str) -> ManagedModel:
        """Copy a user's learner.

        Raises
        ------
        TypeMismatchError
            If the learner cannot be saved, or does not learn from targets.
        """
        if getattr(type(learner), "saves_itself", False) is True:
            raise TypeMismatchError(
                "`model` must be a learner of tables or a Pipeline, got "
                f"op.nn.{type(learner).__name__}, whose module cannot be stored in a file. Freeze "
                "the network, and use it as a feature of a Pipeline with op.features.ONNXFeatures.",
                where,
            )
        learns = all(hasattr(learner, verb) for verb in ("test_then_train", "frozen_copy"))
        if isinstance(learner, type) or not learns:
            name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
            raise TypeMismatchError(
                f"`model` must be a learner of onepass or a Pipeline, got {name}. Pass "
                "an object such as op.RLSRegressor().",
                where,
            )
        return cls(copy.deepcopy(learner))

    @classmethod
    def from_bytes(
        cls, data: bytes, where: str, replacements: Mapping[str, object]
    ) -> ManagedModel:
        """Decode the result of ``to_bytes``."""
        return cls(from_contents(archive.loads(data, where), where, replacements))

    def to_bytes(self, where: str) -> bytes:
        """Encode the learner, as ``op.save`` does."""
        return dumps(self.learner, where)

    def copied(self) -> Learner | Pipeline:
        """Return a copy of the learner for a user."""
        return copy.deepcopy(self.learner)

    def learn(self, block: Block) -> Array:
        """Learn a block and return its prequential predictions; learn nothing if it raises."""
        named: dict[str, Any] = block.named()
        predicted: Array = self.learner.test_then_train(block.X, block.y, **named)
        return predicted

    def frozen(self) -> Learner | Pipeline:
        """Return a frozen copy, which predicts and shares the learned arrays."""
        frozen: Learner | Pipeline = self.learner.frozen_copy()
        return frozen

    def check_compatible(self, other: Learner | Pipeline, where: str) -> None:
        """Check that another learner has the same class and parameters.

        Raises
        ------
        ParameterError
        """
        stored, received = (
            archive.dumps(state_dict(clone(model), where), where) for model in (self.learner, other)
        )
        if stored != received:
            raise ParameterError(
                "`model` must have the class and parameters of the stored learner, "
                f"{clone(self.learner)!r}, got {clone(other)!r}. Omit `model` to "
                "continue with the stored learner, or create another file.",
                where,
            )


def predict_rows(learner: Learner | Pipeline, X: TableLike) -> Array:
    """Predict rows; with the initial predictions if nothing was learned yet.

    Parameters
    ----------
    learner : learner or Pipeline
    X : array-like of shape (n, d), frame, Table, or sequence of dicts
    """
    try:
        return np.asarray(learner.predict(X))
    except NotFittedError:
        rows = read_rows(X, None, where=f"{type(learner).__name__}.predict").X
        return _initial(learner, rows)


def _initial(learner: Learner | Pipeline, X: Array | Table) -> Array:
    """Return predictions before the first row: equal for all rows without initial weights."""
    rows = X.rows() if isinstance(X, Table) else X
    if getattr(getattr(learner, "learner", learner), "initial_coef", None) is not None:
        return np.array([learner.predict_one(row) for row in rows])
    if not isinstance(X, Table) and not hasattr(learner, "learner"):
        with calling(f"{type(learner).__name__}.predict"):
            validation.matrix(X)
    first = np.array([learner.predict_one(row) for row in itertools.islice(rows, 1)])
    return first.repeat(len(X), axis=0)
