"""Encoding of objects as plain values and arrays, and decoding: ``state_dict``, ``from_state``.

The encoding of an object contains the name of its class, the arguments of its constructor, and its
learned attributes::

    {"@": "ORFitRegressor", "noise": 0.1, …, "memory_": {"@": "Triangle", "R": array, …}}

Decoding calls the class with these arguments and sets these attributes. Only registered classes can
be decoded; each package registers its classes with :func:`register` when it is imported.
Metrics have no arguments: all their attributes are encoded, and are set in a new instance.

Other types are registered with :func:`register_value`, which sets their encoding and a tag:

=========================================== ====================================================
``{"@": "generator", "state": …}``          random generator: states of its bit generator and
                                            seed sequence
``{"@": "counter", "items": […]}``          Counter, as pairs of label and count
``{"@": "deque", "items": […]}``            deque
``{"@": "number", "of": array}``            NumPy scalar of a metric
``{"@": "tensor", "dtype": …, "of": …}``    torch tensor (registered by :mod:`onepass.nn.saving`)
=========================================== ====================================================

The key ``"@"`` also marks arguments that are not stored and must be passed again on loading,
``{"@": "function", "name": "mine.phi"}``: functions, and arguments in the mapping ``outside`` of
the class. A dict that itself has the key ``"@"`` is encoded as ``{"@": "dict", "items": {…}}``.

Encoded trees may come from untrusted files: everything is validated, and nothing is executed.
"""

from __future__ import annotations

import inspect
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import CheckpointError, NotFittedError, ParameterError
from onepass.estimators import BaseEstimator
from onepass.serialization.archive import damaged
from onepass.serialization.state import StateAttribute, UnfittedAttribute, learned

MARK = "@"
"""The key that marks an encoded object."""

_Path = tuple[str, ...]
_COUNTS = {"rows_seen_", "n_features_in_", "n_outputs_"}
_NUMBERS = (int, float, np.generic, np.ndarray)
_LEAVES = (type(None), bool, int, float, str, np.ndarray)


# -- registered classes and types ------------------------------------------------------------------


class Role(IntEnum):
    """The role of a saved object, which may contain objects of the same and lower roles."""

    METRIC = 0
    LOSS = 1
    MEMORY = 2
    FORGETTING = 3
    FEATURE = 4
    LEARNER = 5
    PIPELINE = 6
    RUN = 7


class Entry(NamedTuple):
    """A registered class."""

    cls: Any
    """A scikit-learn compatible estimator, a dataclass or a metric."""
    role: Role
    """The role with which the class was registered."""
    arguments: tuple[str, ...]
    """Names of the constructor arguments, which are also attributes."""
    varargs: str | None
    """The name of ``*args`` of the constructor, if any."""

    @property
    def is_estimator(self) -> bool:
        """Whether the class has learned attributes, whose names end with ``_``."""
        return issubclass(self.cls, BaseEstimator)

    @property
    def finite(self) -> bool:
        """Whether learned attributes never contain NaN."""
        return self.role is not Role.FEATURE  # in features NaN is a missing value, elsewhere a bug

    @property
    def outside(self) -> dict[str, str]:
        """The arguments that are not stored, with a description of each."""
        return dict(getattr(self.cls, "_outside", {}))

    def is_external(self, name: str, value: object) -> bool:
        """Return whether an argument is not stored and must be passed to ``load``."""
        return callable(value) or (
            name in self.outside and not isinstance(value, (str, type(None)))
        )


_REGISTRY: dict[str, Entry] = {}
_VALUES: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {}


def register(role: Role, *classes: type) -> None:
    """Register classes, so that model files can contain their instances.

    Parameters
    ----------
    role : Role
    *classes : type
        Scikit-learn compatible estimators and dataclasses, with unique names; or metrics, which
        replace metrics of the same name.

    Raises
    ------
    ParameterError
        If another class of the same name is registered.
    """
    for cls in classes:
        found = _REGISTRY.setdefault(cls.__name__, _entry(cls, role))
        if found.role is role is Role.METRIC:
            _REGISTRY[cls.__name__] = _entry(cls, role)
        elif found.cls is not cls:
            raise ParameterError(
                f"saved classes must have unique names, got {cls.__name__!r}, which "
                f"{found.cls.__module__} also defines. Rename one of them.",
                cls.__module__,
            )


