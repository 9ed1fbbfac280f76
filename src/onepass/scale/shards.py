"""Shards: files that are learned one by one, and their summaries.

A summary is one file with the model that has learned only the rows of one shard, or with the error
that the shard raised. It names the shard, its version (size, time of change, entity tag) and the
digest of the task: model, target, options and column types. A summary is used again only if all of
these are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

from onepass.errors import (
    CheckpointError,
    ColumnError,
    EmptySourceError,
    OnepassError,
    ParameterError,
    SourceError,
    join_names,
)
from onepass.serialization import archive
from onepass.serialization.codec import from_state, state_dict
from onepass.stream.formats import FoundFile
from onepass.stream.read import read
from onepass.stream.sources import check_binary
from onepass.validation.rows import Rows

_WHERE = "op.scale.fit"
_KIND = "shard"
SUMMARIES = "shard-*.onepass"
"""Pattern of the files of summaries."""


@dataclass(frozen=True)
class Shard:
    """One file to learn.

    Parameters
    ----------
    index : int
        Its position in the order of the rows.
    found : FoundFile
        The file.
    """

    index: int
    found: FoundFile

    def __str__(self) -> str:
        return str(self.found.file)


@dataclass(frozen=True)
class Summary:
    """What was learned from a shard.

    Parameters
    ----------
    model : learner or None
        None if the shard has no rows or raised an error.
    rows, bad_rows : int
        Number of rows learned, and of invalid rows skipped.
    error : str
        The error that the shard raised; empty if it was learned.
    fatal : bool
        Whether the error is one of the parameters, so that the shard must not be left out.
    """

    model: Any
    rows: int
    bad_rows: int
    error: str
    fatal: bool = False


@dataclass(frozen=True)
class Task:
    """What is the same for all shards; called with a shard, it learns it.

    Parameters
    ----------
    state : dict
        The encoded model before it learned a row.
    options : dict
        Options of ``op.stream.read``, with the types of the columns.
    features : list of str or None
        The features of the first shard; None if files of its format may lack columns.
    folder : str
        The folder of the summaries.
    binary : bool
        Whether each target must be 0 or 1.
    """

    state: dict[str, Any]
    options: Mapping[str, Any]
    features: Sequence[str] | None
    folder: str
    binary: bool

    @cached_property
    def digest(self) -> str:
        """Digest of all that determines the summary of a shard, besides the shard."""
        tree = [self.state, dict(self.options), self.features, self.binary]
        return sha256(archive.dumps(tree, _WHERE)).hexdigest()

    def model(self) -> Any:
        """Return the model before it learned a row."""
        return from_state(self.state, f"{_WHERE}: the model")

    def __call__(self, shard: Shard) -> None:
        """Learn a shard, and write its summary.

        BLAS uses one thread: several processes share the cores, and the number of threads would
        change the last bits.
        """
        tree: dict[str, Any] = {"task": self.digest, "shard": str(shard), "error": ""}
        with threadpool_limits(1):
            try:
                tree["version"] = shard.found.file.version
                tree |= self._learn(shard)
                if shard.found.file.version != tree["version"]:
                    tree["error"] = "the file changed while it was read"
            except EmptySourceError:
                tree |= {"model": None, "rows": 0, "bad_rows": 0}
            except OnepassError as error:
                tree |= {"error": str(error), "fatal": isinstance(error, ParameterError)}
        archive.write(self._path(shard), tree, kind=_KIND)

    def summary(self, shard: Shard) -> Summary | None:
        """Return the stored summary of the present version of a shard; None if there is none.

        Raises
        ------
        ParameterError
            If the summary is that of another model, target or option.
        """
        path = self._path(shard)
        try:
            tree = archive.read(path, kind=_KIND)
        except CheckpointError:  # missing or damaged
            return None
        if tree["task"] != self.digest:
            raise ParameterError(
                "`workdir` must be empty or contain summaries of the same model, "
                f"target and options, got {path} of others. Use another folder, or pass "
                "restart=True (--restart) to discard them.",
                _WHERE,
            )
        if error := tree["error"]:
            return Summary(None, 0, 0, error, tree.get("fatal", False))
        if (tree["shard"], tree["version"]) != (str(shard), shard.found.file.version):
            return None
        model = from_state(tree["model"], str(path)) if tree["rows"] else None
        return Summary(model, tree["rows"], tree["bad_rows"], "")

    def _path(self, shard: Shard) -> Path:
        return Path(self.folder, SUMMARIES.replace("*", f"{shard.index:06d}"))

    def _learn(self, shard: Shard) -> dict[str, Any]:
        """Return the encoded model after the rows of a shard, and their number."""
        model, rows = self.model(), 0
        stream = read(shard.found, **self.options)
        for block in stream:
            if self.binary:
                check_binary(block)
            if self.features is not None and not rows:
                self._check_features(block.X.names)
            try:
                learn(model, block)
            except OnepassError as error:
                begin = block.located(0)
                raise SourceError(f"in the block that begins at {begin}: {error}") from error
            rows += len(block)
        state = state_dict(model, _WHERE) if rows else None
        return {"model": state, "rows": rows, "bad_rows": stream.bad_rows}

    def _check_features(self, names: Sequence[str]) -> None:
        """Raise if a shard has other features than the first one."""
        expected, found = set(self.features or ()), set(names)
        if expected != found:
            differences = [
                f"{word} {join_names(sorted(some))}"
                for word, some in (("no", expected - found), ("also", found - expected))
                if some
            ]
            raise ColumnError(
                f"it must have the columns of the first shard, got {' and '.join(differences)}"
            )


def learn(model: Any, rows: Rows) -> None:
    """Learn a block, with its times if the model uses them."""
    time = {"time": rows.time} if get_tags(model).uses_time else {}
    model.partial_fit(rows.X, rows.y, **time)
