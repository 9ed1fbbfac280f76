"""Charge: the learner that a journal is kept of, and what it is asked to do.

Everything that changes it goes through ``learn``, so that the same blocks in the same order make
the same learner, to the last bit. What is said of rows is said by a copy, which is made after each
group of blocks, shares what was learned, and stays as it is: whoever asks never waits for a row to
be learned, and never sees half a block.
"""

import copy
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from onepass import validation
from onepass.errors import Array, NotFittedError, ParameterError, TypeMismatchError
from onepass.serialization import archive
from onepass.serialization.codec import taken
from onepass.serialization.models import given_back, packed
from onepass.service.blocks import Block
from onepass.service.intake import read_rows
from onepass.validation.table import Table

__all__ = ["Charge", "said_of"]


class Charge:
    """A learner of onepass, or a Pipeline.

    Parameters
    ----------
    learner : learner or Pipeline
        It is the charge's own from here on.

    Attributes
    ----------
    aside : bool
        Whether the learner is out of its loops, since it last learned or was made.
    """

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.aside = True

    @classmethod
    def of(cls, learner: Any, where: str) -> "Charge":
        """A copy of a user's learner.

        Raises
        ------
        TypeMismatchError
            If it is none that can be saved and learns from answers.
        """
        if getattr(type(learner), "saves_itself", False) is True:
            raise TypeMismatchError(
                f"{where}: `model` must be a learner of tables or a Pipeline, got "
                f"op.nn.{type(learner).__name__}, whose module no file can hold. Freeze the "
                "network as a feature in front of a learner: op.features.Network."
            )
        able = all(hasattr(learner, verb) for verb in ("test_then_train", "answering"))
        if isinstance(learner, type) or not able:
            name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
            raise TypeMismatchError(
                f"{where}: `model` must be a learner of onepass or a Pipeline, got {name}. Give "
                "an object such as op.RLSRegressor()."
            )
        return cls(copy.deepcopy(learner))

    @classmethod
    def from_bytes(cls, data: bytes, where: str, replacements: Mapping[str, Any]) -> "Charge":
        """What ``to_bytes`` gave."""
        return cls(given_back(archive.unpacked(data, where), where, replacements))

    def to_bytes(self, where: str) -> bytes:
        """All of it, as ``op.save`` would write it."""
        self.put_aside()
        return packed(self.learner, where)

    def put_aside(self) -> None:
        """Take the learner out of its loops: what goes on from here is what was written down."""
        for part in (self.learner, getattr(self.learner, "learner_", None)):
            if part is not None:
                vars(part)
        self.aside = True

    def copied(self) -> Any:
        """A copy for a user."""
        self.put_aside()
        return copy.deepcopy(self.learner)

    def learn(self, block: Block) -> Array:
        """Learn a block, or nothing of it; what was said of each row just before."""
        try:
            said: Array = self.learner.test_then_train(block.X, block.y, **block.named())
        except BaseException:
            self.put_aside()  # some loops have ended, to see what is wrong with the rows
            raise
        self.aside = False
        return said

    def answering(self) -> Any:
        """A copy that answers."""
        return self.learner.answering()

    def hold_like(self, other: Any, where: str) -> None:
        """Refuse a learner of another class, or with other parameters.

        Raises
        ------
        ParameterError
        """
        mine, theirs = (_specified(each, where) for each in (self.learner, other))
        if mine != theirs:
            raise ParameterError(
                f"{where}: `model` must be as it was when the file was made, "
                f"{clone(self.learner)!r}, got {clone(other)!r}. Leave it out to go on with what "
                "is there, or begin another one, of another name."
            )


def said_of(learner: Any, X: Any) -> Array:
    """Answers for rows; of a learner that has learned nothing, those that it begins with.

    Parameters
    ----------
    learner : learner or Pipeline
    X : array-like of shape (n, d), frame, Table, or sequence of dicts
    """
    try:
        return np.asarray(learner.predict(X))
    except NotFittedError:
        return _at_first(learner, read_rows(X, None, where=f"{type(learner).__name__}.predict").X)


def _at_first(learner: Any, X: Any) -> Array:
    """What is said before anything was learned: of all rows the same, but by initial weights."""
    each = X.rows() if isinstance(X, Table) else X
    if getattr(getattr(learner, "learner", learner), "initial_coef", None) is not None:
        return np.array([learner.predict_one(row) for row in each])
    if not isinstance(X, Table) and not hasattr(learner, "learner"):
        validation.matrix(X, f"{type(learner).__name__}.predict")
    said = np.array([learner.predict_one(row) for row in itertools.islice(each, 1)])
    return said.repeat(len(X), axis=0)


def _specified(learner: Any, where: str) -> bytes:
    """The class and the parameters of a learner, whatever it learned."""
    return archive.packed(taken(clone(learner), where), where)