def register_value(
    tag: str, cls: type, encode: Callable[[Any], Any], decode: Callable[..., Any]
) -> None:
    """Register the encoding of a type that is neither plain nor a registered class.

    Parameters
    ----------
    tag : str
        The name of the type in files.
    cls : type
    encode : callable
        Returns the items of a value as a dict of plain or registered values, or a plain value to
        store instead.
    decode : callable
        Converts these items, which are keyword arguments besides ``device``, to the value. It
        validates them, and raises ValueError, TypeError, KeyError or the like if they are invalid.
    """
    _VALUES[tag] = cls, encode, decode


def class_registry() -> dict[str, Entry]:
    """Return the registered classes, by name."""
    return dict(_REGISTRY)


def can_hold(outer: Entry | None, inner: Entry) -> bool:
    """Return whether an object of class ``outer`` can contain an object of class ``inner``."""
    return outer is None or inner.role <= outer.role


def can_learn(cls: type, name: str) -> bool:
    """Return whether ``name`` can be a learned attribute of a class."""
    if not name.isidentifier() or name.startswith("_") or not name.endswith("_"):
        return False
    existing = inspect.getattr_static(cls, name, None)
    defined = callable(existing) or hasattr(existing, "__get__")
    return isinstance(existing, (StateAttribute, UnfittedAttribute)) or not defined


def _entry(cls: type, role: Role) -> Entry:
    """Return the entry of a class, read from the signature of its constructor."""
    signature = inspect.signature(cls).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    varargs = [p.name for p in signature if p.kind is inspect.Parameter.VAR_POSITIONAL]
    arguments = tuple(p.name for p in signature if p.kind in named)
    return Entry(cls, role, arguments, varargs[0] if varargs else None)


# -- encoding and decoding -------------------------------------------------------------------------


def state_dict(thing: object, where: str) -> Any:
    """Encode an object as plain values and arrays for :mod:`onepass.serialization.archive`.

    Parameters
    ----------
    thing : object of a registered class, or plain values, lists and dicts of such objects
    where : str
        The file, for messages.

    Raises
    ------
    CheckpointError
        If ``thing`` is or contains an object of another class, or a learned attribute is NaN.
    """
    return Encoder(where).encode(thing, None, (), finite=False)


def from_state(
    state: object,
    where: str,
    replacements: Mapping[str, object] | None = None,
    *,
    device: Any = None,
    spare: bool = False,
) -> Any:
    """Decode an object from the result of ``state_dict``.

    Parameters
    ----------
    state : dict
        The encoded object, trusted or not.
    where : str
        The file, for messages.
    replacements : dict of str to Any
        Name or path of an argument that was not stored -> function or network.
    device : torch.device, optional
        The device of tensors.
    spare : bool, default=False
        Whether unused replacements are allowed.

    Raises
    ------
    CheckpointError
        If ``state`` is not a result of ``state_dict``, or a replacement is missing or unused.
    """
    decoder = Decoder(where, replacements or {}, device)
    thing = decoder.decode(state, None, (), finite=False)
    for name in () if spare else decoder.replacements.keys() - decoder.used:
        raise CheckpointError(
            f"replacements must name arguments that were functions, got {name!r}, which "
            "was not a function. Omit it.",
            where,
        )
    return thing


