"""Parameters and learned attributes of estimators, declared in one line each.

::

    @dataclass(eq=False, repr=False)
    class Example(Regressor):
        ridge: float = param(1.0, low=0.0)

        weights_ = State[Floats](FEATURE, OUTPUT)

The constructor, ``get_params`` and ``clone`` follow from the fields of the dataclass; from the
ranges, the checks when learning starts; from the axes, the first zeros, their growth by features
and outputs, and the sizes that a model file must contain. Reading a learned attribute before the
first row is an error, also of one without axes. Learned attributes have no annotation: an annotated
name would be a parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import field
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np

from onepass import validation
from onepass.errors import ParameterError
from onepass.serialization.state import StateAttribute, UnfittedAttribute
from onepass.types import Array

T = TypeVar("T")


def param(
    default: Any,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    whole: bool = False,
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    """Declare a parameter with its default and its range.

    Parameters
    ----------
    default : object
    above, low, high : float, optional
        Numbers must be > ``above``, >= ``low`` and <= ``high``; no numbers if all are None.
    whole : bool
        Whether numbers must be whole.
    choices : tuple of str
        Texts that are allowed.
    optional : bool
        Whether None is allowed although it is not the default.

    Returns
    -------
    field : dataclasses.Field
    """
    limits = {"above": above, "low": low, "high": high}
    there = {name: limit for name, limit in limits.items() if limit is not None}
    return field(
        default=default,
        metadata={"range": _Range(there, whole, choices, optional or default is None)},
    )


class _Range(NamedTuple):
    """The values of a parameter."""

    limits: dict[str, float]
    whole: bool
    choices: tuple[str, ...]
    optional: bool

    def contains(self, value: object) -> bool:
        """Return whether a value is in the range."""
        if value is None:
            return self.optional
        if isinstance(value, str):
            return value in self.choices
        return bool(self.limits) and validation.is_number(value, whole=self.whole, **self.limits)

    @property
    def words(self) -> str:
        """What a value must be, for messages."""
        numbers = [validation.range_words(whole=self.whole, **self.limits)] if self.limits else []
        texts = [", ".join(map(repr, self.choices))] if self.choices else []
        texts = [f"one of {texts[0]}"] if len(self.choices) > 1 else texts
        none = ["None"] if self.optional else []
        return " or ".join((*numbers, *texts, *none))


@cache
def _ranges(cls: type) -> dict[str, _Range]:
    """The ranges of the parameters; a subclass that changes a default keeps the range."""
    fields = [vars(base).get("__dataclass_fields__", {}) for base in reversed(cls.__mro__)]
    return {
        one.name: one.metadata["range"]
        for each in fields
        for one in each.values()
        if "range" in one.metadata
    }


@lru_cache(maxsize=256, typed=True)
def _are_in_range(cls: type, *values: object) -> bool:
    """Whether these values of the parameters of a class are in their ranges."""
    pairs = zip(_ranges(cls).values(), values, strict=True)
    return all(allowed.contains(value) for allowed, value in pairs)


def check_parameters(estimator: Any) -> None:
    """Check each parameter that is declared with a range.

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    """
    ranges = _ranges(estimator.__class__)
    values = [getattr(estimator, name) for name in ranges]
    with suppress(TypeError):  # a value that has no hash
        if _are_in_range(estimator.__class__, *values):
            return
    for (name, allowed), value in zip(ranges.items(), values, strict=True):
        if not allowed.contains(value):
            raise ParameterError(
                f"`{name}` must be {allowed.words}, got {value!r}",
                remedy=f"Choose another `{name}`.",
            )


class Axis(Enum):
    """What an axis of a learned array counts; an axis that is None keeps its size."""

    FEATURE = "d"
    OUTPUT = "c"


FEATURE, OUTPUT = Axis.FEATURE, Axis.OUTPUT


class Places(NamedTuple):
    """The positions of the present entries of an axis among ``size`` entries; others are new."""

    at: Array
    size: int


class State(UnfittedAttribute, Generic[T]):
    """A learned attribute, and the axes of its array. Reading it before the first row is an error.

    It has no ``__set__`` at run time, so that reading it costs no more than any attribute.
    """

    def __init__(self, *axes: Axis | None, dtype: type = np.float64) -> None:
        self.axes, self.dtype = axes, np.dtype(dtype)

    if TYPE_CHECKING:

        @overload
        def __get__(self, owner: None, cls: type | None = None) -> Self: ...
        @overload
        def __get__(self, owner: object, cls: type | None = None) -> T: ...
        def __get__(self, owner: Any, cls: type | None = None) -> Any: ...
        def __set__(self, owner: object, value: T) -> None: ...


class CompiledState(StateAttribute, State[T]):
    """A learned attribute that is in the instance or in its compiled state."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, owner: None, cls: type | None = None) -> Self: ...
        @overload
        def __get__(self, owner: object, cls: type | None = None) -> T: ...
        def __get__(self, owner: Any, cls: type | None = None) -> Any: ...
        def __set__(self, owner: object, value: T) -> None: ...  # type: ignore[override]


@cache
def _arrays(cls: type) -> dict[str, State[Any]]:
    """The declared arrays of a class."""
    members = {name: one for base in reversed(cls.__mro__) for name, one in vars(base).items()}
    return {name: one for name, one in members.items() if isinstance(one, State) and one.axes}


def start_states(estimator: Any, **sizes: int) -> None:
    """Set the declared arrays to zeros.

    Parameters
    ----------
    estimator : learner or Transformer
    **sizes : int
        Of features, d, and outputs, c; of an axis that is None, by the name of the array.
    """
    for name, array in _arrays(estimator.__class__).items():
        shape = [sizes[axis.value] if axis else sizes[name] for axis in array.axes]
        setattr(estimator, name, np.zeros(shape, array.dtype))


def place_states(estimator: Any, places: Mapping[Axis, Places]) -> None:
    """Extend the declared arrays along some axes with zeros."""
    arrays = _arrays(estimator.__class__)
    if not arrays:
        raise NotImplementedError(
            f"{type(estimator).__name__}: declare the axes of its arrays by State, or define "
            "`_widen` and `_add_outputs`"
        )
    for name, array in arrays.items():
        if places.keys() & set(array.axes):
            setattr(estimator, name, _extended(getattr(estimator, name), array.axes, places))


def _extended(value: Array, axes: Collection[Axis | None], places: Mapping[Axis, Places]) -> Array:
    """Return an array extended along some of its axes with zeros."""
    layout = [
        places[axis] if axis and axis in places else Places(np.arange(n), n)
        for axis, n in zip(axes, value.shape, strict=True)
    ]
    wide = np.zeros([size for _, size in layout], value.dtype)
    wide[np.ix_(*(at for at, _ in layout))] = value
    return wide


def are_sound(estimator: Any, **sizes: int) -> bool:
    """Return whether the declared arrays have these sizes; those of a damaged file may not."""
    for name, array in _arrays(estimator.__class__).items():
        value = getattr(estimator, name)
        if not isinstance(value, np.ndarray) or value.dtype != array.dtype:
            return False
        expected = [axis and sizes[axis.value] for axis in array.axes]
        if value.ndim != len(expected):
            return False
        if any(size not in (None, n) for size, n in zip(expected, value.shape, strict=True)):
            return False
    return True
