"""Patches: small squares of pictures, each with its own mean taken away and its contrast made one.

A patch p of s × s pixels and all channels becomes

    p ← (p − mean p) / √(var p + contrast²)                                                    (1)

so that it says what is drawn there, not how bright it is [1].

[1] A. Coates, H. Lee, A. Y. Ng, "An analysis of single-layer networks in unsupervised feature
    learning", AISTATS 2011, section 3.2.1.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onepass.types import Array, Floats

__all__ = ["Places", "brightness", "cells", "directions", "normalised", "patches"]


class Places(NamedTuple):
    """Where the patches of a picture lie: at every pixel where a whole one begins."""

    shape: tuple[int, int, int]
    """Channels, height and width of a picture."""
    size: int
    """Pixels of a patch's side."""

    @property
    def grid(self) -> tuple[int, int]:
        """Places from the top down, and from the left to the right."""
        return self.shape[1] - self.size + 1, self.shape[2] - self.size + 1

    @property
    def numbers(self) -> int:
        """Numbers of a patch."""
        return self.shape[0] * self.size**2


def brightness(X: Any) -> Any:
    """Pixels in [0, 1] of bytes from 0 to 255; all else as it is.

    Parameters
    ----------
    X : array-like
    """
    if getattr(X, "dtype", None) == np.uint8:
        return np.asarray(X, dtype=np.float32) / np.float32(255)
    return X


def patches(X: Floats, places: Places) -> Floats:
    """All patches of some pictures, the mean of each taken away.

    Parameters
    ----------
    X : ndarray of shape (n, channels · height · width)
    places : Places

    Returns
    -------
    ndarray of shape (n, places, numbers)
        By channel, then by row of the patch.
    """
    c, s = places.shape[0], places.size
    windows = sliding_window_view(X.reshape(-1, *places.shape), (s, s), axis=(2, 3))
    h, w = places.grid
    rows: Floats = windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(X), h * w, c * s * s)
    centred: Floats = np.subtract(rows, rows.mean(axis=2, keepdims=True))  # rows may be X itself
    return centred


def normalised(centred: Floats, contrast: float) -> Floats:
    """Equation (1) for patches whose mean is 0, in place; those without contrast are 0.

    Parameters
    ----------
    centred : ndarray of shape (..., numbers)
    contrast : float
        Standard deviation below which a patch is faint, >= 0.
    """
    variance = np.einsum("...i,...i->...", centred, centred) / centred.shape[-1]
    spread = np.sqrt(variance + contrast**2)
    centred /= np.where(spread > 0.0, spread, 1.0)[..., None].astype(centred.dtype, copy=False)
    return centred


def directions(drawn: Floats) -> Floats:
    """Filters of mean 0 and length 1, as float32.

    Parameters
    ----------
    drawn : ndarray of shape (filters, numbers)
        None of them constant, unless they are single numbers: then they are left 0.
    """
    W = drawn - drawn.mean(axis=1, keepdims=True)
    length = np.linalg.norm(W, axis=1, keepdims=True)
    unit: Floats = (W / np.where(length > 0.0, length, 1.0)).astype(np.float32)
    return unit


def cells(grid: tuple[int, int], pool: int) -> Array:
    """Means over the cells of a pool × pool grid, as a matrix for sums over places.

    Parameters
    ----------
    grid : tuple of int
        Places from the top down, and from the left to the right.
    pool : int
        Cells a side, at most as many as there are places.

    Returns
    -------
    ndarray of shape (pool², places)

    Examples
    --------
    >>> cells((2, 3), 1).round(2).tolist()
    [[0.17, 0.17, 0.17, 0.17, 0.17, 0.17]]
    """
    down, across = (_means(length, pool) for length in grid)
    return np.kron(down, across)


def _means(length: int, parts: int) -> Floats:
    """Means over parts of a line that are as equal as whole numbers can be, (parts, length)."""
    edges = np.round(np.linspace(0, length, parts + 1)).astype(int)
    share = np.zeros((parts, length))
    for k in range(parts):
        share[k, edges[k] : edges[k + 1]] = 1.0 / (edges[k + 1] - edges[k])
    return share
