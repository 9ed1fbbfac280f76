"""Steps: features and a learner in a row: what they are, and how scikit-learn sees them."""

import copy
import re
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from onepass.errors import Array, ParameterError, TypeMismatchError
from onepass.features.transformer import Transformer

__all__ = ["Steps"]


class Steps(BaseEstimator, ABC):  # type: ignore[misc]
    """Features, then one learner; what they do together says :class:`onepass.Pipeline`.

    Parameters
    ----------
    *steps : estimators
        They are specifications: nothing is learned in them.

    Raises
    ------
    TypeMismatchError
        If these steps do not make an estimator.
    """

    steps: tuple[Any, ...]
    features_: list[Transformer]
    learner_: Any

    def __init__(self, *steps: Any) -> None:
        self._hold(steps)

    @abstractmethod
    def _fits(self, steps: tuple[Any, ...]) -> bool:
        """Whether the steps are features, then one learner."""

    def _hold(self, steps: tuple[Any, ...]) -> None:
        if not self._fits(steps):
            came = ", ".join(
                f"the class {step.__name__}" if isinstance(step, type) else type(step).__name__
                for step in steps
            )
            if steps and (hasattr(steps[-1], "network") or hasattr(steps[-1], "after_task")):
                raise TypeMismatchError(
                    f"{type(self).__name__}: the learner must be one of tables, such as "
                    f"RLSRegressor(), got {came}: networks stand in no {type(self).__name__}. Give "
                    "them rows that features have transformed, as "
                    "net.learn(scale.learn_transform(X), y)."
                )
            raise TypeMismatchError(
                f"{type(self).__name__}: the steps must be features, then one learner, got "
                f"{came or 'none'}. Give objects such as Encode(), Scale(), RLSRegressor(), the "
                "learner last."
            )
        self.steps = steps

    # -- parts -------------------------------------------------------------------------------------

    def answering(self) -> Any:
        """A copy that says what this pipeline says now, and goes on saying it; not to learn."""
        twin = copy.copy(self)
        if self._begun:
            twin.features_ = [copy.copy(feature) for feature in self.features_]
            twin.learner_ = self.learner_.answering()
        return twin

    @property
    def learner(self) -> Any:
        """The learned learner; before anything was learned, the one given."""
        return getattr(self, "learner_", self.steps[-1])

    @property
    def features(self) -> list[Any]:
        """The learned features in use; before anything was learned, the given ones of them."""
        return list(getattr(self, "features_", self._in_use()))

    @property
    def n_features_in_(self) -> int:
        """The number of columns that come in."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> Array:
        """The names of the columns that come in, where they have names."""
        names: Array = self._first().feature_names_in_
        return names

    @property
    def rows_seen_(self) -> int:
        """Rows learned so far."""
        return int(self.learner_.rows_seen_)

    @property
    def classes_(self) -> Array:
        """The classes known so far, of a classifier."""
        classes: Array = self.learner_.classes_
        return classes

    @property
    def nbytes(self) -> int:
        """Bytes of all that was learned."""
        parts = [*self.features_, self.learner_] if self._begun else []
        return sum(int(part.nbytes) for part in parts)

    def get_feature_names_out(self) -> Array:
        """The names of the features that reach the learner, as text."""
        if self.features:
            said: Array = self.features[-1].get_feature_names_out()
            return said
        d = getattr(self.learner, "n_features_in_", 0)
        names = getattr(self.learner, "feature_names_in_", [f"x{j}" for j in range(d)])
        return np.array(names, dtype=object)

    def describe(self) -> str:
        """The steps, one a line: what each makes of its columns, and which are passed by."""
        used = iter(self.features)
        lines = []
        for i, step in enumerate(self.steps[:-1]):
            if self._passed_by(i):
                what = f"passed by: {type(self.learner).__name__} is free of the features' units"
            else:
                part = next(used)
                came = getattr(part, "n_features_in_", None)
                what = "" if came is None else f"{came} columns -> {part.n_features_out_}"
            lines.append((_line(step), what))
        seen = getattr(self.learner, "rows_seen_", 0)
        lines.append((_line(self.steps[-1]), f"{seen} rows learned"))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {what}".rstrip() for name, what in lines)

    # -- as scikit-learn sees it -------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The steps and, if deep, each by its name, with its parameters as ``<name>__<parameter>``.

        A step's name is its class's in lower case; of several of one class, the later ones are
        numbered: ``encode``, ``scale``, ``scale-2``.
        """
        params: dict[str, Any] = {"steps": self.steps}
        for name, step in _named(self.steps).items() if deep else ():
            params[name] = step
            params |= {f"{name}__{key}": value for key, value in step.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Give ``steps``, a step by its name, or ``<name>__<parameter>``; what is learned stays.

        The steps given to the constructor are left as they were: changed ones are copies.

        Raises
        ------
        ParameterError
            If there is no such parameter.
        """
        steps = _named(params.pop("steps", self.steps))
        for key, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            name, _, parameter = key.partition("__")
            if name not in steps:
                raise ParameterError(
                    f"{type(self).__name__}.set_params: a parameter must be `steps`, or begin with "
                    f"one of {', '.join(steps)}, got {key!r}. Check the spelling: get_params()."
                )
            step = value
            if parameter:
                step = clone(steps[name]).set_params(**{parameter: value})
            steps[name] = step
        self._hold(tuple(steps.values()))
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(*map(clone, self.steps))

    def __sklearn_is_fitted__(self) -> bool:
        return self._begun and bool(self.learner_.__sklearn_is_fitted__())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_learner = get_tags(self.learner)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(of_learner, name))
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        del N_CHAR_MAX
        return f"{type(self).__name__}({', '.join(map(_line, self.steps))})"

    # -- what stands behind them -------------------------------------------------------------------

    @property
    def _begun(self) -> bool:
        return hasattr(self, "learner_")

    @property
    def _sound(self) -> bool:
        """Whether what was learned, as a file may say it, is what such steps learn."""
        parts = getattr(self, "features_", None)
        if not self._begun:
            return parts is None
        return type(parts) is list and self._fits((*parts, self.learner_))

    def _passed_by(self, i: int) -> bool:
        step, behind = self.steps[i], self.steps[i + 1 : -1]
        free = getattr(self.steps[-1], "scale_free", False)
        return step.rescales and free and not any(one.uses_units for one in behind)

    def _in_use(self) -> list[Any]:
        return [step for i, step in enumerate(self.steps[:-1]) if not self._passed_by(i)]

    def _first(self) -> Any:
        return self.features_[0] if self._begun and self.features_ else self.learner


def _line(step: Any) -> str:
    """A step in words, in one line."""
    return re.sub(r"\n\s+", " ", repr(step))


def _named(steps: tuple[Any, ...]) -> dict[str, Any]:
    """The steps by their names."""
    named: dict[str, Any] = {}
    for step in steps:
        name = type(step).__name__.lower()
        same = sum(type(other) is type(step) for other in named.values())
        named[f"{name}-{same + 1}" if same else name] = step
    return named
