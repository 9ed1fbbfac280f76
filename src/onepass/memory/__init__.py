"""Memories: what is kept of the past, one file each.

A specification (``SquareRoot``, ``Basis``, ``Principal``, ``Nothing``) is frozen and says how to
start; what it starts is a state with one method, ``learn``, the equation of
:mod:`onepass.update`.
"""

from onepass.memory.span import Span
from onepass.memory.square_root import SquareRoot, Triangle

__all__ = ["SquareRoot"]

STATES: tuple[type, ...] = (Span, Triangle)
