"""Checkpoint: a tree of plain values and arrays in one safetensors file.

Any safetensors reader can open the file and sees the arrays by their place in the tree; the rest is
told in :mod:`onepass.sealed`.
"""

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save_file

from onepass.errors import CheckpointError
from onepass.replacing import replacing
from onepass.sealed import Contents, divided, place, readable, unpacked

__all__ = ["contents", "read", "write"]


def write(path: str | os.PathLike[str], tree: Any, *, kind: str = "tree") -> None:
    """Write a tree to a file, in place of what was there, whole or not at all.

    Parameters
    ----------
    path : path-like
        The file; its directory must exist.
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        What :func:`onepass.tree.split` takes.
    kind : str, default "tree"
        What the tree means, to be asked for again when it is read.

    Raises
    ------
    CheckpointError
        If the tree holds anything else, or the file cannot be written; then it is as before.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write(f"{directory}/a.onepass", {"w": np.arange(4.0), "rows": 4})
    ...     tree = read(f"{directory}/a.onepass")
    >>> float(tree["w"].sum()) + tree["rows"]
    10.0
    """
    where = os.fspath(path)
    metadata, arrays = divided(tree, kind, where)
    try:
        with replacing(path) as temporary:
            save_file(arrays, temporary, metadata=metadata)
            _seal(temporary, where)
    except (OSError, SafetensorError) as failed:
        raise CheckpointError(
            f"{where}: must be a file that can be written, got: {failed}. What was there is "
            "unchanged; choose another place, or make room."
        ) from failed


def read(path: str | os.PathLike[str], *, kind: str | None = None) -> Any:
    """The tree that was written to a file.

    Parameters
    ----------
    path : path-like
        The file.
    kind : str, optional
        What the tree must mean; anything, if not given.

    Returns
    -------
    tree : None, bool, int, float, str, ndarray, or list, tuple or dict of these
        Its arrays are new and writable.

    Raises
    ------
    CheckpointError
        If there is no such file, or it is damaged, too new, or of another kind.
    """
    found = contents(path)
    if kind is not None and found.kind != kind:
        raise CheckpointError(
            f"{os.fspath(path)}: must hold a {kind}, got a {found.kind}. Choose another file."
        )
    return found.tree


def contents(path: str | os.PathLike[str]) -> Contents:
    """The tree that was written to a file, and what the file says of itself.

    Raises
    ------
    CheckpointError
        If there is no such file, or it is damaged or too new.
    """
    where = os.fspath(path)
    try:
        data = _bytes(Path(path), where)
    except OSError as failed:
        raise CheckpointError(
            f"{where}: must be a file that can be read, got: {failed.strerror}. Check the path."
        ) from failed
    return unpacked(data, where)


def _seal(path: Path, where: str) -> None:
    """Put the digest of the whole file into its place."""
    with path.open("r+b") as file:
        size = file.read(8)
        at = place(size + file.read(int.from_bytes(size, "little")), where)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(at)
        file.write(digest.encode("ascii"))


def _bytes(path: Path, where: str) -> bytes:
    """A whole file; refused before it is read if it cannot be one of ours."""
    if not stat.S_ISREG(path.stat().st_mode):  # before opening: to open a pipe is to wait
        raise CheckpointError(
            f"{where}: must be a file, got a directory or a device. Give the path of a file that "
            "onepass wrote."
        )
    with path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        readable(file.read(9), whole, where)
        file.seek(0)
        return file.read()
