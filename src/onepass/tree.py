"""Tree: plain values and arrays as JSON and named arrays, and back, exactly.

A tree is None, a truth value, a whole number of any size, a float, text, or an array, or a list,
tuple or dict (with text for keys) of trees. What JSON cannot say is an object with the key ``"$"``:

================================================================ ==================================
``{"$": "float", "value": "nan"}``                               nan, inf, -inf
``{"$": "int", "value": "0x1f…"}``                               a whole number beyond 64 bits
``{"$": "tuple", "items": […]}``                                 a tuple
``{"$": "dict", "items": {…}}``                                  a dict that has the key ``"$"``
``{"$": "array", "name": "coef_"}``                              the array of that name
``{…, "dtype": "datetime64[us]"}``                               dates, kept as int64
``{…, "dtype": "<U5"}``                                          text of fixed width, as uint32
``{…, "axes": [1, 0]}``                                          its axes in order of their strides
``{"$": "scalar", "of": {"$": "array", …}}``                     one date
``{"$": "objects", "shape": [2], "items": ["a", null]}``         an array of Python's values
================================================================ ==================================

The order of the axes in memory is kept, because BLAS rounds differently for rows and columns: a
learner that goes on after loading must go on to the last bit.
An array's name is its place in the tree, such as ``memory_.Q``.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from onepass.errors import Array, CheckpointError

__all__ = ["DEPTH", "damaged", "join", "split"]

DEPTH = 100
"""How deep a tree may be; deeper is a circle, or an attack."""

_DATE = re.compile(r"datetime64(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_TEXT = re.compile(r"<U([1-9]\d{0,8})")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PLAIN = (type(None), bool, int, float, str)
_LARGEST_CODE = 0x10FFFF  # of Unicode


def split(tree: Any, where: str) -> tuple[Any, dict[str, Array]]:
    """A tree as what JSON can say, and its arrays by name.

    Parameters
    ----------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        NumPy's scalars become Python's.
    where : str
        The file, for messages.

    Returns
    -------
    said : None, bool, int, float, str, list or dict
        Floats in it are finite.
    arrays : dict of str to ndarray
        Contiguous, little-endian, of numbers or truth values.

    Raises
    ------
    CheckpointError
        If the tree holds anything else, or is deeper than ``DEPTH``.

    Examples
    --------
    >>> said, arrays = split({"scale": (2, math.inf), "w": np.ones(3)}, "m.onepass")
    >>> said["scale"]
    {'$': 'tuple', 'items': [2, {'$': 'float', 'value': 'inf'}]}
    >>> float(join(said, arrays, "m.onepass")["w"].sum())
    3.0
    """
    splitter = _Splitter(where)
    return splitter.say(tree, ()), splitter.arrays


def join(said: Any, arrays: Mapping[str, Array], where: str) -> Any:
    """The tree that ``split`` took apart.

    Raises
    ------
    CheckpointError
        If this is not something that ``split`` gives. Nothing is allocated beyond the size of
        what is passed.
    """
    joiner = _Joiner(arrays, where)
    tree = joiner.hear(said, ())
    for name in arrays.keys() - joiner.used:
        raise damaged(where, f"nothing refers to the array {name!r}")
    return tree


def damaged(where: str, found: str) -> CheckpointError:
    """The error for a file that is not as it was written."""
    return CheckpointError(
        f"{where}: must be a file as onepass wrote it, got a damaged one: {found}. "
        "Load another copy, or save it again."
    )


class _Splitter:
    def __init__(self, where: str) -> None:
        self.where = where
        self.arrays: dict[str, Array] = {}

    def say(self, value: Any, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise self.refusal(path[:3], f"more than {DEPTH} levels, perhaps a circle")
        if isinstance(value, np.datetime64):
            return {"$": "scalar", "of": self.array(np.asarray(value), path)}
        if isinstance(value, np.generic):
            value = value.item()
        kind = type(value)
        if kind in _PLAIN:
            return _plain(value)
        if kind is list:
            return [self.say(part, (*path, str(i))) for i, part in enumerate(value)]
        if kind is tuple:
            return {"$": "tuple", "items": self.say(list(value), path)}
        if kind is dict:
            return self.mapping(value, path)
        if kind is np.ndarray:
            return self.objects(value, path) if value.dtype.kind == "O" else self.array(value, path)
        raise self.refusal(path, kind.__name__)

    def mapping(self, value: dict[Any, Any], path: tuple[str, ...]) -> dict[str, Any]:
        for key in (key for key in value if type(key) is not str):
            raise self.refusal(path, f"a dict with the key {key!r}")
        items = {key: self.say(part, (*path, key)) for key, part in value.items()}
        return {"$": "dict", "items": items} if "$" in value else items

    def array(self, array: Array, path: tuple[str, ...]) -> dict[str, Any]:
        tag: dict[str, Any] = {"$": "array", "name": self.name(path)}
        kind = array.dtype.kind
        if kind not in "biufMU" or (kind == "f" and array.dtype.itemsize > 8):
            raise self.refusal(path, f"an array of {array.dtype}")
        axes = _axes(array)
        if axes != list(range(array.ndim)):
            tag["axes"] = axes
            array = array.transpose(axes)
        array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if kind == "M":
            tag["dtype"] = str(array.dtype)
            array = array.view(np.int64)
        elif kind == "U":
            width = array.dtype.itemsize // 4
            tag["dtype"] = f"<U{width}"
            array = array.reshape(-1).view(np.uint32).reshape(*array.shape, width)
        self.arrays[tag["name"]] = array
        return tag

    def objects(self, array: Array, path: tuple[str, ...]) -> dict[str, Any]:
        values = [v.item() if isinstance(v, np.generic) else v for v in array.ravel().tolist()]
        for odd in (type(v).__name__ for v in values if type(v) not in _PLAIN):
            raise self.refusal(path, f"an array with a {odd} in it")
        return {"$": "objects", "shape": list(array.shape), "items": [_plain(v) for v in values]}

    def name(self, path: tuple[str, ...]) -> str:
        """The place in the tree as a name; a prime where two places read the same."""
        name = ".".join(path).encode("utf-8", "backslashreplace").decode("utf-8")
        while name in self.arrays or name in {"", "__metadata__"}:
            name += "'"
        return name

    def refusal(self, path: tuple[str, ...], came: str) -> CheckpointError:
        place = f"`{'.'.join(path)}`" if path else "what is saved"
        return CheckpointError(
            f"{self.where}: {place} must be None, a truth value, a number, text, an array of "
            "numbers, text or dates, or a list, tuple or dict (with text for keys) of these, "
            f"got {came}. Convert it, or leave it out."
        )


class _Joiner:
    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        self.arrays = arrays
        self.where = where
        self.used: set[str] = set()

    def hear(self, said: Any, path: tuple[str, ...]) -> Any:
        if len(path) > DEPTH:
            raise damaged(self.where, f"more than {DEPTH} levels")
        if type(said) is list:
            return [self.hear(part, (*path, str(i))) for i, part in enumerate(said)]
        if type(said) is not dict:
            return said
        if "$" not in said:
            return {key: self.hear(part, (*path, key)) for key, part in said.items()}
        try:
            return self.tagged(said, path)
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as wrong:
            raise damaged(self.where, f"`{'.'.join(path)}` is no value it knows") from wrong

    def tagged(self, said: dict[str, Any], path: tuple[str, ...]) -> Any:
        """A value that JSON cannot say; whatever it raises means that it is none."""
        fields = {key: part for key, part in said.items() if key != "$"}
        match said["$"]:
            case "float":
                value: Any = _NOT_FINITE[_only(fields, "value")]
            case "int":
                value = int(_only(fields, "value"), 16)
            case "tuple":
                value = tuple(self.hear(_of(list, _only(fields, "items")), path))
            case "dict":
                items = _of(dict, _only(fields, "items")).items()
                value = {key: self.hear(part, (*path, key)) for key, part in items}
            case "array":
                value = self.array(**fields)
            case "scalar":
                value = self.array(**_untagged(_only(fields, "of"), "array"))[()]
            case "objects":
                value = self.objects(path, **fields)
            case unknown:
                raise KeyError(unknown)
        return value

    def array(self, *, name: str, dtype: str | None = None, axes: Any = None) -> Array:
        if name in self.used:
            raise ValueError(name)
        array = self.arrays[name]
        self.used.add(name)
        if array.dtype == np.bool_ and array.size and int(array.view(np.uint8).max()) > 1:
            raise ValueError(name)
        if dtype is not None:
            array = _retyped(array, dtype)
        if axes is None:
            return array
        if sorted(_of(int, a) for a in _of(list, axes)) != list(range(array.ndim)):
            raise ValueError(axes)
        return array.transpose(np.argsort(axes))

    def objects(self, path: tuple[str, ...], *, shape: list[int], items: list[Any]) -> Array:
        values = [self.hear(item, path) for item in items]
        if any(type(v) not in _PLAIN for v in values):
            raise TypeError(items)
        if any(_of(int, k) < 0 for k in _of(list, shape)):
            raise ValueError(shape)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)


def _plain(value: Any) -> Any:
    """One plain value as JSON can say it."""
    if type(value) is float and not math.isfinite(value):
        return {"$": "float", "value": repr(value)}
    if type(value) is int and not -(2**63) <= value < 2**64:
        return {"$": "int", "value": hex(value)}
    return value


def _axes(array: Array) -> list[int]:
    """The axes from the one with the longest stride to the one with the shortest."""
    if array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))


def _retyped(array: Array, dtype: str) -> Array:
    """Whole numbers as the dates or the text that they stand for."""
    text = _TEXT.fullmatch(dtype)
    if text is None:
        if not _DATE.fullmatch(dtype) or array.dtype != np.int64:
            raise ValueError(dtype)
        return array.view(dtype)
    width = int(text[1])
    if array.dtype != np.uint32 or array.ndim == 0 or array.shape[-1] != width:
        raise ValueError(dtype)
    if array.size and int(array.max()) > _LARGEST_CODE:
        raise ValueError(dtype)
    return array.reshape(-1).view(f"<U{width}").reshape(array.shape[:-1])


def _only(fields: dict[str, Any], name: str) -> Any:
    """The one field that there is, which must have this name."""
    if set(fields) != {name}:
        raise KeyError(name)
    return fields[name]


def _of(kind: type, value: Any) -> Any:
    """A value, which must be of exactly this type."""
    if type(value) is not kind:
        raise TypeError(kind)
    return value


def _untagged(said: dict[str, Any], tag: str) -> dict[str, Any]:
    """The fields of an object with this tag."""
    fields = dict(said)
    if fields.pop("$") != tag:
        raise ValueError(said)
    return fields
