"""The learner or Pipeline of a durable learner: a copy of the user's, which the writer owns.

The same blocks in the same order result in the same learner, bit for bit.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import NotFittedError, ParameterError, TypeMismatchError, calling
from onepass.serialization import archive
from onepass.serialization.codec import state_dict
from onepass.service.requests import read_rows
from onepass.types import Array
from onepass.validation.rows import Rows
from onepass.validation.table import Table, TableLike

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline
    from onepass.learners.estimator import Learner


def copied_learner(learner: Any) -> Learner | Pipeline:
    """Copy a user's learner, for a writer.

    Parameters
    ----------
    learner : learner or Pipeline

    Raises
    ------
    TypeMismatchError
        If the learner cannot be saved, or does not learn from targets.
    """
    if getattr(type(learner), "_saves_itself", False) is True:
        raise TypeMismatchError(
            "`model` must be a learner of tables or a Pipeline, got "
            f"op.nn.{type(learner).__name__}, whose module cannot be stored in a file. Freeze "
            "the network, and use it as a feature of a Pipeline with op.features.ONNXFeatures."
        )
    learns = all(hasattr(learner, verb) for verb in ("test_then_train", "frozen_copy"))
    if isinstance(learner, type) or not learns:
        raise TypeMismatchError(
            f"`model` must be a learner of onepass or a Pipeline, got {learner!r:.100}. Pass "
            "an object such as op.RLSRegressor()."
        )
    copied: Learner | Pipeline = copy.deepcopy(learner)
    return copied


def check_compatible(stored: Learner | Pipeline, other: Learner | Pipeline) -> None:
    """Check that another learner has the class and parameters of the stored one.

    Parameters
    ----------
    stored, other : learner or Pipeline

    Raises
    ------
    ParameterError
    """
    one, two = (
        archive.dumps(state_dict(clone(model), "op.durable"), "op.durable")
        for model in (stored, other)
    )
    if one != two:
        raise ParameterError(
            "`model` must have the class and parameters of the stored learner, "
            f"{clone(stored)!r}, got {clone(other)!r}. Omit `model` to "
            "continue with the stored learner, or create another file."
        )


def learn_block(learner: Learner | Pipeline, block: Rows) -> Array:
    """Learn a block and return its prequential predictions; learn nothing if it raises.

    Parameters
    ----------
    learner : learner or Pipeline
    block : Rows
    """
    named: dict[str, Any] = block.keywords
    if len(block) == 1 and block.y is not None and block.y.ndim == 1:  # most requests
        row = _only_row(block.X)
        found = np.asarray(learner.predict_one(row))[None]
        learner.learn_one(row, block.y[0], **{name: part[0] for name, part in named.items()})
        return found
    predicted: Array = learner.test_then_train(block.X, block.y, **named)
    return predicted


def predict_rows(learner: Learner | Pipeline, X: TableLike) -> Array:
    """Predict rows; with the initial predictions if nothing was learned yet.

    Parameters
    ----------
    learner : learner or Pipeline
    X : array-like of shape (n, d), frame, Table, or sequence of dicts
    """
    if isinstance(X, (np.ndarray, Table)) and len(X) == 1:
        return np.asarray(learner.predict_one(_only_row(X)))[None]
    try:
        return np.asarray(learner.predict(X))
    except NotFittedError:
        with calling(f"{type(learner).__name__}.predict"):
            return _initial(learner, read_rows(X, None).X)


def _only_row(X: Array | Table) -> Any:
    return X.row(0) if isinstance(X, Table) else X[0]


def _initial(learner: Learner | Pipeline, X: Array | Table) -> Array:
    """Return predictions before the first row: equal for all rows without initial weights."""
    rows = X.rows() if isinstance(X, Table) else X
    if getattr(getattr(learner, "learner", learner), "initial_coef", None) is not None:
        return np.array([learner.predict_one(row) for row in rows])
    if not isinstance(X, Table) and not hasattr(learner, "learner"):
        validation.matrix(X)
    first = np.array([learner.predict_one(row) for row in itertools.islice(rows, 1)])
    return first.repeat(len(X), axis=0)
