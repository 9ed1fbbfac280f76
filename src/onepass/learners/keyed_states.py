"""Storage of many small learners by key.

A learner is an object, or a row of numbers in a *chunk*, an array of several such rows. Neither is
modified in place: a change replaces the object, or the chunk by a copy, so that a frozen copy costs
only a list of the chunks. In files, all keys are one array, and all rows another one.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onepass.serialization.codec import register_value
from onepass.serialization.state import nbytes
from onepass.types import Array, Floats
from onepass.validation.keys import Key

_FIRST = np.zeros(1, dtype=np.int64)
_CHUNK = 1 << 13  # numbers in a chunk: copying it is fast, and few chunks are needed


class KeyedStates:
    """Learners by key.

    Parameters
    ----------
    width : int
        The number of numbers of a packed learner.

    Attributes
    ----------
    entries : dict
        For each key a learner, or the slot of its numbers.
    last : OrderedDict or None
        For each key the number of the last row that it learned, from the least recent one; only if
        keys may be removed.
    """

    def __init__(self, width: int = 0) -> None:
        self.width = width
        self.entries: dict[Key, Any] = {}
        self.last: OrderedDict[Key, int] | None = None
        self._chunks: list[Floats] = []
        self._free: list[int] = []
        self._shared = False

    @property
    def nbytes(self) -> int:
        """Size of all learners in bytes."""
        objects = [entry for entry in self.entries.values() if not isinstance(entry, int)]
        return sum(chunk.nbytes for chunk in self._chunks) + nbytes(objects)

    def __copy__(self) -> KeyedStates:
        self._shared = True
        twin = object.__new__(KeyedStates)
        twin.__dict__ = self.__dict__ | {"_chunks": list(self._chunks), "_free": list(self._free)}
        twin.last = None if self.last is None else self.last.copy()
        return twin

    def frozen(self) -> KeyedStates:
        """A copy for prediction."""
        last, self.last = self.last, None
        try:
            return self.__copy__()
        finally:
            self.last = last

    def read(self, slots: Sequence[int] | Array) -> Floats:
        """The numbers of packed learners, (k, width)."""
        values = np.empty((len(slots), self.width))
        for chunk, at, offsets in self._parts(slots):
            values[at] = self._chunks[chunk][offsets]
        return values

    def update(
        self,
        removed: Sequence[Key],
        learners: Mapping[Key, Any],
        slots: Sequence[int] | Array = (),
        values: Any = (),
    ) -> None:
        """Replace learners.

        Parameters
        ----------
        removed : sequence of keys
            These are removed first.
        learners : mapping of keys to learners
            New or changed learners; None for those that are packed. New keys are appended in this
            order.
        slots : sequence of int
            The slots of learners that remain packed.
        values : ndarray of shape (k, width)
            The numbers of ``slots``, then of the packed ``learners``, in order.
        """
        entries, slots = self.entries, list(slots)
        if self._shared and (removed or learners):
            entries, self._shared = dict(entries), False
        for key in removed:
            self._release(entries.pop(key))
        for key, learner in learners.items():
            self._release(entries.get(key))
            entries[key] = self._slot() if learner is None else learner
            if learner is None:
                slots.append(entries[key])
        chunks = self._chunks
        for chunk, at, offsets in self._parts(slots):
            chunks[chunk] = chunks[chunk].copy()
            chunks[chunk][offsets] = values[at]
        self.entries = entries

    def restore(self, before: Mapping[Key, int | None]) -> None:
        """Restore the last rows of some keys, None for keys that had none; and their order."""
        last: dict[Key, int | None] = {**(self.last or {}), **before}
        pairs = [(key, row) for key, row in last.items() if row is not None]
        self.last = OrderedDict(sorted(pairs, key=lambda pair: pair[1]))

    def _release(self, entry: Any) -> None:
        if isinstance(entry, int):
            self._free.append(entry)

    def _slot(self) -> int:
        """A free slot."""
        if not self._free:
            end = self._per_chunk * (len(self._chunks) + 1)
            self._free = list(range(end - 1, end - 1 - self._per_chunk, -1))
            self._chunks.append(np.zeros((self._per_chunk, self.width)))
        return self._free.pop()

    @property
    def _per_chunk(self) -> int:
        return max(1, _CHUNK // max(1, self.width))

    def _parts(self, slots: Any) -> Iterator[tuple[int, Array, Array]]:
        """Each chunk with the places of its slots in ``slots``, and their rows in the chunk."""
        if len(slots) < 2:  # the case of a single row
            for slot in slots:
                yield slot // self._per_chunk, _FIRST, np.array([slot % self._per_chunk])
            return
        chunks, offsets = np.divmod(np.array(slots, dtype=np.int64), self._per_chunk)
        order = np.argsort(chunks, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(chunks[order])) + 1):
            yield int(chunks[at[0]]), at, offsets[at]


def _encoded(states: KeyedStates) -> dict[str, Any]:
    """The content of a file: the keys as JSON text."""
    keys = list(states.entries if states.last is None else states.last)
    entries = [states.entries[key] for key in keys]
    packed = np.array([isinstance(entry, int) for entry in entries], dtype=bool)
    last = None if states.last is None else np.array(list(states.last.values()), dtype=np.int64)
    return {
        "keys": np.frombuffer(json.dumps(keys).encode(), dtype=np.uint8).copy(),
        "last": last,
        "packed": packed,
        "values": states.read([entry for entry in entries if isinstance(entry, int)]),
        "learners": [entry for entry in entries if not isinstance(entry, int)],
    }


def _decoded(
    keys: Array, last: Array | None, packed: Array, values: Floats, learners: Any, **_: object
) -> KeyedStates:
    """The states with the content of a file."""
    names, states = json.loads(keys.tobytes()), KeyedStates(values.shape[1])
    plain = all(type(name) in {str, int} for name in names) and values.dtype == np.float64
    if not plain or len({*names}) < len(names) or np.count_nonzero(packed) != len(values):
        raise ValueError("the keys and their learners do not match")
    others = [name for name, slot in zip(names, packed, strict=True) if not slot]
    found = dict(zip(others, learners, strict=True))
    states.update([], dict.fromkeys(names) | found, [], values)
    if last is not None:
        states.last = OrderedDict(zip(names, last.tolist(), strict=True))
    return states


register_value("keyed", KeyedStates, _encoded, _decoded)
