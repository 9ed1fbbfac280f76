"""Checkpoints of split weights: a directory with one safetensors file per process, and an index.

::

    index.json                      {"format": 1, "p": p, "parts": [{"file": …, "slices": […]}, …]}
    part-0-of-3-5f0c23d1.onepass    {"state": {…}, "columns": [array, …]}

Each file is one of :mod:`onepass.serialization.archive`. It contains the weights and columns of the
memory of one process, arrays of shape (…, p_k); ``slices`` are their positions in the vector of all
weights. The first file also contains the rest of the state. The index is written last: until then
an earlier checkpoint in the directory remains complete, and afterwards its files are removed.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onepass.errors import CheckpointError
from onepass.serialization import archive
from onepass.serialization.archive import damaged
from onepass.serialization.atomic import atomic_write
from onepass.serialization.codec import MARK
from onepass.types import Array

__all__ = ["Parts", "columns", "write"]


_KIND = "network part"
_INDEX = "index.json"
_FORMAT = 1


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
        A directory, which is created.
    encode : callable
        Returns the encoded learner, and the weights of this process.
    split : ProcessSplit

    Raises
    ------
    CheckpointError
        In all processes, if one of them cannot write its part; an earlier checkpoint is unchanged.
    """
    directory = Path(path)
    token = split.gathered(secrets.token_hex(4))[0]
    file = directory / f"part-{split.rank}-of-{len(split.gathered(None))}-{token}.onepass"
    error = None
    try:
        state, weights = encode()
        arrays = [weights]
        for node in columns(state["learned"]):
            arrays.append(node["of"])
            node["of"] = node["of"][..., :0]
        directory.mkdir(parents=True, exist_ok=True)
        tree = {"state": None if split.rank else state, "columns": arrays}
        archive.write(file, tree, kind=_KIND)
    except (CheckpointError, OSError) as problem:
        error = str(problem)
    slices = [[each.start, each.stop] for each in split.slices]
    found = split.gathered((file.name, slices, error))
    error = next((each[2] for each in found if each[2]), None)
    if error is not None:
        file.unlink(missing_ok=True)
    elif not split.rank:
        parts = [{"file": name, "slices": places} for name, places, _ in found]
        text = json.dumps({"format": _FORMAT, "p": split.p, "parts": parts})
        try:
            with atomic_write(directory / _INDEX) as temporary:
                temporary.write_text(text, encoding="utf-8")
            for each in set(directory.glob("part-*")) - {directory / name for name, *_ in found}:
                each.unlink()
        except OSError as problem:
            error = str(problem)
    error = split.gathered(error)[0]
    if error is not None:
        file.unlink(missing_ok=True)
        raise CheckpointError(
            f"{os.fspath(path)}: every process must write its part, but one failed: {error}"
        )


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
        self._where = os.fspath(path)
        try:
            index = json.loads(Path(path, _INDEX).read_bytes())
            if index["format"] > _FORMAT:
                raise CheckpointError(
                    f"{self._where}: must have format version {_FORMAT} or lower, got "
                    f"{index['format']}. Upgrade onepass."
                )
            self.p = int(index["p"])
            self._parts = [
                (Path(path, Path(each["file"]).name), [(int(a), int(b)) for a, b in each["slices"]])
                for each in index["parts"]
            ]
        except OSError as error:
            raise CheckpointError(
                f"{self._where}: must be a directory with a checkpoint, got: {error}. Check the "
                "path; a checkpoint is incomplete until all processes have written their parts."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(self._where, f"its index is invalid: {error}") from error
        ends = sorted(each for _, slices in self._parts for each in slices if each[0] < each[1])
        if [0, *(b for _, b in ends)] != [*(a for a, _ in ends), self.p]:
            raise damaged(self._where, "its index does not contain each weight once")

    def state(self) -> dict[str, Any]:
        """Return the encoded learner with all weights, but without the columns of its memory."""
        state = self._read(self._parts[0][0])["state"]
        weights = self.columns([(0, self.p)])[0]
        try:
            nodes = [state["module"]["weights"][name] for name in state["names"]]
            start = 0
            for node in nodes:
                shape = node["of"].shape[1:]
                end = start + int(np.prod(shape))
                node["of"], start = weights[start:end].reshape(shape), end
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise damaged(self._where, f"the weights do not match: {error}") from error
        return dict(state)

    def columns(self, wanted: Sequence[tuple[int, int]]) -> list[Array]:
        """Return the columns of each long array at these weights, read file by file.

        Parameters
        ----------
        wanted : sequence of (int, int)
            First and last position, exclusive, of each range of weights.
        """
        found: list[Array] = []
        size = sum(d - c for c, d in wanted)
        for file, slices in self._parts:
            pairs = list(_overlaps(slices, wanted))
            if not pairs and found:
                continue
            arrays, width = self._read(file)["columns"], sum(b - a for a, b in slices)
            found = found or [np.zeros((*each.shape[:-1], size), each.dtype) for each in arrays]
            if [(*e.shape[:-1], width) for e in found] != [e.shape for e in arrays]:
                raise damaged(str(file), "its arrays do not match the index")
            for source, to in pairs:
                for whole, part in zip(found, arrays, strict=True):
                    whole[..., to] = part[..., source]
        return found

    def _read(self, file: Path) -> dict[str, Any]:
        tree = archive.read(file, kind=_KIND)
        arrays = tree.get("columns") if isinstance(tree, dict) else None
        if not isinstance(arrays, list) or not all(isinstance(e, np.ndarray) for e in arrays):
            raise damaged(str(file), "it is not a part of a network")
        return dict(tree)


def _overlaps(
    slices: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]
) -> Iterator[tuple[slice, slice]]:
    """Yield where weights of a part are in its arrays, and in those of the wanted weights."""
    at = 0
    for a, b in slices:
        to = 0
        for c, d in wanted:
            first, last = max(a, c), min(b, d)
            if first < last:
                yield slice(at + first - a, at + last - a), slice(to + first - c, to + last - c)
            to += d - c
        at += b - a
