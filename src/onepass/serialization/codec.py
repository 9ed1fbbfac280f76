"""Encoding of objects as plain values and arrays, and decoding: ``state_dict`` and ``from_state``.

An object is encoded as its class's name, the arguments of its constructor, and its learned
attributes::

    {"@": "RLSRegressor", "ridge": 1e-06, …, "memory_": {"@": "Triangle", "R": array, …}}

Decoding calls the class with these arguments and sets these attributes. Only registered classes
can be named: each package registers its own with :func:`register` when it is imported. Names of
former versions are mapped by :mod:`onepass.serialization.former`. A metric has no arguments: all
its attributes are encoded, and set in a new one.

Types with an encoding of their own are registered with :func:`register_value`, each under a tag:

=========================================== ====================================================
``{"@": "generator", "state": …}``          random generator: the state of its stream and of the
                                            seeds from which it spawns others, bit for bit
``{"@": "counter", "items": […]}``          Counter, as pairs of a label and its count
``{"@": "deque", "items": […]}``            deque
``{"@": "number", "of": array}``            NumPy scalar of a metric
``{"@": "tensor", "dtype": …, "of": …}``    torch tensor (registered by :mod:`onepass.nn.saving`)
=========================================== ====================================================

Two other values have the key ``"@"``: ``{"@": "function", "name": "mine.phi"}``, an argument that
is a function, or is ``outside`` of what files hold, and is given again on loading; and ``{"@":
"dict", "items": {…}}``, a dict that has the key ``"@"``.

Encoded trees may come from a stranger: everything in them is validated, and nothing is executed.
"""

import inspect
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from onepass.errors import CheckpointError, ParameterError
from onepass.serialization import former
from onepass.serialization.archive import DEPTH, damaged
from onepass.serialization.state import learned

__all__ = [
    "MARK",
    "Decoder",
    "Encoder",
    "Entry",
    "Role",
    "can_hold",
    "can_learn",
    "class_registry",
    "from_state",
    "register",
    "register_value",
    "state_dict",
]


MARK = "@"
"""The key of whatever is no plain dict."""

_Path = tuple[str, ...]
_COUNTS = {"rows_seen_", "n_features_in_", "n_outputs_"}
_NUMBERS = (int, float, np.generic, np.ndarray)
_LEAVES = (type(None), bool, int, float, str, np.ndarray)


# -- registered classes and types ------------------------------------------------------------------


class Role(IntEnum):
    """What a saved object is; it may hold objects of its own role and of those before it."""

    METRIC = 0
    STATISTIC = 1
    LOSS = 2
    MEMORY = 3
    FORGETTING = 4
    FEATURE = 5
    LEARNER = 6
    PIPELINE = 7
    RUN = 8


class Entry(NamedTuple):
    """A class that a model file may name."""

    cls: Any
    """An estimator of scikit-learn's kind, a dataclass or a metric."""
    role: Role
    """As which it was registered."""
    arguments: tuple[str, ...]
    """Of its constructor; each is also an attribute."""
    rest: str | None
    """The name of its ``*arguments``, if it takes any."""

    @property
    def estimates(self) -> bool:
        """Whether it learns: then what it learned is in attributes that end with ``_``."""
        return issubclass(self.cls, BaseEstimator)

    @property
    def finite(self) -> bool:
        """Whether what it learned never holds nan."""
        return self.role is not Role.FEATURE  # a missing value is nan there; elsewhere a bug

    @property
    def outside(self) -> dict[str, str]:
        """The arguments that no file holds, with what each is."""
        return dict(getattr(self.cls, "outside", {}))

    def handed(self, name: str, value: object) -> bool:
        """Whether who loads a file hands an argument in: a function, or what no file holds."""
        return callable(value) or (
            name in self.outside and not isinstance(value, (str, type(None)))
        )

    def plain(self, name: str, value: object) -> Any:
        """An argument; the path of what no file holds as text."""
        return (
            os.fspath(value) if name in self.outside and isinstance(value, os.PathLike) else value
        )