class Encoder:
    """Encodes objects as plain values and arrays.

    Parameters
    ----------
    where : str
        The file, for messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.entries = {entry.cls: entry for entry in _REGISTRY.values()}

    def encode_object(
        self, thing: object, entry: Entry, path: _Path, *, finite: bool
    ) -> dict[str, Any]:
        """Encode an object of a registered class; if ``finite``, NaN is an error."""
        finite = finite and not entry.is_estimator  # users may pass NaN as an argument
        state: dict[str, Any] = {MARK: entry.cls.__name__}
        if entry.role is Role.METRIC:
            parts = vars(thing).items()
            return state | {k: self.encode(v, entry, (*path, k), finite=False) for k, v in parts}
        for name in (*entry.arguments, *([entry.varargs] if entry.varargs else [])):
            value = getattr(thing, name)
            if name in entry.outside and isinstance(value, os.PathLike):
                value = os.fspath(value)  # a path that replaces an external object
            if entry.is_external(name, value) and type(value) not in self.entries:
                state[name] = {MARK: "function", "name": _name(value)}
            else:
                state[name] = self.encode(value, entry, (*path, name), finite=finite)
        try:
            attributes = learned(thing) if entry.is_estimator else {}
        except NotFittedError as error:  # of a frozen copy
            raise CheckpointError(str(error), self.where) from error
        for name, value in attributes.items():
            state[name] = self.encode(value, entry, (*path, name), finite=entry.finite)
        return state

    def encode(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """Encode any part of an object of the class ``owner``."""
        kind = type(value)
        if kind in self.entries and can_hold(owner, self.entries[kind]):
            return self.encode_object(value, self.entries[kind], path, finite=finite)
        if isinstance(value, BaseEstimator) or (is_dataclass(value) and kind is not type):
            raise self.class_error(value, path)
        if kind in {list, tuple}:
            parts = enumerate(value)
            return kind(self.encode(v, owner, (*path, str(i)), finite=finite) for i, v in parts)
        if kind is dict:
            items = {
                k: self.encode(v, owner, (*path, str(k)), finite=finite) for k, v in value.items()
            }
            return {MARK: "dict", "items": items} if MARK in items else items
        if finite and _has_nan(value):
            raise CheckpointError(
                f"`{'.'.join(path)}` must not contain NaN, got NaN. This is a bug in "
                "the learner: please report it, and load the last file that was saved.",
                self.where,
            )
        return self.encode_value(value, owner, path, finite=finite)

    def encode_value(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """Encode a plain value, or a value of a type with a registered encoding."""
        if isinstance(value, np.generic) and (owner is None or owner.role is not Role.METRIC):
            return value  # stored as a Python number
        for tag, (cls, encode, _) in _VALUES.items():
            if isinstance(value, cls):
                try:
                    state = encode(value)
                except ValueError as error:
                    raise CheckpointError(f"`{'.'.join(path)}` {error}", self.where) from error
                if type(state) is not dict:
                    return state
                return {MARK: tag, **self.encode(state, owner, path, finite=finite)}
        if not path and type(value) not in _LEAVES:
            raise self.class_error(value, path)
        return value

    def class_error(self, thing: object, path: _Path) -> CheckpointError:
        """Create the error for an object whose class is not registered or not allowed here."""
        place = f"`{'.'.join(path)}`" if path else "the saved object"
        remedy = "Save a learner, Pipeline, transformer or memory of onepass."
        if type(thing).__module__.startswith("sklearn."):
            remedy = "Replace it by a transformer of op.features, or use joblib.dump."
        return CheckpointError(
            f"{place} must be of a class that model files can contain here, got "
            f"{type(thing).__name__}. {remedy}",
            self.where,
        )


class Decoder:
    """Validates plain values and arrays, and builds objects from them.

    Parameters
    ----------
    where : str
        The file, for messages.
    replacements : dict of str to Any
        Functions and networks that were not stored.
    device : torch.device, optional
        The device of tensors.
    """

    def __init__(self, where: str, replacements: Mapping[str, object], device: Any = None) -> None:
        self.where = where
        self.replacements = replacements
        self.device = device
        self.used: set[str] = set()

    def decode_object(
        self, state: dict[str, Any], owner: Entry | None, path: _Path, *, finite: bool
    ) -> Any:
        """Decode an object of a registered class that ``owner`` can contain."""
        entry = _REGISTRY.get(state[MARK])
        if entry is None or not can_hold(owner, entry):
            raise damaged(
                self.where, f"{_place(path)} has the unexpected class {state[MARK][:40]!r}"
            )
        parts = {key: part for key, part in state.items() if key != MARK}
        if entry.role is Role.METRIC:
            thing = self.metric(parts, entry, path)
        else:
            thing = self.constructed(parts, entry, path, finite=finite)
        if not _is_sound(thing):
            raise damaged(
                self.where, f"{_place(path)} has inconsistent attributes for {entry.cls.__name__}"
            )
        if unlike := getattr(thing, "_unlike", ""):
            raise CheckpointError(f"{_place(path)}: {unlike}", self.where)
        return thing

    def constructed(self, parts: dict[str, Any], entry: Entry, path: _Path, *, finite: bool) -> Any:
        """Construct an object and set its learned attributes."""
        arguments, attributes = {}, {}
        for name, value in parts.items():
            place = (*path, name)
            if name in entry.arguments or name == entry.varargs:
                of_state = finite and not entry.is_estimator
                arguments[name] = self.decode_argument(value, entry, place, finite=of_state)
            elif entry.is_estimator and can_learn(entry.cls, name):
                attributes[name] = self.decode(value, entry, place, finite=entry.finite)
            else:
                raise damaged(self.where, f"{entry.cls.__name__} has no {name[:40]!r}")
        thing = self.construct(entry, arguments, path)
        for name, value in attributes.items():
            if name in _COUNTS and not (type(value) is int and value >= 0):
                raise damaged(self.where, f"{_place((*path, name))} is not a count")
            try:
                setattr(thing, name, value)
            except (LookupError, TypeError, AttributeError, ValueError) as error:
                raise damaged(self.where, f"{_place((*path, name))}: {error}") from error
        return thing

    def metric(self, parts: dict[str, Any], entry: Entry, path: _Path) -> Any:
        """Decode a metric, whose attributes must have the types of a new instance."""
        thing = self.construct(entry, {}, path)
        attributes = vars(thing)
        if parts.keys() != attributes.keys():
            raise damaged(self.where, f"{_place(path)} is not a {entry.cls.__name__}")
        for name, value in parts.items():
            found = self.decode(value, entry, (*path, name), finite=False)
            fresh = attributes[name]
            numbers = isinstance(fresh, _NUMBERS) and isinstance(found, _NUMBERS)
            if fresh is not None and type(found) is not type(fresh) and not numbers:
                raise damaged(self.where, f"{_place((*path, name))} has another type")
            attributes[name] = found
        return thing

    def construct(self, entry: Entry, arguments: dict[str, Any], path: _Path) -> Any:
        """Decode the arguments, and call the class."""
        varargs = arguments.pop(entry.varargs, ()) if entry.varargs else ()
        if type(varargs) not in {list, tuple}:
            raise damaged(self.where, f"{_place((*path, str(entry.varargs)))} is not a list")
        try:
            return entry.cls(*varargs, **arguments)
        except Exception as error:  # constructors may raise anything for invalid arguments
            name = entry.cls.__name__
            raise damaged(self.where, f"{_place(path)} is not a valid {name}: {error}") from error

    def decode_argument(self, value: Any, owner: Entry, path: _Path, *, finite: bool) -> Any:
        """Decode an argument of a constructor, which may have been a function."""
        place, what = ".".join(path), owner.outside.get(path[-1])
        key = place if place in self.replacements else path[-1]
        function = self.replacements.get(key)
        if self.mark(value, path) != "function" and (what is None or function is None):
            return self.decode(value, owner, path, finite=finite)
        if not (callable(function) or (what and function is not None)):
            given = "no replacement" if function is None else f"a {type(function).__name__}"
            raise CheckpointError(
                f"`{place}` must be {what or 'a function'}, such as "
                f"{str(value.get('name'))[:80]}, which cannot be stored, got {given}. "
                f"Pass it to load: op.load({self.where!r}, {path[-1]}=...).",
                self.where,
            )
        self.used.add(key)
        return function

    def decode(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """Decode any part of an object of the class ``owner``."""
        kind = type(value)
        if kind in {list, tuple}:
            parts = enumerate(value)
            return kind(self.decode(v, owner, (*path, str(i)), finite=finite) for i, v in parts)
        if kind is dict:
            mark = self.mark(value, path)
            if mark in _VALUES:
                return self.decode_value(value, owner, path, finite=finite)
            if mark not in {None, "dict"}:
                return self.decode_object(value, owner, path, finite=finite)
            items = value if mark is None else value.get("items")
            if type(items) is not dict:
                raise damaged(self.where, f"{_place(path)} is not a dict")
            return {k: self.decode(v, owner, (*path, k), finite=finite) for k, v in items.items()}
        if finite and _has_nan(value):
            raise damaged(self.where, f"{_place(path)} contains NaN")
        return value

    def mark(self, value: object, path: _Path) -> str | None:
        """Return the mark of an encoded object; None for any other value."""
        if type(value) is not dict or MARK not in value:
            return None
        if type(value[MARK]) is not str:
            raise damaged(self.where, f"{_place(path)} has an invalid mark")
        return str(value[MARK])

    def decode_value(
        self, state: dict[str, Any], owner: Entry | None, path: _Path, *, finite: bool
    ) -> Any:
        """Decode a value of a type with a registered encoding."""
        tag = state[MARK]
        items = {
            key: self.decode(part, owner, (*path, key), finite=finite)
            for key, part in state.items()
            if key != MARK
        }
        try:
            return _VALUES[tag][2](**items, device=self.device)
        except (LookupError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise damaged(self.where, f"{_place(path)} is not a valid {tag}: {error}") from error


def _place(path: _Path) -> str:
    """Format a path, for messages."""
    return f"`{'.'.join(path)}`" if path else "the object"


def _name(function: object) -> str:
    """Return the name of a function, otherwise of its class, for messages."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_sound(thing: Any) -> bool:
    """Return whether the attributes of an object are consistent, if its class can check it."""
    try:
        return not hasattr(type(thing), "_sound") or bool(thing._sound)  # noqa: SLF001
    except (LookupError, TypeError, AttributeError, ValueError):
        return False


