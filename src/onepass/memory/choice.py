"""Parsing of the ``memory`` parameter: a number, None or a specification."""

from __future__ import annotations

import numpy as np

from onepass.errors import ParameterError
from onepass.memory.basis import Basis
from onepass.memory.principal import Principal
from onepass.memory.protocols import Memory


def specification(memory: int | Memory | None) -> Memory:
    """Return the specification of a ``memory`` parameter.

    Parameters
    ----------
    memory : int, None or a specification of op.memory
        An integer m selects ``Principal(m)``, None selects ``Basis()``.

    Raises
    ------
    ParameterError
        If ``memory`` is of another type or out of range.
    """
    if memory is None:
        return Basis()
    if isinstance(memory, (int, np.integer)):
        if memory >= 1 and not isinstance(memory, bool):
            return Principal(int(memory))
    elif hasattr(memory, "start"):
        return memory
    raise ParameterError(
        "`memory` must be a whole number >= 1, None, or a specification such as "
        f"op.memory.Principal(10), got {memory!r}. Use None to retain all directions, "
        "or op.memory.NoMemory() to retain none."
    )