_REGISTRY: dict[str, Entry] = {}
_VALUES: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {}


def register(role: Role, *classes: type) -> None:
    """Let model files name these classes.

    Parameters
    ----------
    role : Role
    *classes : type
        Estimators of scikit-learn's kind and dataclasses, each of a name of its own; or metrics,
        which take the place of other metrics of their name.

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
                f"{cls.__module__}: saved classes must have names of their own, got "
                f"{cls.__name__!r}, which {found.cls.__module__} has. Rename it."
            )


def register_value(
    tag: str, cls: type, encode: Callable[[Any], Any], decode: Callable[..., Any]
) -> None:
    """Let model files hold values of a type that is neither plain nor a registered class.

    Parameters
    ----------
    tag : str
        Its name in files.
    cls : type
    encode : callable
        Gives the items of a value as a dict of what files can hold; or a plain value, for a value
        that is stored as such.
    decode : callable
        Gives the value of these items, passed by name with ``device``. It believes none of them,
        and raises ValueError, TypeError, KeyError or the like if they are not those of a value.
    """
    _VALUES[tag] = cls, encode, decode


def class_registry() -> dict[str, Entry]:
    """The registered classes, by name."""
    return dict(_REGISTRY)


def can_hold(outer: Entry | None, inner: Entry) -> bool:
    """Whether an object of one class can be part of an object of another."""
    return outer is None or inner.role <= outer.role


def can_learn(cls: type, name: str) -> bool:
    """Whether an attribute of this name can be what an object of this class learned."""
    if not name.isidentifier() or name.startswith("_") or not name.endswith("_"):
        return False
    there = inspect.getattr_static(cls, name, None)
    return not (callable(there) or hasattr(there, "__get__"))


def _entry(cls: type, role: Role) -> Entry:
    signature = inspect.signature(cls).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    rest = [p.name for p in signature if p.kind is inspect.Parameter.VAR_POSITIONAL]
    arguments = tuple(p.name for p in signature if p.kind in named)
    return Entry(cls, role, arguments, rest[0] if rest else None)


# -- encoding and decoding -------------------------------------------------------------------------


def state_dict(thing: object, where: str) -> Any:
    """An object as plain values and arrays, which :mod:`onepass.serialization.archive` can write.

    Parameters
    ----------
    thing : object of a registered class, or plain values, lists and dicts with such in them
    where : str
        The file, for messages.

    Raises
    ------
    CheckpointError
        If it is or holds an object of another class, or a learner learned nan.
    """
    return Encoder(where).take(thing, None, (), finite=False)


def from_state(
    state: object,
    where: str,
    replacements: Mapping[str, object] | None = None,
    *,
    device: Any = None,
    spare: bool = False,
) -> Any:
    """The object that ``state_dict`` encoded.

    Parameters
    ----------
    state : dict
        From whatever source.
    where : str
        The file, for messages.
    replacements : dict of str to Any
        For each argument that was a function or a network, by its name or its place, that one.
    device : torch.device, optional
        Where tensors are put.
    spare : bool, default=False
        Whether there may be replacements that stand for nothing.

    Raises
    ------
    CheckpointError
        If this is not something that ``state_dict`` gives, or a replacement is missing, or stands
        for nothing.
    """
    decoder = Decoder(where, replacements or {}, device)
    thing = decoder.give(state, None, (), finite=False)
    for name in () if spare else decoder.replacements.keys() - decoder.used:
        raise CheckpointError(
            f"{where}: replacements must stand for arguments that were functions, got "
            f"{name!r}, which was none. Leave it out."
        )
    return thing


class Encoder:
    """Encodes objects as plain values and arrays; ``where`` is the file, for messages."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.known = {entry.cls: entry for entry in _REGISTRY.values()}

    def thing(self, thing: object, entry: Entry, path: _Path, *, finite: bool) -> dict[str, Any]:
        """An object of a known class; if ``finite``, nothing in it may be nan."""
        finite = finite and not entry.estimates  # an estimator's arguments are its user's
        state: dict[str, Any] = {MARK: entry.cls.__name__}
        if entry.role is Role.METRIC:
            parts = vars(thing).items()
            return state | {k: self.take(v, entry, (*path, k), finite=False) for k, v in parts}
        for name in (*entry.arguments, *([entry.rest] if entry.rest else [])):
            value = entry.plain(name, getattr(thing, name))
            if entry.handed(name, value) and type(value) not in self.known:
                state[name] = {MARK: "function", "name": _name(value)}
            else:
                state[name] = self.take(value, entry, (*path, name), finite=finite)
        for name in learned(thing) if entry.estimates else []:
            if name in state or not can_learn(entry.cls, name):
                raise CheckpointError(
                    f"{self.where}: what {entry.cls.__name__} learned must stand in attributes "
                    f"of their own, got {name!r}, which its class has already. Rename it."
                )
            value = getattr(thing, name)
            state[name] = self.take(value, entry, (*path, name), finite=entry.finite)
        return state

    def take(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """Any part of an object of the class ``owner``."""
        if len(path) > DEPTH:
            raise CheckpointError(
                f"{self.where}: what is saved must have at most {DEPTH} levels, got more under "
                f"`{'.'.join(path[:3])}`, perhaps a circle. Keep parts in one place only."
            )
        kind = type(value)
        if kind in self.known and can_hold(owner, self.known[kind]):
            return self.thing(value, self.known[kind], path, finite=finite)
        if isinstance(value, BaseEstimator) or (is_dataclass(value) and kind is not type):
            raise self.unknown(value, path)
        if kind in {list, tuple}:
            parts = enumerate(value)
            return kind(self.take(v, owner, (*path, str(i)), finite=finite) for i, v in parts)
        if kind is dict:
            items = {
                k: self.take(v, owner, (*path, str(k)), finite=finite) for k, v in value.items()
            }
            return {MARK: "dict", "items": items} if MARK in items else items
        if finite and _has_nan(value):
            raise CheckpointError(
                f"{self.where}: `{'.'.join(path)}` must not hold nan, as no learner does, got nan. "
                "This is a bug of the learner, which should be reported; go back to its last file."
            )
        return self.value(value, owner, path, finite=finite)

    def value(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """What is neither an object of a known class nor a list, tuple or dict."""
        if isinstance(value, np.generic) and (owner is None or owner.role is not Role.METRIC):
            return value  # in files a number of Python's
        for tag, (cls, encode, _) in _VALUES.items():
            if isinstance(value, cls):
                try:
                    state = encode(value)
                except ValueError as wrong:
                    raise CheckpointError(f"{self.where}: `{'.'.join(path)}` {wrong}") from wrong
                if type(state) is not dict:
                    return state
                return {MARK: tag, **self.take(state, owner, path, finite=finite)}
        if not path and type(value) not in _LEAVES:
            raise self.unknown(value, path)
        return value

    def unknown(self, thing: object, path: _Path) -> CheckpointError:
        """The error for an object whose class cannot be loaded again, or not there."""
        place = f"`{'.'.join(path)}`" if path else "what is saved"
        return CheckpointError(
            f"{self.where}: {place} must be a learner, Pipeline, feature or memory of onepass, in "
            f"its right place, got {type(thing).__name__}. Only classes that onepass lists can be "
            "loaded again."
        )


class Decoder:
    """Builds objects from plain values and arrays, believing none of them.

    Parameters
    ----------
    where : str
        The file, for messages.
    replacements : dict of str to Any
        Functions and networks that stood for arguments.
    device : torch.device, optional
        Where tensors are put.
    """

    def __init__(self, where: str, replacements: Mapping[str, object], device: Any = None) -> None:
        self.where = where
        self.replacements = replacements
        self.device = device
        self.used: set[str] = set()

    def thing(
        self, state: dict[str, Any], owner: Entry | None, path: _Path, *, finite: bool
    ) -> Any:
        """An object of a known class that may stand where it stands."""
        state = former.renamed(state, MARK)
        entry = _REGISTRY.get(state[MARK])
        if entry is None or not can_hold(owner, entry):
            raise damaged(self.where, f"it names {state[MARK][:40]!r} as {_place(path)}")
        parts = {key: part for key, part in state.items() if key != MARK}
        if entry.role is Role.METRIC:
            thing = self.metric(parts, entry, path)
        else:
            thing = self.constructed(parts, entry, path, finite=finite)
        if not _is_sound(thing):
            raise damaged(
                self.where, f"{_place(path)} has not learned what a {entry.cls.__name__} learns"
            )
        if unlike := getattr(thing, "_unlike", ""):
            raise CheckpointError(f"{self.where}: {_place(path)}: {unlike}")
        return thing

    def constructed(self, parts: dict[str, Any], entry: Entry, path: _Path, *, finite: bool) -> Any:
        """An object made of its arguments, with what it learned."""
        arguments, attributes = {}, {}
        for name, value in parts.items():
            place = (*path, name)
            if name in entry.arguments or name == entry.rest:
                of_state = finite and not entry.estimates
                arguments[name] = self.argument(value, entry, place, finite=of_state)
            elif entry.estimates and can_learn(entry.cls, name):
                attributes[name] = self.give(value, entry, place, finite=entry.finite)
            else:
                raise damaged(self.where, f"{entry.cls.__name__} has no {name[:40]!r}")
        thing = self.called(entry, arguments, path)
        for name, value in attributes.items():
            if name in _COUNTS and not (type(value) is int and value >= 0):
                raise damaged(self.where, f"{_place((*path, name))} is no count")
            setattr(thing, name, value)
        return thing

    def metric(self, parts: dict[str, Any], entry: Entry, path: _Path) -> Any:
        """A metric with these attributes, each of the type that it has in a new one."""
        thing = self.called(entry, {}, path)
        attributes = vars(thing)
        if parts.keys() != attributes.keys():
            raise damaged(self.where, f"{_place(path)} is no {entry.cls.__name__}")
        for name, value in parts.items():
            found = self.give(value, entry, (*path, name), finite=False)
            fresh = attributes[name]
            numbers = isinstance(fresh, _NUMBERS) and isinstance(found, _NUMBERS)
            if fresh is not None and type(found) is not type(fresh) and not numbers:
                raise damaged(self.where, f"{_place((*path, name))} is of another type")
            attributes[name] = found
        return thing

    def called(self, entry: Entry, arguments: dict[str, Any], path: _Path) -> Any:
        """What the class makes of its arguments."""
        rest = arguments.pop(entry.rest, ()) if entry.rest else ()
        if type(rest) not in {list, tuple}:
            raise damaged(self.where, f"{_place((*path, str(entry.rest)))} is no list")
        try:
            return entry.cls(*rest, **arguments)
        except Exception as wrong:  # whatever a class makes of arguments that nobody checked
            name = entry.cls.__name__
            raise damaged(self.where, f"no {name} as {_place(path)}: {wrong}") from wrong

    def argument(self, value: Any, owner: Entry, path: _Path, *, finite: bool) -> Any:
        """An argument of a constructor, which may have been a function."""
        place, what = ".".join(path), owner.outside.get(path[-1])
        key = place if place in self.replacements else path[-1]
        function = self.replacements.get(key)
        if self.mark(value, path) != "function" and (what is None or function is None):
            return self.give(value, owner, path, finite=finite)
        if not (callable(function) or (what and function is not None)):
            came = "no replacement" if function is None else f"a {type(function).__name__} for it"
            raise CheckpointError(
                f"{self.where}: `{place}` must be {what or 'a function'}, such as "
                f"{str(value.get('name'))[:80]}, which no file can hold, got {came}. "
                f"Give it to load: op.load({self.where!r}, {path[-1]}=...)."
            )
        self.used.add(key)
        return function

    def give(self, value: Any, owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """Any part of an object of the class ``owner``."""
        kind = type(value)
        if kind in {list, tuple}:
            parts = enumerate(value)
            return kind(self.give(v, owner, (*path, str(i)), finite=finite) for i, v in parts)
        if kind is dict:
            mark = self.mark(value, path)
            if mark in _VALUES:
                return self.value(value, owner, path, finite=finite)
            if mark not in {None, "dict"}:
                return self.thing(value, owner, path, finite=finite)
            items = value if mark is None else value.get("items")
            if type(items) is not dict:
                raise damaged(self.where, f"{_place(path)} is no dict")
            return {k: self.give(v, owner, (*path, k), finite=finite) for k, v in items.items()}
        if finite and _has_nan(value):
            raise damaged(self.where, f"{_place(path)} holds nan, as no learner does")
        return value

    def mark(self, value: object, path: _Path) -> str | None:
        """What a dict stands for; None where it is plain, or no dict."""
        if type(value) is not dict or MARK not in value:
            return None
        if type(value[MARK]) is not str:
            raise damaged(self.where, f"{_place(path)} does not say what it is")
        return str(value[MARK])

    def value(
        self, state: dict[str, Any], owner: Entry | None, path: _Path, *, finite: bool
    ) -> Any:
        """A value of a type with an encoding of its own."""
        tag = state[MARK]
        items = {
            key: self.give(part, owner, (*path, key), finite=finite)
            for key, part in state.items()
            if key != MARK
        }
        try:
            return _VALUES[tag][2](**items, device=self.device)
        except (LookupError, TypeError, AttributeError, OverflowError, ValueError) as wrong:
            raise damaged(self.where, f"{_place(path)} is no {tag}: {wrong}") from wrong


def _place(path: _Path) -> str:
    return f"`{'.'.join(path)}`" if path else "the whole"


def _name(function: object) -> str:
    """A function's name, or that of its class where it has none, for messages."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_sound(thing: Any) -> bool:
    """Whether what an object holds fits together, as far as its class can tell."""
    try:
        return not hasattr(type(thing), "_sound") or bool(thing._sound)  # noqa: SLF001
    except (LookupError, TypeError, AttributeError, ValueError):
        return False


def _has_nan(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    return isinstance(value, (float, np.floating)) and math.isnan(value)


# -- types with an encoding of their own -----------------------------------------------------------


_LARGEST_POOL = 1024  # words of entropy; NumPy's own is 4
_POSITION = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def _generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """A random generator's state; what it draws next is not disturbed."""
    bits = generator.bit_generator
    if type(bits) is not getattr(np.random, type(bits).__name__, None):
        raise ValueError(
            f"must be one of NumPy's own random generators, {', '.join(_GENERATORS)}, got "
            f"{type(bits).__name__}. Use numpy.random.default_rng."
        )
    seeds = bits.seed_seq
    entropy = dict(seeds.state) if isinstance(seeds, np.random.SeedSequence) else None
    return {"state": {"bits": dict(bits.state), "seeds": entropy}}


def _generator(state: Any, **_: object) -> np.random.Generator:
    """The random generator in this state."""
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
    """Whether a position within a buffer is one: NumPy would read beyond it unasked."""
    if name not in _POSITION:
        return True
    key, largest = _POSITION[name]
    place = bits["state"] if name == "MT19937" else bits
    return type(place[key]) is int and 0 <= place[key] <= largest


def _same(a: Any, b: Any) -> bool:
    """Whether two states are equal, and so none was bent to fit."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)


def _counter(items: Any, **_: object) -> Counter[Any]:
    """The counter of these pairs."""
    if not all(type(count) is int for _, count in items):
        raise ValueError("a count is no whole number")
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
