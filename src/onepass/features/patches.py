"""Patches: small squares of pictures, each with its own mean taken away and its contrast made one.

A patch p of s × s pixels and all channels becomes

    p ← (p − mean p) / √(var p + contrast²)                                                    (1)

so that it says what is drawn there, not how bright it is [1].

[1] A. Coates, H. Lee, A. Y. Ng, "An analysis of single-layer networks in unsupervised feature
    learning", AISTATS 2011, section 3.2.1.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onepass import validation
from onepass.errors import Array, Floats, ParameterError

__all__ = [
    "Places",
    "brightness",
    "cells",
    "directions",
    "exceeding",
    "normalised",
    "patches",
    "shape_of",
]


class Places(NamedTuple):
    """Where the patches of a picture lie: at every pixel where a whole one begins."""

    shape: tuple[int, int, int]
    """Channels, height and width of a picture."""
    size: int
    """Pixels of a patch's side."""
    padding: int = 0
    """Pixels of 0 that are set around a picture."""

    @property
    def grid(self) -> tuple[int, int]:
        """Places from the top down, and from the left to the right."""
        more = 2 * self.padding - self.size + 1
        return self.shape[1] + more, self.shape[2] + more

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
    pictures, edge = X.reshape(-1, *places.shape), (places.padding, places.padding)
    if places.padding:
        pictures = np.pad(pictures, ((0, 0), (0, 0), edge, edge))
    windows = sliding_window_view(pictures, (s, s), axis=(2, 3))
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
    variance[np.isinf(variance)] = np.nan  # too large to tell, which is not faint
    spread = np.sqrt(variance + contrast * contrast)
    centred /= np.where(spread == 0.0, 1.0, spread)[..., None].astype(centred.dtype, copy=False)
    return centred


def exceeding(
    centred: Floats, W: Floats, contrast: float, threshold: float, share: Floats
) -> Floats:
    """How far answers to patches exceed a threshold on either side, averaged over cells.

    Parameters
    ----------
    centred : ndarray of shape (n, places, numbers)
        Of mean 0, and not yet of contrast 1; written over.
    W : ndarray of shape (numbers, filters)
    contrast, threshold : float
    share : ndarray of shape (cells, places)

    Returns
    -------
    ndarray of shape (n, cells, 2, filters)
    """
    found = normalised(centred, contrast) @ W
    t = found.dtype.type(threshold)
    above = found - t
    np.maximum(above, 0.0, out=above)
    np.negative(found, out=found)
    found -= t
    np.maximum(found, 0.0, out=found)
    return np.stack((share @ above, share @ found), axis=2)


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


def cells(grid: tuple[int, int], pool: int, overlap: float = 0.0) -> Array:
    """Means over the cells of a pool × pool grid, as a matrix for sums over places.

    Parameters
    ----------
    grid : tuple of int
        Places from the top down, and from the left to the right.
    pool : int
        Cells a side, at most as many as there are places.
    overlap : float, default=0.0
        Standard deviation of a cell's Gaussian weights, in sides of a cell; with 0 they are equal
        inside of it, and 0 outside.

    Returns
    -------
    ndarray of shape (pool², places)

    Examples
    --------
    >>> cells((2, 3), 1).round(2).tolist()
    [[0.17, 0.17, 0.17, 0.17, 0.17, 0.17]]
    >>> cells((1, 4), 1, overlap=0.5).round(2).tolist()
    [[0.22, 0.28, 0.28, 0.22]]
    """
    down, across = (
        _gaussian(length, pool, overlap) if overlap else _means(length, pool) for length in grid
    )
    return np.kron(down, across)


def _means(length: int, parts: int) -> Floats:
    """Means over parts of a line that are as equal as whole numbers can be, (parts, length)."""
    edges = np.round(np.linspace(0, length, parts + 1)).astype(int)
    share = np.zeros((parts, length))
    for k in range(parts):
        share[k, edges[k] : edges[k + 1]] = 1.0 / (edges[k + 1] - edges[k])
    return share


def _gaussian(length: int, parts: int, overlap: float) -> Floats:
    """Means over a line, weighted by the distance from the middle of each of its equal parts."""
    middle = (np.arange(parts) + 0.5) * length / parts - 0.5
    away = np.abs(np.arange(length) - middle[:, None]) * parts / length
    nearest = away.min(axis=1, keepdims=True)  # so that some weight is 1, however narrow they are
    with np.errstate(over="ignore"):
        share: Floats = np.exp((nearest - away) / overlap * (nearest + away) / overlap / 2.0)
    share /= share.sum(axis=1, keepdims=True)
    return share


def shape_of(d: int, shape: Any, who: str) -> tuple[int, int, int]:
    """Channels, height and width of flat pictures: as said, or square.

    Parameters
    ----------
    d : int
        Numbers of a picture.
    shape : tuple of int or None
        (height, width) or (channels, height, width).
    who : str
        For the message.

    Raises
    ------
    ParameterError
        If it is neither, or not told of pictures that are no squares.
    """
    if shape is None:
        side = math.isqrt(d)
        if side * side == d:
            return 1, side, side
    elif isinstance(shape, (tuple, list)) and len(shape) in {2, 3}:
        c, h, w = (validation.whole(k, "shape", who, low=1) for k in (1, *shape)[-3:])
        return c, h, w
    raise ParameterError(
        f"{who}: `shape` must be (height, width) or (channels, height, width) of rows that "
        f"are not square pictures, got {shape} for {d} columns. Construct it with "
        "`shape`, or give pictures as (n, channels, height, width)."
    )
