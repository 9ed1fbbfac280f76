"""Checkpoints of split weights: a directory with one safetensors file per process, and an index.

::

    index.onepass                   {"p": p, "state": {…}, "parts": [(file, [(first, end), …]), …]}
    part-0-of-3-5f0c23d1.onepass    {"weights": [array], "columns": [array, …]}

Each file is one of :mod:`onepass.serialization.archive`. A part contains the weights of one process
and their columns of the memory, arrays of shape (…, p_k); the index contains their positions in the
vector of all weights, and the rest of the state. The index is written last: until then an earlier
checkpoint in the directory remains complete, and afterwards its files are removed.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from onepass.errors import CheckpointError
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK
from onepass.types import Array

_INDEX = "index.onepass"
_KIND, _PART = "network parts", "network part"


def columns(learned: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the encoded tensors in the state of a learner whose last axis is that of the weights.

    Parameters
    ----------
    learned : dict
        The encoded state.
    """
    pending = [learned.get("memory")]
    while pending:
        node = pending.pop()
        if isinstance(node, dict) and node.get(MARK) == "OrthonormalBasis":
            yield node["rows"]
        elif isinstance(node, dict):
            pending.extend(node.values())
    if learned.get("start") is not None:
        yield learned["start"]


def write(
    path: str | os.PathLike[str], encode: Callable[[], tuple[dict[str, Any], Array]], split: Any
) -> None:
    """Write the checkpoint of all processes; all of them must call this.

    Parameters
    ----------
    path : path-like
        A directory that all processes share; it is created.
    encode : callable
        Returns the encoded learner, and the weights of this process.
    split : ProcessSplit

    Raises
    ------
    CheckpointError
        In all processes, if one of them cannot write its part; an earlier checkpoint is unchanged.
    """
    directory = Path(path)
    tokens = split.gathered(secrets.token_hex(4))
    file = directory / f"part-{split.rank}-of-{len(tokens)}-{tokens[0]}.onepass"
    index: dict[str, Any] = {"p": split.p}

    def write_part() -> tuple[str, list[tuple[int, int]]]:
        index["state"], weights = encode()
        nodes = list(columns(index["state"]["learned"]))
        part = {"weights": [weights], "columns": [node["of"] for node in nodes]}
        for node in nodes:
            node["of"] = node["of"][..., :0]
        directory.mkdir(parents=True, exist_ok=True)
        archive.write(file, part, kind=_PART)
        return file.name, split.slices

    def write_index() -> None:
        if split.rank:
            return
        names = {name for name, _ in index["parts"]}
        for name in names:
            (directory / name).stat()  # raises an error if the processes do not share it
        archive.write(directory / _INDEX, index, kind=_KIND)
        with suppress(OSError):  # the next call tries again
            for old in {each.name for each in directory.glob("part-*")} - names:
                (directory / old).unlink()

    try:
        index["parts"] = _together(write_part, split, path)
    except CheckpointError:
        file.unlink(missing_ok=True)
        raise
    _together(write_index, split, path)


def _together(work: Callable[[], Any], split: Any, path: str | os.PathLike[str]) -> list[Any]:
    """Call a function; return the results of all processes, or raise in all if one fails."""
    try:
        found: Any = (work(), None)
    except (CheckpointError, OSError) as problem:
        found = None, str(problem)
    results, errors = zip(*split.gathered(found), strict=True)
    for error in filter(None, errors):
        raise CheckpointError(
            f"every process must write its part into this directory, but one failed: {error}",
            os.fspath(path),
        )
    return list(results)


class Parts:
    """A checkpoint of several processes.

    Parameters
    ----------
    path : path-like
        Its directory.

    Raises
    ------
    CheckpointError
        If a file is missing, damaged or too new.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._directory = Path(path)
        self._index: Any = archive.read(self._directory / _INDEX, kind=_KIND)

    def state(self) -> Any:
        """Return the encoded learner with all weights, but without the columns of its memory."""
        try:
            state, p = self._index["state"], self._index["p"]
            (weights,) = self.read("weights", [(0, p)])
            start = 0
            for name in state["names"]:
                node = state["module"]["weights"][name]
                shape = node["of"].shape[1:]
                end = start + math.prod(shape)
                node["of"], start = weights[start:end].reshape(shape), end
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise damaged(str(self._directory), f"the weights do not match: {error}") from error
        return state

    def read(self, kind: str, wanted: Sequence[tuple[int, int]]) -> list[Array]:
        """Return arrays at some weights, read file by file.

        Parameters
        ----------
        kind : {"weights", "columns"}
        wanted : sequence of (int, int)
            First and last position, exclusive, of each range of weights.
        """
        found: list[Array] = []
        size = sum(d - c for c, d in wanted)
        for name, slices in self._index["parts"]:
            pairs = [
                (slice(at + first - a, at + last - a), slice(to + first - c, to + last - c))
                for (a, b), at in _placed(slices)
                for (c, d), to in _placed(wanted)
                if (first := max(a, c)) < (last := min(b, d))
            ]
            if found and not pairs:
                continue
            arrays: Any = archive.read(self._directory / Path(name).name, kind=_PART)[kind]
            found = found or [np.zeros((*each.shape[:-1], size), each.dtype) for each in arrays]
            for source, to in pairs:
                for whole, part in zip(found, arrays, strict=True):
                    whole[..., to] = part[..., source]
        return found


def _placed(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """Return ranges of weights, and their positions in an array that contains only these."""
    return zip(ranges, accumulate((b - a for a, b in ranges), initial=0), strict=False)
