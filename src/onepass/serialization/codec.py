"""Encoding of objects as plain values and arrays, and decoding.

An object is encoded as its class's name, the arguments of its constructor, and its learned
attributes::

    {"@": "RLSRegressor", "ridge": 1e-06, …, "memory_": {"@": "Triangle", "R": array, …}}

Decoding calls the class with these arguments and sets these attributes. Only registered classes
can be named: each package registers its own with :func:`register` when it is imported. Names of
former versions are mapped by :mod:`onepass.serialization.former`. Three other values have the key
``"@"``:

=========================================== ====================================================
``{"@": "function", "name": "mine.phi"}``   an argument that is a function, or is ``outside`` of
                                            what files hold; it is given again on loading
``{"@": "generator", "state": …}``          a random generator: the state of its stream and of the
                                            seeds from which it spawns others, bit for bit
``{"@": "dict", "items": {…}}``             a dict that has the key ``"@"``
=========================================== ====================================================

Encoded trees may come from a stranger: everything in them is validated, and nothing is executed.
"""

import inspect
import math
import os
from collections.abc import Mapping
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
    "Builder",
    "Entry",
    "Role",
    "Taker",
    "built",
    "can_hold",
    "can_learn",
    "entries",
    "heard",
    "register",
    "said",
    "taken",
]


_LARGEST_POOL = 1024  # words of entropy; NumPy's own is 4
_POSITION = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
_KNOWN = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def said(generator: np.random.Generator) -> dict[str, Any]:
    """A generator's state as plain values and arrays.

    Parameters
    ----------
    generator : numpy.random.Generator
        Over one of NumPy's bit generators; what it draws next is not disturbed.

    Raises
    ------
    ValueError
        If its bit generator is not one of NumPy's.

    Examples
    --------
    >>> generator = np.random.default_rng(7)
    >>> again = heard(said(generator))
    >>> float(again.random() - generator.random())
    0.0
    """
    bits = generator.bit_generator
    if type(bits) is not getattr(np.random, type(bits).__name__, None):
        raise ValueError(f"{type(bits).__name__} is not one of {', '.join(_KNOWN)}")
    seeds = bits.seed_seq
    entropy = dict(seeds.state) if isinstance(seeds, np.random.SeedSequence) else None
    return {"bits": dict(bits.state), "seeds": entropy}


def heard(state: dict[str, Any]) -> np.random.Generator:
    """The generator that ``said`` took apart.

    Raises
    ------
    ValueError
        If this is not something that ``said`` gives.
    """
    try:
        bits, seeds = state["bits"], state["seeds"]
        name = bits["bit_generator"]
        if name not in _KNOWN or not _inside(name, bits):
            raise ValueError(name)
        if seeds is not None and not 4 <= seeds["pool_size"] <= _LARGEST_POOL:
            raise ValueError(seeds["pool_size"])
        sequence = np.random.SeedSequence(**(seeds or {"entropy": 0}))
        generator = getattr(np.random, name)(sequence)
        generator.state = bits
        if not _same(generator.state, bits):
            raise ValueError(name)
        return np.random.Generator(generator)
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as wrong:
        raise ValueError("not the state of a random generator") from wrong


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


class Role(IntEnum):
    """What a saved object is; it may hold objects of its own role and of those before it."""

    STATISTIC = 0
    LOSS = 1
    MEMORY = 2
    FORGETTING = 3
    FEATURE = 4
    LEARNER = 5
    PIPELINE = 6


class Entry(NamedTuple):
    """A class that a model file may name."""

    cls: Any
    """An estimator of scikit-learn's kind, or a dataclass."""
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


def register(role: Role, *classes: type) -> None:
    """Let model files name these classes.

    Parameters
    ----------
    role : Role
    *classes : type
        Estimators of scikit-learn's kind and dataclasses, each of a name of its own.

    Raises
    ------
    ParameterError
        If another class of the same name is registered.
    """
    for cls in classes:
        found = _REGISTRY.setdefault(cls.__name__, _entry(cls, role))
        if found.cls is not cls:
            raise ParameterError(
                f"{cls.__module__}: saved classes must have names of their own, got "
                f"{cls.__name__!r}, which {found.cls.__module__} has. Rename it."
            )


def entries() -> dict[str, Entry]:
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


MARK = "@"
"""The key of whatever is no plain dict."""

_Path = tuple[str, ...]
_COUNTS = {"rows_seen_", "n_features_in_", "n_outputs_"}


def taken(thing: object, where: str) -> dict[str, Any]:
    """An object as plain values and arrays, which :mod:`onepass.serialization.archive` can write.

    Parameters
    ----------
    thing : learner, Pipeline, feature or memory
    where : str
        The file, for messages.

    Raises
    ------
    CheckpointError
        If its class is not of the catalogue, or it holds an object whose class is not, or it
        learned nan.
    """
    return Taker(where).root(thing)


def built(said: object, where: str, replacements: Mapping[str, object]) -> Any:
    """The object that ``taken`` took apart.

    Parameters
    ----------
    said : dict
        From whatever source.
    where : str
        The file, for messages.
    replacements : dict of str to Any
        For each argument that was a function or a network, by its name or its place, that one.

    Raises
    ------
    CheckpointError
        If this is not something that ``taken`` gives, or a replacement is missing, or stands
        for nothing.
    """
    return Builder(where, replacements).root(said)


