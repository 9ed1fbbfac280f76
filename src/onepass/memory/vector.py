"""The vector of least squares: its numbers, flags, parts, and what follows them.

native/core/least_squares.h describes the layout, which is the same.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onepass.types import Array, Floats

EXPERTS = 8
"""The number of experts of a mixture."""
SKIPPED = 20.0
"""The number of first rows that do not count in the weights of a mixture."""
SHARE, DECAY = 0.005, 1.0 - 1.0 / 200.0
"""α and ρ of :mod:`onepass.forgetting.auto`."""


def aligned(values: Floats) -> Floats:
    """A copy whose memory is aligned to 64 bytes, for SIMD instructions."""
    room = np.empty(len(values) + 8)
    first = -room.ctypes.data % 64 // 8
    copy = room[first : first + len(values)]
    copy[:] = values
    return copy


class Slot(IntEnum):
    """The numbers at the head of a vector."""

    FEATURES = 0
    OUTPUTS = 1
    FLAGS = 2
    FACTOR = 3  # log2 of the forgetting factor per row
    LEVEL = 4
    RIDGE = 5
    PRIOR = 6
    ROWS = 7
    MASS = 8
    FADED = 9
    DUE = 10
    TURN = 11
    ATTEMPT = 12
    FRESH = 13


class WindowSlot(IntEnum):
    """The numbers at the head of what follows the vector of a window."""

    CAPACITY = 0
    STORED = 1
    NEXT = 2
    GONE = 3
    SHADOWED = 4
    LENGTH = 5


class Flag(IntEnum):  # not IntFlag, whose operators are slow
    """The flags of a vector."""

    FREE = 1
    STARTED = 2
    HELD = 4
    UNITS = 8
    WINDOW = 16
    MIXTURE = 32
    INDICATORS = 64
    DIRECTIONAL = 128


HEAD, WINDOW_HEAD, PANEL = 16, 8, 8


class Fading(NamedTuple):
    """How the past fades, as a forgetting rule specifies it."""

    factor: float = 1.0
    """λ per row; 1 if the past fades by time, or not at all."""
    level: float = 0.0
    """The bound of the information about each weight, as a number of rows; 0 for none."""
    held: bool = False
    """Whether the ridge does not fade, while rows do."""
    window: int | None = None
    """The number of rows of a window; 0 if the caller determines the rows that leave."""
    mixture: tuple[float, ...] = ()
    """The factors of the experts of a mixture."""


class Parts:
    """Named views of the parts of a vector.

    Parameters
    ----------
    vector : ndarray
        A vector, or its head alone: then only the sizes are set.
    """

    def __init__(self, vector: Floats) -> None:
        self.head = vector[:HEAD]
        d, c, flags, _, level, _, prior = self.head[:7].tolist()
        self.d, self.c, self.flags = int(d), int(c), int(flags)
        self._vector = vector
        layout = _layout(self.d, self.c, self.flags, bounded=level > 0.0, prior=prior > 0.0)
        self._layout, self.stride, self.size = layout

    if not TYPE_CHECKING:  # only the attributes below

        def __getattr__(self, name: str) -> Floats:
            try:
                at, end, shape = self._layout[name]
            except KeyError:
                raise AttributeError(name) from None
            view: Floats = self._vector[at:end].reshape(shape)
            setattr(self, name, view)
            return view

    T: Floats
    sums: Floats
    means: Floats
    rests: Floats
    energy: Floats
    active: Floats
    last: Floats
    prior: Floats
    visited: Floats
    start: Floats
    squares: Floats
    w: Floats

    @property
    def behind(self) -> Floats:
        """What follows the parts."""
        return self._vector[self.size :]

    @property
    def free(self) -> bool:
        """Whether there is an intercept."""
        return bool(self.flags & Flag.FREE)

    def whole_size(self, capacity: int = 0) -> int:
        """The size with what follows: a window with room for some rows, or a mixture."""
        if self.flags & Flag.WINDOW:
            return 3 * self.size + WINDOW_HEAD + self.d + capacity * (self.d + self.c + 2)
        if self.flags & Flag.MIXTURE:
            return EXPERTS * self.size + ((EXPERTS + 1) * self.c + 8) // 8 * 8
        return self.size


@lru_cache(maxsize=256)
def _layout(
    d: int, c: int, flags: int, *, bounded: bool, prior: bool
) -> tuple[dict[str, tuple[int, int, tuple[int, ...]]], int, int]:
    """Where each part begins and ends, and its shape; the stride; the size of the vector."""
    stride = (d + c + 7) // 8 * 8
    prior = prior or bool(flags & Flag.UNITS)
    visits, panels = bounded or bool(flags & Flag.HELD), -(-d // PANEL)
    shapes: dict[str, tuple[int, ...]] = {
        "T": (d, stride), "sums": (stride,), "means": (stride,), "rests": (stride,),
        "energy": (stride * bounded,), "active": (stride * bounded,),
        "last": (stride * bounded,), "prior": (stride * prior,),
        "visited": (panels * visits,), "start": (c * bool(flags & Flag.STARTED), d),
        "squares": (c,), "w": (c, d),
    }  # fmt: skip
    layout, at = {}, HEAD
    for name, shape in shapes.items():
        layout[name] = at, at + math.prod(shape), shape
        at += math.prod(shape)
    return layout, stride, (at + 7) // 8 * 8


class Window:
    """Named views of what follows a vector with a window."""

    def __init__(self, vector: Floats) -> None:
        parts = Parts(vector)
        size, d, width, behind = parts.size, parts.d, parts.d + parts.c + 2, parts.behind
        at = np.cumsum((WINDOW_HEAD, size, size, d))
        self.head, self.empty, self.shadow, self.peak, ring = np.split(behind, at)
        self.ring = ring.reshape(-1, width)

    @property
    def order(self) -> Array:
        """The places of the stored rows in the ring, from the oldest on."""
        stored, following = int(self.head[WindowSlot.STORED]), int(self.head[WindowSlot.NEXT])
        return np.arange(following - stored, following) % len(self.ring)


def is_mixture(vector: Floats) -> bool:
    """Whether the vector is that of a mixture."""
    return bool(int(vector[Slot.FLAGS]) & Flag.MIXTURE)


def experts(vector: Floats) -> Floats:
    """The vectors of the experts of a mixture, (K, size); of other vectors the state alone."""
    size, K = Parts(vector[:HEAD]).size, EXPERTS if is_mixture(vector) else 1
    return vector[: K * size].reshape(K, size)


def numbers(vector: Floats) -> Floats:
    """The weights, the squares and the count of a mixture."""
    parts = Parts(vector[:HEAD])
    return vector[EXPERTS * parts.size :][: (EXPERTS + 1) * parts.c + 1]


def shares(vector: Floats) -> Floats:
    """The weights of the experts of a mixture, (K, c)."""
    c = int(vector[Slot.OUTPUTS])
    return numbers(vector)[: EXPERTS * c].reshape(EXPERTS, c)
