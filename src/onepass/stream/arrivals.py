"""Arrivals: experiences made elsewhere, as rows with answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from onepass.errors import Array, ParameterError, ShapeError
from onepass.stream.experiences import Exam, Experience, held
from onepass.validation import labels
from onepass.validation.table import Table, has_names, is_frame

__all__ = ["Listed", "experience"]

_TESTED = 5  # one row of so many is tested, where none were given


def experience(given: Any, name: str, where: str) -> Experience:
    """What was given as an experience.

    Parameters
    ----------
    given : Experience, (X, y) or (X, y, X_test, y_test)
        Of a pair the third of each five rows is tested, and not learned. There must be rows to
        test.
    name : str
        For one that has none.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it is none of these.
    ShapeError
        If rows and answers are not as many, or none is to be tested.
    LabelError
        If labels are not of one kind, text or whole numbers.

    Examples
    --------
    >>> one = experience((np.eye(10), np.arange(10) % 2), "first", "here")
    >>> one.X.shape, one.X_test.shape, one.classes
    ((8, 10), (2, 10), (0, 1))
    """
    if isinstance(given, Experience):
        return _testable(given, where)
    if not isinstance(given, (tuple, list)) or len(given) not in {2, 4}:
        raise ParameterError(
            f"{where}: an experience must be an Experience, (X, y) or (X, y, X_test, y_test), got "
            f"{type(given).__name__}. Give rows with their answers, or make tasks of them with "
            "op.stream.experiences(X, y)."
        )
    X, y = _pair(given[0], given[1], where)
    if len(given) == 4:
        X_test, y_test = _pair(given[2], given[3], where)
    else:
        tested = np.arange(len(y)) % _TESTED == _TESTED // 2
        X, y, X_test, y_test = X[~tested], y[~tested], X[tested], y[tested]
    real = y.dtype.kind == "f" or y.ndim > 1
    classes = () if real else tuple(np.unique(np.concatenate([y, y_test])).tolist())
    return _testable(Experience(name, X, y, X_test, y_test, classes), where)


def _testable(one: Experience, where: str) -> Experience:
    if not len(one.y_test):
        raise ShapeError(
            f"{where}: experience {one.name!r} must have rows to test, got {len(one.y)} to learn "
            "and none to test. Give X_test and y_test, or three rows or more, of which one is "
            "tested."
        )
    return one


def _pair(X: Any, y: Any, where: str) -> tuple[Any, Array]:
    rows = X
    if is_frame(X):
        rows = Table.from_frame(X) if has_names(X) else np.asarray(X)
    elif not isinstance(X, Table):
        rows = np.asarray(X)
    answers = np.asarray(y)
    if answers.ndim < 1 or len(rows) != len(answers):
        raise ShapeError(
            f"{where}: an experience must have one answer a row, got {len(rows)} rows and answers "
            f"of shape {answers.shape}. Give X of shape (n, …) and y of shape (n,)."
        )
    if answers.ndim == 1 and answers.dtype.kind != "f":
        answers = labels(answers, len(answers), where)
    return rows, answers


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Experiences that are all there, with the face of :class:`Experiences`.

    Parameters
    ----------
    all_of : sequence of Experience
        In order.
    name : str
        Of the whole.
    borders : bool
        Whether a learner may be told that an experience ended.
    """

    all_of: Sequence[Experience]
    name: str = "experiences"
    borders: bool = True

    def __len__(self) -> int:
        return len(self.all_of)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.all_of)

    def exams(self) -> Iterator[Exam]:
        """All rows to test, task by task."""
        return (Exam(one.name, one.X_test, one.y_test, one.classes) for one in self.all_of)

    @property
    def when(self) -> tuple[int, ...]:
        """Of each exam the experience after which its task has been learned."""
        return tuple(range(len(self.all_of)))

    @property
    def classes(self) -> tuple[Any, ...]:
        """All classes of all tasks, sorted; empty where answers are numbers."""
        return tuple(sorted({label for one in self.all_of for label in one.classes}))

    @property
    def digest(self) -> str:
        """Tells these experiences from others: of all that they hold."""
        known = blake2b(digest_size=16)
        for one in self.all_of:
            known.update(
                repr((one.name, one.classes, one.y.tolist(), one.y_test.tolist())).encode()
            )
            known.update(held(one.X))
            known.update(held(one.X_test))
        return known.hexdigest()
