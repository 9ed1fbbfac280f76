"""Persist: save and load any learner, pipeline, feature or memory, exactly and without pickle.

The file is one of :mod:`onepass.checkpoint`, what stands in it is told in :mod:`onepass.parts`,
and :mod:`onepass.catalogue` knows what it may name. A learner that was loaded says the same, and
goes on learning the same, to the last bit.
"""

import os
from collections.abc import Mapping
from typing import Any

from onepass import checkpoint, sealed
from onepass.errors import CheckpointError
from onepass.parts import built, taken

__all__ = ["LEARNER", "NETWORK", "given_back", "load", "packed", "save"]

LEARNER, NETWORK = "learner", "network"
"""What files hold; the second is of :mod:`onepass.nn.saving`."""


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Save a learner, pipeline, feature or memory to one file.

    It is a safetensors file, written whole or not at all: see :mod:`onepass.checkpoint`.
    Arguments that are functions, such as ``feature_map``, or the network of a feature, cannot be
    saved: the file notes their names, and :func:`load` wants them back. The learner of a network is
    saved as by its own ``save``, without the module's code: ``op.nn.load(path, module)`` gives it
    back.

    Parameters
    ----------
    learner : learner, Pipeline, feature or memory
        Of a class of onepass; it need not have learned anything.
    path : path-like
        The file; one that is there is replaced.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold, or if the file cannot be written.
        What was at ``path`` is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import onepass as op
    >>> model = op.RLSRegressor().partial_fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(model, f"{directory}/m.onepass")
    ...     again = load(f"{directory}/m.onepass")
    >>> float(abs(again.predict(np.eye(3)) - model.predict(np.eye(3))).max())
    0.0
    """
    if getattr(type(learner), "saves_itself", False) is True:  # torch is not imported to know it
        learner.save(path)
    else:
        checkpoint.write(path, taken(learner, os.fspath(path)), kind=LEARNER)


def load(path: str | os.PathLike[str], **replacements: Any) -> Any:
    """What :func:`save` saved, as it was, to the last bit.

    Nothing in a file is run, and it can name only onepass's own classes; so it is safe to load a
    stranger's file, though not to believe what its learner says.

    Parameters
    ----------
    path : path-like
        The file.
    **replacements : callable or network
        For each argument that was a function, by the argument's name, that function; for a feature
        that asks a network, that network (``module=``) or where its file lies now (``model=``). A
        name stands for every argument of that name; a place such as ``"learner_.feature_map"`` for
        one.

    Returns
    -------
    learner : learner, Pipeline, feature or memory

    Raises
    ------
    CheckpointError
        If there is no such file, if it is damaged, too new or holds no learner, if a replacement
        is missing or stands for nothing, or if a network is another than it was.
    """
    return given_back(checkpoint.contents(path), os.fspath(path), replacements)


def packed(learner: Any, where: str) -> bytes:
    """What :func:`save` would write, but for networks.

    Parameters
    ----------
    learner : learner, Pipeline, feature or memory
    where : str
        Where the bytes will stand, for messages.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold.
    """
    return sealed.packed(taken(learner, where), where, kind=LEARNER)


def given_back(found: sealed.Contents, where: str, replacements: Mapping[str, Any]) -> Any:
    """What was saved, out of what a file holds.

    Parameters
    ----------
    found : Contents
    where : str
        The file, for messages.
    replacements : dict of str to Any
        As for :func:`load`.

    Raises
    ------
    CheckpointError
        As :func:`load`.
    """
    if found.kind == NETWORK:
        raise CheckpointError(
            f"{where}: must hold a learner with its weights, got that of a network, whose module "
            "no file can hold. Use op.nn.load(path, module)."
        )
    if found.kind != LEARNER:
        raise CheckpointError(
            f"{where}: must hold a {LEARNER}, got a {found.kind}. Choose another file."
        )
    return built(found.tree, where, replacements)
