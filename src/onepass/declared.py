"""Parameters and learned attributes of estimators, declared in one line each.

::

    @dataclass(eq=False, repr=False)
    class Example(Regressor):
        ridge: float = param(1.0, low=0.0)

        weights_ = State[Floats](FEATURE, OUTPUT)

The constructor, ``get_params`` and ``clone`` follow from the fields of the dataclass; from the
ranges, the checks when learning starts; from the axes, the first zeros, their growth by features
and outputs, and the sizes that a model file must contain. A learned attribute without axes is only
an error before the first row. It has no annotation, as it would be a parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np

from onepass import validation
from onepass.errors import ParameterError
from onepass.serialization.state import StateAttribute, UnfittedAttribute
from onepass.types import Array

__all__ = [
    "FEATURE",
    "OUTPUT",
    "Axis",
    "Held",
    "Places",
    "State",
    "check_parameters",
    "param",
    "place_states",
    "placed",
    "sound_states",
    "start_states",
]

T = TypeVar("T")


def param(
    default: Any,
    *,
    choices: Collection[str] = (),
    whole: bool = False,
    optional: bool = False,
    **limits: float,
) -> Any:
    """Declare a parameter with its default and its range.

    Parameters
    ----------
    default : object
    choices : collection of str
        Texts that are allowed, instead of numbers if there are no limits.
    whole : bool
        Whether numbers must be whole.
    optional : bool
        Whether None is allowed; it is if the default is None.
    **limits : float
        ``low``, ``high`` and ``above``, as of ``validation.in_range``.

    Returns
    -------
    field : dataclasses.Field
    """
    known = {
        "choices": choices,
        "whole": whole,
        "optional": optional or default is None,
        "limits": limits,
    }
    return field(default=default, metadata=known)


@cache
def _ranges(cls: Any) -> dict[str, Mapping[str, Any]]:
    """The range of each parameter of a class that has one."""
    known = fields(cls) if is_dataclass(cls) else ()
    return {one.name: one.metadata for one in known if one.metadata}


def check_parameters(estimator: Any) -> None:
    """Check each parameter that is declared with a range.

    Raises
    ------
    ParameterError
        If a parameter is out of range.
    """
    for name, known in _ranges(estimator.__class__).items():
        value, choices = getattr(estimator, name), known["choices"]
        if (value is None and known["optional"]) or (isinstance(value, str) and value in choices):
            continue
        if choices and (isinstance(value, str) or not known["limits"]):
            number = " or a number" if known["limits"] else ""
            raise ParameterError(
                f"`{name}` must be one of {', '.join(map(repr, choices))}{number}, got {value!r}",
                remedy="Pass one of these.",
            )
        check = validation.whole if known["whole"] else validation.in_range
        check(value, name, **known["limits"])


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
    """A learned attribute, with the axes of an array; reading it before the first row is an error.

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


class Held(StateAttribute, State[T]):
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
    found = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    return {k: one for k, one in found.items() if isinstance(one, State) and one.axes}


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
    for name, array in _arrays(estimator.__class__).items():
        if places.keys() & set(array.axes):
            setattr(estimator, name, placed(getattr(estimator, name), array.axes, places))


def placed(value: Array, axes: Collection[Axis | None], places: Mapping[Axis, Places]) -> Array:
    """Return an array extended along some of its axes with zeros."""
    every = [
        places[axis] if axis and axis in places else Places(np.arange(n), n)
        for axis, n in zip(axes, value.shape, strict=True)
    ]
    wide = np.zeros([size for _, size in every], value.dtype)
    wide[np.ix_(*(at for at, _ in every))] = value
    return wide


def sound_states(estimator: Any, **sizes: int) -> bool:
    """Return whether the declared arrays are numbers of these sizes, as those of a model file."""
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
