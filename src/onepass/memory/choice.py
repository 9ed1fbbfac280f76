"""Choice: the memory that a user means by a number, None or a specification."""

import numpy as np

from onepass.errors import ParameterError
from onepass.memory.basis import Basis
from onepass.memory.principal import Principal
from onepass.memory.protocols import Memory

__all__ = ["specification"]


def specification(memory: int | Memory | None, where: str) -> Memory:
    """The memory that a user means.

    Parameters
    ----------
    memory : int, None or a specification of op.memory
        m is ``Principal(m)``, None is ``Basis()``.
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If it is none of these.
    """
    if memory is None:
        return Basis()
    if isinstance(memory, (int, np.integer)):
        if memory >= 1 and not isinstance(memory, bool):
            return Principal(int(memory))
    elif hasattr(memory, "start"):
        return memory
    raise ParameterError(
        f"{where}: `memory` must be a whole number >= 1, None, or a specification such as "
        f"op.memory.Principal(10), got {memory!r}. None keeps all directions, "
        "op.memory.NoMemory() none."
    )
