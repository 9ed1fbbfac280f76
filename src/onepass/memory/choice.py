"""Choice: the memory that a user means by a number, None or a specification."""

from typing import Any

import numpy as np

from onepass.errors import ParameterError
from onepass.memory.basis import Basis
from onepass.memory.principal import Principal

__all__ = ["specification"]


def specification(memory: Any, where: str) -> Any:
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
    number = isinstance(memory, (int, np.integer)) and not isinstance(memory, bool)
    if number and memory >= 1:
        return Principal(int(memory))
    if not hasattr(memory, "start"):
        raise ParameterError(
            f"{where}: `memory` must be a whole number >= 1, None, or a specification such as "
            f"op.memory.Principal(10), got {memory!r}. None keeps all directions, "
            "op.memory.Nothing() none."
        )
    return memory
