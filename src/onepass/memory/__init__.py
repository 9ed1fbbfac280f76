"""Memories: what is retained of past rows, one file each.

The vector of recursive least squares is in :mod:`onepass.memory.least_squares` and
:mod:`onepass.memory.vector`; its forgetting rules in :mod:`onepass.forgetting`. The other
memories are those of ORFit. A specification (``Principal(10)``) is frozen; its ``start`` returns a
state, whose ``learn`` is the update equation of :mod:`onepass.linalg.update`. ``exact_in_blocks``
is true if learning a block equals learning its rows one after the other.
:mod:`onepass.memory.protocols` defines the members of a memory.
"""

from onepass.linalg.subspace import OrthonormalBasis, Subspace
from onepass.memory.basis import Basis, Directions, NoisySpan
from onepass.memory.blocks import Blocks
from onepass.memory.directions import (
    LastDirections,
    LastDirectionsState,
    NoMemory,
    NoMemoryState,
    Random,
    RandomDirections,
)
from onepass.memory.principal import Principal, PrincipalState
from onepass.memory.protocols import Memory
from onepass.memory.sketch import Sketch
from onepass.memory.span import Span
from onepass.memory.square_root import SquareRoot, Triangle
from onepass.serialization.codec import Role, register

__all__ = ["Basis", "LastDirections", "NoMemory", "Principal", "Random", "Sketch", "SquareRoot"]

MEMORIES: tuple[type[Memory], ...] = (
    Basis,
    LastDirections,
    NoMemory,
    Principal,
    Random,
    Sketch,
    SquareRoot,
)
"""The memories that model files may contain."""

STATES: tuple[type, ...] = (
    Blocks,
    OrthonormalBasis,
    PrincipalState,
    Directions,
    RandomDirections,
    NoMemoryState,
    NoisySpan,
    LastDirectionsState,
    Span,
    Subspace,
    Triangle,
)
"""The private classes of learned states."""

register(Role.MEMORY, *MEMORIES, *STATES)
