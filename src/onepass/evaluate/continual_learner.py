"""Continual learner: one set of verbs over learners of many makes.

============================================ ======================================================
what a learner has                           how it is taught and asked
============================================ ======================================================
``partial_fit(X, y)`` (scikit-learn's verb)  blocks of rows, or a whole experience where it says
                                             ``by_task``; all labels beforehand, if it must know
``learn(x, y)`` (networks)                   batches of rows, numbers as float32
``learn_one(x, y)`` (River's verb)           row by row, as dicts
``after_task()``                             called when an experience with borders ends
============================================ ======================================================

Nothing is asked of what it is, only of what it has.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError as NotFitted

from onepass import linalg
from onepass.errors import Array, LabelError, ParameterError, ShapeError, TypeMismatchError

__all__ = ["Pupil", "silence"]

_WHERE = "op.evaluate.continual"
_ASKED = 4096  # rows asked about in one call


class Pupil:
    """A learner as continual evaluation teaches and asks it.

    Parameters
    ----------
    model : learner
        It learns in place.
    labels : ndarray or None
        All labels of the stream, for learners that must know them beforehand.
    batch, block : int
        Rows a call of ``learn``, and of ``partial_fit``.
    """

    def __init__(self, model: Any, labels: Array | None, batch: int, block: int) -> None:
        self.model = model
        self._labels = labels
        self._batch, self._block = batch, block
        self._told = False
        self.rows = 0
        self._before = _counted(self.inner)

    @property
    def inner(self) -> Any:
        """The learner at the end of a Pipeline; it may be another once it has learned."""
        return getattr(self.model, "learner", self.model)

    def teach(self, X: Any, y: Array) -> None:
        """Learn the rows of an experience in their order."""
        for verb, how in (
            ("partial_fit", self._by_blocks),
            ("learn", self._by_batches),
            ("learn_one", self._by_rows),
        ):
            if callable(getattr(self.model, verb, None)):
                how(X, y)
                return

    def end(self) -> None:
        """Be told that a task ended, if it wants to know."""
        if callable(getattr(self.model, "after_task", None)):
            self.model.after_task()

    def say(self, X: Any, among: tuple[Any, ...] | None, like: Array) -> Array:
        """What it says of rows; nothing (None, or zeros) before it can answer.

        Parameters
        ----------
        X : ndarray or Table of shape (n, …)
            The rows.
        among : tuple, or None
            The labels that they can have, where the learner is told.
        like : ndarray
            Answers, for the kind and shape of what is said.
        """
        said = [self._said(X[part], among, like[part]) for part in _parts(len(like), _ASKED)]
        return np.concatenate(said) if said else like

    @property
    def masks(self) -> bool:
        """Whether it can be told the labels among which to choose."""
        verbs = ("decision_function", "predict_proba", "outputs")
        return self._told_by() is not None or any(hasattr(self.model, verb) for verb in verbs)

    # -- teaching ----------------------------------------------------------------------------------

    def _by_blocks(self, X: Any, y: Array) -> None:
        verb = self.model.partial_fit
        # scikit-learn's classifiers must be told all labels; those with `test_then_train` need not
        must = (
            not hasattr(self.model, "test_then_train") and "classes" in signature(verb).parameters
        )
        size = max(1, len(y)) if getattr(self.inner, "by_task", False) else self._block
        X = self._taken(X)
        for part in _parts(len(y), size):
            if must and self._labels is None:
                raise ParameterError(
                    f"{_WHERE}: {type(self.model).__name__} must know all classes beforehand, "
                    "got an iterator, which tells none. Give a list of experiences, or a learner "
                    "that takes new classes."
                )
            told = {"classes": self._labels} if must and not self._told else {}
            verb(X[part], y[part], **told)
            self._told = True
            self.rows += len(y[part])

    def _by_batches(self, X: Any, y: Array) -> None:
        if y.dtype.kind not in "biuf":  # '0' would be taken for 0, and 0 never be '0'
            raise LabelError(
                f"{_WHERE}: {type(self.model).__name__} must be given classes as whole numbers "
                f"from 0 on, got text, such as {str(y[0])!r}. Number the classes."
            )
        answers = y.astype(np.int64 if y.dtype.kind in "iub" else np.float32)
        for part in _parts(len(y), self._batch):
            self.model.learn(_narrow(X[part]), answers[part])
            self.rows += len(answers[part])

    def _by_rows(self, X: Any, y: Array) -> None:
        for x, answer in zip(_dicts(X), y.tolist(), strict=True):
            self.model.learn_one(x, answer)
            self.rows += 1

    # -- asking ------------------------------------------------------------------------------------

    def _said(self, X: Any, among: tuple[Any, ...] | None, like: Array) -> Array:
        try:
            if among is not None and self.masks:
                return self._among(X, among)
            if not callable(getattr(self.model, "predict", None)):
                said = np.array([self.model.predict_one(x) for x in _dicts(X)], dtype=object)
                return _numbers(said) if like.dtype.kind == "f" else said
            said = _array(self.model.predict(self._taken(X)))
            return self._fitting(said, like)
        except NotFitted:
            return silence(like)

    def _fitting(self, said: Array, like: Array) -> Array:
        """Answers in the shape of those that are known."""
        where = f"{_WHERE}: {type(self.model).__name__}.predict"
        if said.size != like.size or said.shape[:1] != like.shape[:1]:
            raise ShapeError(
                f"{where} must say one answer a row, of shape {like.shape}, got {said.shape}. "
                "Return labels, or numbers, not scores."
            )
        said = said.reshape(like.shape)
        if like.dtype.kind == "f" and said.dtype.kind not in "biuf":
            raise TypeMismatchError(
                f"{where} must say numbers where answers are numbers, got {said.dtype}. Give a "
                "regressor."
            )
        return said

    def _taken(self, X: Any) -> Any:
        """Rows as the learner takes them: networks float32, and arrays whoever knows no tables."""
        if not callable(getattr(self.model, "partial_fit", None)):
            return _narrow(X)
        if hasattr(X, "names") and not hasattr(self.model, "test_then_train"):
            return np.column_stack([X[name] for name in X.names])
        return X

    def _told_by(self) -> str | None:
        """The argument of ``predict`` that names the labels to choose among, if it has one."""
        verb = getattr(self.inner, "predict", None)
        known = signature(verb).parameters if callable(verb) else {}
        return next((name for name in ("task", "classes") if name in known), None)

    def _among(self, X: Any, among: tuple[Any, ...]) -> Array:
        """The best of some labels; None of each row where none of them is known yet."""
        known, scores = getattr(self.inner, "classes_", None), None
        if hasattr(self.model, "outputs") and self._told_by() is None:
            scores = _array(self.model.outputs(_narrow(X)))
            known = np.arange(scores.shape[-1])
        some = list(among) if known is None else [c for c in among if c in known]
        if not some:
            # one that has learned nothing at all says so itself
            return np.full(len(self.model.predict(self._taken(X))), None, dtype=object)
        told, X = self._told_by(), self._taken(X)
        if told is not None:
            try:
                return _array(self.model.predict(X, **{told: some}))
            except LabelError:  # a network without outputs for them
                return np.full(len(X), None, dtype=object)
        if scores is None:
            has = hasattr(self.model, "decision_function")
            scores = np.asarray(
                getattr(self.model, "decision_function" if has else "predict_proba")(X)
            )
        if scores.ndim == 1:  # two classes: the second's score less the first's
            scores = np.stack([-scores, scores], axis=1)
        if known is None or len(known) < scores.shape[1]:
            return _array(self.model.predict(X))
        at = np.array([int(np.flatnonzero(known == label)[0]) for label in some])
        best: Array = np.array(some)[scores[:, at].argmax(axis=1)]
        return best

    # -- what it tells of itself -------------------------------------------------------------------

    @property
    def nbytes(self) -> int | None:
        """All that it keeps from row to row, a network's own weights among it."""
        size = getattr(self.model, "nbytes", None)
        if size is None:
            kept = (
                [v for k, v in vars(self.model).items() if k.endswith("_")]
                if hasattr(self.model, "__dict__")
                else []
            )
            arrays = [value.nbytes for value in kept if isinstance(value, np.ndarray)]
            return int(sum(arrays)) if arrays else None
        module = getattr(self.model, "module", None)
        tensors = [] if module is None else [*module.parameters(), *module.buffers()]
        return int(size) + int(sum(t.numel() * t.element_size() for t in tensors))

    @property
    def prototypes(self) -> int | None:
        """How many it has, if it has any."""
        found = getattr(self.inner, "prototypes_", None)
        return None if found is None else len(found)

    @property
    def repeated(self) -> int | None:
        """How often a row was learned again, as the learner tells; None if it does not."""
        repeated, seen = _counted(self.inner)
        if repeated is not None:
            return repeated - (self._before[0] or 0)
        return None if seen is None else max(0, seen - (self._before[1] or 0) - self.rows)


