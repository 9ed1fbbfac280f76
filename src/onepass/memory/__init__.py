"""Memories: what is retained of past rows, one file each.

A specification (``Principal(10)``) is frozen; its ``start`` returns a state, whose ``learn`` is the
update equation of :mod:`onepass.linalg.update`. ``exact_in_blocks`` is true if learning a block
equals learning its rows one after the other. :mod:`onepass.memory.protocols` defines the members of
a memory.
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
from onepass.memory.floor import Floor
from onepass.memory.principal import Principal, PrincipalState
from onepass.memory.protocols import Memory
from onepass.memory.rebased import Rebased
from onepass.memory.sketch import Sketch
from onepass.memory.span import Span
from onepass.memory.square_root import Prior, SquareRoot, Triangle
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
    Floor,
    NoisySpan,
    Prior,
    Rebased,
    LastDirectionsState,
    Span,
    Subspace,
    Triangle,
)
"""The private classes of learned states."""

register(Role.MEMORY, *MEMORIES, *STATES)