def _has_nan(value: object) -> bool:
    """Return whether a value is or contains NaN."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    return isinstance(value, (float, np.floating)) and math.isnan(value)


# -- other types -----------------------------------------------------------------------------------


_LARGEST_POOL = 1024  # words of entropy; the default of NumPy is 4
_POSITION = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def _generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the state of a random generator without changing it."""
    bits = generator.bit_generator
    if type(bits) is not getattr(np.random, type(bits).__name__, None):
        raise ValueError(
            f"must be a random generator of NumPy, {', '.join(_GENERATORS)}, got "
            f"{type(bits).__name__}. Use numpy.random.default_rng."
        )
    seeds = bits.seed_seq
    entropy = dict(seeds.state) if isinstance(seeds, np.random.SeedSequence) else None
    return {"state": {"bits": dict(bits.state), "seeds": entropy}}


def _generator(state: Any, **_: object) -> np.random.Generator:
    """Create a random generator with this state."""
    bits, seeds = state["bits"], state["seeds"]
    name = bits["bit_generator"]
    if name not in _GENERATORS or not _inside(name, bits):
        raise ValueError(name)
    if seeds is not None and not 4 <= seeds["pool_size"] <= _LARGEST_POOL:
        raise ValueError(seeds["pool_size"])
    sequence = np.random.SeedSequence(**(seeds or {"entropy": 0}))
    generator = getattr(np.random, name)(sequence)
    generator.state = bits
    if not _same(generator.state, bits):
        raise ValueError(name)
    return np.random.Generator(generator)


def _inside(name: str, bits: dict[str, Any]) -> bool:
    """Return whether a position is within its buffer, which NumPy does not check."""
    if name not in _POSITION:
        return True
    key, largest = _POSITION[name]
    place = bits["state"] if name == "MT19937" else bits
    return type(place[key]) is int and 0 <= place[key] <= largest


def _same(a: Any, b: Any) -> bool:
    """Return whether two states are equal, to detect values that NumPy has altered."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


def _counter(items: Any, **_: object) -> Counter[Any]:
    """Convert pairs to a counter."""
    if not all(type(count) is int for _, count in items):
        raise ValueError("a count is not an integer")
    return Counter(dict(items))


register_value("generator", np.random.Generator, _generator_state, _generator)
register_value("counter", Counter, lambda value: {"items": list(value.items())}, _counter)
register_value(
    "deque", deque, lambda value: {"items": list(value)}, lambda items, **_: deque(items)
)
register_value(
    "number",
    np.generic,
    lambda value: {"of": np.asarray(value)},
    lambda of, **_: np.asarray(of).reshape(())[()],
)