def _counted(learner: Any) -> tuple[int | None, int | None]:
    """Rows that were learned again, and rows that were learned, as a learner tells."""
    told = (getattr(learner, name, None) for name in ("rows_repeated_", "rows_seen_"))
    repeated, seen = (None if count is None else int(count) for count in told)
    return repeated, seen


def silence(like: Array) -> Array:
    """What is said by who has nothing to say: zeros, or None of each row."""
    real = like.dtype.kind == "f"
    return np.zeros(like.shape) if real else np.full(len(like), None, dtype=object)


def _parts(n: int, size: int) -> Iterator[slice]:
    return (slice(a, min(a + size, n)) for a in range(0, n, size))


def _narrow(X: Any) -> Any:
    """Rows as networks take them."""
    return X.astype(np.float32) if isinstance(X, np.ndarray) and X.dtype.kind in "fiub" else X


def _dicts(X: Any) -> Iterator[dict[Any, Any]]:
    """Rows as River takes them: values by the columns' names, or places."""
    if hasattr(X, "rows"):
        yield from X.rows()
        return
    for row in X.reshape(len(X), -1).tolist():
        yield dict(enumerate(row))


def _numbers(said: Array) -> Array:
    return np.array([0.0 if one is None else one for one in said], dtype=float)


def _array(said: Any) -> Array:
    """Answers as an array, also those that a network gave on a device."""
    return np.asarray(linalg.widened(said).detach().cpu() if hasattr(said, "cpu") else said)