class Taker:
    """Takes an object apart into plain values and arrays; ``where`` is the file, for messages."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.known = {entry.cls: entry for entry in entries().values()}

    def root(self, thing: object) -> dict[str, Any]:
        """The whole, which must be of a class that onepass lists."""
        entry = self.known.get(type(thing))
        if entry is None:
            raise self.unknown(thing, ())
        return self.thing(thing, entry, (), finite=False)

    def thing(self, thing: object, entry: Entry, path: _Path, *, finite: bool) -> dict[str, Any]:
        """An object of a known class; if ``finite``, nothing in it may be nan."""
        finite = finite and not entry.estimates  # an estimator's arguments are its user's
        said: dict[str, Any] = {MARK: entry.cls.__name__}
        for name in (*entry.arguments, *([entry.rest] if entry.rest else [])):
            value = entry.plain(name, getattr(thing, name))
            if entry.handed(name, value) and type(value) not in self.known:
                said[name] = {MARK: "function", "name": _name(value)}
            else:
                said[name] = self.take(value, entry, (*path, name), finite=finite)
        for name in learned(thing) if entry.estimates else []:
            if name in said or not can_learn(entry.cls, name):
                raise CheckpointError(
                    f"{self.where}: what {entry.cls.__name__} learned must stand in attributes "
                    f"of their own, got {name!r}, which its class has already. Rename it."
                )
            value = getattr(thing, name)
            said[name] = self.take(value, entry, (*path, name), finite=entry.finite)
        return said

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
        if isinstance(value, np.random.Generator):
            return self.generator(value, path)
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
        return value

    def generator(self, value: np.random.Generator, path: _Path) -> dict[str, Any]:
        """The state of a random generator."""
        try:
            return {MARK: "generator", "state": said(value)}
        except ValueError as wrong:
            raise CheckpointError(
                f"{self.where}: `{'.'.join(path)}` must be one of NumPy's own random generators, "
                f"got another: {wrong}. Use numpy.random.default_rng."
            ) from wrong

    def unknown(self, thing: object, path: _Path) -> CheckpointError:
        """The error for an object whose class cannot be loaded again, or not there."""
        place = f"`{'.'.join(path)}`" if path else "what is saved"
        return CheckpointError(
            f"{self.where}: {place} must be a learner, Pipeline, feature or memory of onepass, in "
            f"its right place, got {type(thing).__name__}. Only classes that onepass lists can be "
            "loaded again."
        )


class Builder:
    """Builds an object from plain values and arrays, believing none of them.

    Parameters
    ----------
    where : str
        The file, for messages.
    replacements : dict of str to Any
        Functions and networks that stood for arguments.
    """

    def __init__(self, where: str, replacements: Mapping[str, object]) -> None:
        self.where = where
        self.known = entries()
        self.replacements = replacements
        self.used: set[str] = set()

    def root(self, said: Any) -> Any:
        """The whole; every replacement must have been of use."""
        if self.mark(said, ()) is None:
            raise damaged(self.where, "it holds no learner")
        thing = self.thing(said, None, (), finite=False)
        for name in self.replacements.keys() - self.used:
            raise CheckpointError(
                f"{self.where}: replacements must stand for arguments that were functions, got "
                f"{name!r}, which was none. Leave it out."
            )
        return thing

    def thing(self, said: dict[str, Any], owner: Entry | None, path: _Path, *, finite: bool) -> Any:
        """An object of a known class that may stand where it stands."""
        said = former.renamed(said, MARK)
        entry = self.known.get(said[MARK])
        if entry is None or not can_hold(owner, entry):
            raise damaged(self.where, f"it names {said[MARK][:40]!r} as {_place(path)}")
        arguments, attributes = {}, {}
        for name, value in said.items():
            place = (*path, name)
            if name in entry.arguments or name == entry.rest:
                of_state = finite and not entry.estimates
                arguments[name] = self.argument(value, entry, place, finite=of_state)
            elif entry.estimates and can_learn(entry.cls, name):
                attributes[name] = self.give(value, entry, place, finite=entry.finite)
            elif name != MARK:
                raise damaged(self.where, f"{said[MARK]} has no {name[:40]!r}")
        thing = self.called(entry, arguments, path)
        for name, value in attributes.items():
            if name in _COUNTS and not (type(value) is int and value >= 0):
                raise damaged(self.where, f"{_place((*path, name))} is no count")
            setattr(thing, name, value)
        if not getattr(thing, "_sound", True):
            raise damaged(self.where, f"{_place(path)} has not learned what a {said[MARK]} learns")
        if unlike := getattr(thing, "_unlike", ""):
            raise CheckpointError(f"{self.where}: {_place(path)}: {unlike}")
        return thing

    def mark(self, said: object, path: _Path) -> str | None:
        """What a dict stands for; None where it is plain, or no dict."""
        if type(said) is not dict or MARK not in said:
            return None
        if type(said[MARK]) is not str:
            raise damaged(self.where, f"{_place(path)} does not say what it is")
        return str(said[MARK])

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
            if mark == "generator":
                return self.generator(value, path)
            if mark not in {None, "dict"}:
                return self.thing(value, owner, path, finite=finite)
            items = value if mark is None else value.get("items")
            if type(items) is not dict:
                raise damaged(self.where, f"{_place(path)} is no dict")
            return {k: self.give(v, owner, (*path, k), finite=finite) for k, v in items.items()}
        if finite and _has_nan(value):
            raise damaged(self.where, f"{_place(path)} holds nan, as no learner does")
        return value

    def generator(self, value: dict[str, Any], path: _Path) -> np.random.Generator:
        """The random generator in the state that was saved."""
        try:
            return heard(value["state"])
        except (KeyError, ValueError) as wrong:
            raise damaged(self.where, f"{_place(path)} is no random generator") from wrong


def _place(path: _Path) -> str:
    return f"`{'.'.join(path)}`" if path else "the whole"


def _name(function: object) -> str:
    """A function's name, or that of its class where it has none, for messages."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _has_nan(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    return isinstance(value, (float, np.floating)) and math.isnan(value)
