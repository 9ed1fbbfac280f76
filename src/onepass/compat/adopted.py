"""Adopted: a model of River as an entrant of an evaluation.

Each row goes through ``predict_one``, then ``learn_one``: what River's own progressive validation
does, in one pass and one table with learners of onepass.
"""

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from onepass import validation
from onepass.errors import Array, ParameterError, ShapeError, TypeMismatchError, need
from onepass.validation.table import Table, is_frame

__all__ = ["AdoptedClassifier", "AdoptedRegressor", "adopt"]


def adopt(model: Any, *, missing: Literal["absent", "none"] = "absent") -> Any:
    """A River model as an entrant of ``op.evaluate.prequential``.

    The model itself learns, row by row; it is not copied. Rows of a table become dicts, those of an
    array have the features x0, x1, … Unlike a learner of onepass, a model of River that raises in
    the middle of a block has learned the rows before it.

    Parameters
    ----------
    model : river.base.Regressor or river.base.Classifier
        Or a pipeline of River's that ends in one.
    missing : {"absent", "none"}, default "absent"
        What a missing value is to it: a key that the row lacks, as most of River's models want,
        or None, as ``river.preprocessing.StatImputer`` does.

    Returns
    -------
    AdoptedRegressor or AdoptedClassifier

    Raises
    ------
    TypeMismatchError
        If it is no such model.
    ParameterError
        If ``missing`` is neither.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> import onepass as op
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> theirs = preprocessing.StandardScaler() | linear_model.LinearRegression()
    >>> models = {"ours": op.RLSRegressor(), "theirs": op.compat.river.adopt(theirs)}
    >>> report = op.evaluate.prequential(models, (X, y), baselines=False)
    >>> report.scores["ours"].overall["mae"] < report.scores["theirs"].overall["mae"]
    True
    """
    base = need("river.base", extra="river", where="op.compat.river.adopt")
    last = getattr(model, "_last_step", model)  # of a pipeline
    if isinstance(last, base.Regressor):
        return AdoptedRegressor(model, missing)
    if isinstance(last, base.Classifier):
        return AdoptedClassifier(model, missing)
    raise TypeMismatchError(
        "op.compat.river.adopt: `model` must be a regressor or classifier of River, got "
        f"{model!r}. Give an object such as river.linear_model.LinearRegression()."
    )


class _Adopted(BaseEstimator):  # type: ignore[misc]
    """The verbs of a learner over a model of River."""

    def __init__(self, model: Any, missing: str = "absent") -> None:
        if missing not in {"absent", "none"}:
            raise ParameterError(
                f"op.compat.river.adopt: `missing` must be 'absent' or 'none', got {missing!r}. "
                "Choose one of the two."
            )
        self.model = model
        self.missing = missing

    @property
    def nbytes(self) -> int:
        """Bytes of the model, as River counts them."""
        return int(self.model._raw_memory_usage)  # noqa: SLF001  River's own name for it

    def fit(self, X: Any, y: Any) -> Self:
        """Forget all, then learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        self.model = self.model.clone()
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn the rows one after the other.

        Parameters
        ----------
        X, y
            As in ``test_then_train``.
        """
        answers = self._checked(y, len(X), "partial_fit")
        for x, answer in zip(self._rows(X), answers, strict=True):
            self.model.learn_one(x, answer)
        return self

    def predict(self, X: Any) -> Array:
        """What the model says of the rows now, shape (n,).

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        """
        said: Array = self._answers([self.model.predict_one(x) for x in self._rows(X)])
        return said

    def predict_one(self, x: Any) -> Any:
        """What the model says of one row.

        Parameters
        ----------
        x : dict of named features, or array of shape (d,)
        """
        return self.predict([x])[0]

    def learn_one(self, x: Any, y: Any) -> Self:
        """Learn one row.

        Parameters
        ----------
        x : dict of named features, or array of shape (d,)
        y : float or label
        """
        return self.partial_fit([x], [y])

    def test_then_train(self, X: Any, y: Any) -> Array:
        """Learn the rows; return what was said of each just before learning it.

        Parameters
        ----------
        X : Table, DataFrame, list of dicts or array of shape (n, d)
        y : array-like of shape (n,)
        """
        answers, said = self._checked(y, len(X), "test_then_train"), []
        for x, answer in zip(self._rows(X), answers, strict=True):
            said.append(self.model.predict_one(x))
            self.model.learn_one(x, answer)
        before: Array = self._answers(said)
        return before

    def _rows(self, X: Any) -> Iterator[dict[str, Any]]:
        """Rows as dicts, with missing values as this model wants them."""
        if is_frame(X):
            X = Table.from_frame(X)
        elif isinstance(X, (list, tuple)) and len(X) and isinstance(X[0], dict):
            X = Table.from_rows(X)
        if not isinstance(X, Table):
            array = np.asarray(X)
            if array.ndim != 2:
                raise ShapeError(
                    f"{type(self).__name__}: `X` must be a table, a frame, a list of dicts or an "
                    f"array of shape (n, d), got shape {array.shape}. Give an array a column for "
                    "each feature, with X.reshape(-1, 1) if there is one."
                )
            X = Table({f"x{j}": array[:, j] for j in range(array.shape[1])}, len(array))
        for row in X.rows():
            lacking = {name for name, value in row.items() if value is None or value != value}  # noqa: PLR0124
            if lacking and self.missing == "none":
                yield {name: None if name in lacking else value for name, value in row.items()}
            elif lacking:
                yield {name: value for name, value in row.items() if name not in lacking}
            else:
                yield row

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.model.clone(), self.missing)


class AdoptedRegressor(RegressorMixin, _Adopted):  # type: ignore[misc]
    """A regressor of River: see :func:`adopt`.

    Parameters
    ----------
    model : river.base.Regressor
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: Any, n: int, verb: str) -> list[Any]:
        answers = validation.targets(y, n, f"AdoptedRegressor.{verb}")
        if answers.ndim != 1:
            raise TypeMismatchError(
                f"AdoptedRegressor.{verb}: `y` must hold one answer a row, got shape "
                f"{answers.shape}. Evaluate a model for each answer."
            )
        listed: list[Any] = answers.tolist()
        return listed

    def _answers(self, said: list[Any]) -> Array:
        """Numbers; 0 where the model says nothing yet, as learners of onepass begin."""
        return np.array([0.0 if one is None else one for one in said], dtype=np.float64)


class AdoptedClassifier(ClassifierMixin, _Adopted):  # type: ignore[misc]
    """A classifier of River: see :func:`adopt`.

    Parameters
    ----------
    model : river.base.Classifier
    missing : {"absent", "none"}, default "absent"
    """

    def _checked(self, y: Any, n: int, verb: str) -> list[Any]:
        listed: list[Any] = validation.labels(y, n, f"AdoptedClassifier.{verb}").tolist()
        return listed

    def _answers(self, said: list[Any]) -> Array:
        """Labels; None where the model says nothing yet."""
        answers = np.empty(len(said), dtype=object)
        answers[:] = said
        if said and all(one is not None for one in said):
            return np.array(said)
        return answers
