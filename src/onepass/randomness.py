"""Randomness: a random generator as plain values and arrays, and back, to the last bit.

Kept are the state of its stream, and of the seeds from which it spawns others.
"""

from typing import Any

import numpy as np

__all__ = ["heard", "said"]

_LARGEST_POOL = 1024  # words of entropy; NumPy's own is 4
_POSITION = {"MT19937": ("pos", 624), "Philox": ("buffer_pos", 4)}
_KNOWN = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def said(generator: np.random.Generator) -> dict[str, Any]:
    """A generator's state as plain values and arrays.

    Parameters
    ----------
    generator : numpy.random.Generator
        Over one of NumPy's bit generators; what it draws next is not disturbed.

    Raises
    ------
    ValueError
        If its bit generator is not one of NumPy's.

    Examples
    --------
    >>> generator = np.random.default_rng(7)
    >>> again = heard(said(generator))
    >>> float(again.random() - generator.random())
    0.0
    """
    bits = generator.bit_generator
    if type(bits) is not getattr(np.random, type(bits).__name__, None):
        raise ValueError(f"{type(bits).__name__} is not one of {', '.join(_KNOWN)}")
    seeds = bits.seed_seq
    entropy = dict(seeds.state) if isinstance(seeds, np.random.SeedSequence) else None
    return {"bits": dict(bits.state), "seeds": entropy}


def heard(state: dict[str, Any]) -> np.random.Generator:
    """The generator that ``said`` took apart.

    Raises
    ------
    ValueError
        If this is not something that ``said`` gives.
    """
    try:
        bits, seeds = state["bits"], state["seeds"]
        name = bits["bit_generator"]
        if name not in _KNOWN or not _inside(name, bits):
            raise ValueError(name)
        if seeds is not None and not 4 <= seeds["pool_size"] <= _LARGEST_POOL:
            raise ValueError(seeds["pool_size"])
        sequence = np.random.SeedSequence(**(seeds or {"entropy": 0}))
        generator = getattr(np.random, name)(sequence)
        generator.state = bits
        if not _same(generator.state, bits):
            raise ValueError(name)
        return np.random.Generator(generator)
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as wrong:
        raise ValueError("not the state of a random generator") from wrong


def _inside(name: str, bits: dict[str, Any]) -> bool:
    """Whether a position within a buffer is one: NumPy would read beyond it unasked."""
    if name not in _POSITION:
        return True
    key, largest = _POSITION[name]
    place = bits["state"] if name == "MT19937" else bits
    return type(place[key]) is int and 0 <= place[key] <= largest


def _same(a: Any, b: Any) -> bool:
    """Whether two states are equal, and so none was bent to fit."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return np.array_equal(a, b)
