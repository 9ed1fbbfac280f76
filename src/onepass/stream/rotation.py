"""Rotation: pictures turned about their middle."""

from typing import Literal, TypeAlias

import numpy as np
from scipy import ndimage

from onepass.errors import Array, Floats

__all__ = ["SplineOrder", "rotated"]

SplineOrder: TypeAlias = Literal[0, 1, 2, 3, 4, 5]
"""Of the splines that interpolate between pixels: 0 takes the nearest, 1 is bilinear."""


def rotated(pictures: Array, degrees: Floats, order: SplineOrder = 0) -> Floats:
    """Each picture turned about its middle, against the clock, on a background of 0.

    With order 0 it is, pixel for pixel, what Pillow's ``Image.rotate`` gives by default.

    Parameters
    ----------
    pictures : ndarray of shape (n, height, width)
        Brightness from 0 to 255.
    degrees : ndarray of shape (n,)
        One angle a picture.
    order : {0, 1, 2, 3, 4, 5}, default=0
        Of the interpolating splines. What overshoots is cut to 0 … 255.

    Returns
    -------
    turned : ndarray of the shape of pictures

    Examples
    --------
    >>> import numpy as np
    >>> corner = np.zeros((1, 3, 3))
    >>> corner[0, 0, 2] = 255  # top right
    >>> float(rotated(corner, np.array([90.0]))[0, 0, 0])  # top left
    255.0
    """
    turned = np.empty(pictures.shape)
    for i, (picture, angle) in enumerate(zip(pictures, degrees, strict=True)):
        turned[i] = ndimage.rotate(picture.astype(float), angle, reshape=False, order=order)
    return np.clip(turned, 0.0, 255.0)
