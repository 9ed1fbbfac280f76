"""Rotated digits: the images of one digit, each turned by an angle that is to be told from it.

The rows that are learned come by growing angle, so that what is learned last looks unlike what
was learned first ([1] section 5, [2] section V):

    θ_k = 180° k / n,   x_k = (turned by θ_k(image_k) / 255 − 0.1307) / 0.3081,   k = 1 … n   (1)
    y_k = θ_k in radians,   w₀ uniform in ±1/√784 = ±1/28, anew in each run                  (2)

The digits to test are turned by angles uniform in [0°, 180°). Which images were learned is not
published: a :class:`Draw` chooses them, and results are shown over several draws.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
[2] The same, CDC 2022.
"""

from dataclasses import dataclass

import numpy as np

from onepass.errors import Array, Floats, ParameterError
from onepass.stream import Images
from onepass.stream.digits import SplineOrder, rotated

__all__ = ["Draw", "RotatedDigits", "rotated"]

_MEAN, _DEVIATION = 0.1307, 0.3081  # of all pixels of MNIST's training images, over 255


@dataclass(frozen=True, eq=False, slots=True)
class Draw:
    """One choice of images and angles, and where each run begins.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Rows to learn, by growing angle.
    y : ndarray of shape (n,)
        Their angles, in radians.
    X_test : ndarray of shape (k, p)
        Rows to test.
    y_test : ndarray of shape (k,)
        Their angles, in radians.
    start : ndarray of shape (runs, p)
        w₀ of each run.
    """

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    start: Floats


@dataclass(frozen=True)
class RotatedDigits:
    """The set-up of the experiment, as far as the papers tell; what they do not is a parameter.

    Parameters
    ----------
    digit : int, default=2
        Whose images are turned.
    n : int, default=100
        Rows to learn.
    order : {0, 1, 2, 3, 4, 5}, default=0
        Of the splines that interpolate between pixels: 0 takes the nearest pixel, which alone
        gives the published training error of multi-pass SGD.
    clockwise : bool, default=True
        The direction of turning. The published numbers do not settle it.
    bias : bool, default=False
        Whether there is one more weight, of feature 1, as in PyTorch's ``Linear``. The papers'
        model is wᵀx; the bias moves the errors by far less than another draw of images.
    """

    digit: int = 2
    n: int = 100
    order: SplineOrder = 0
    clockwise: bool = True
    bias: bool = False

    def draw(self, images: Images, runs: int, seed: list[int]) -> Draw:
        """Choose n images to learn, an angle for each image to test, and w₀ of each run.

        Parameters
        ----------
        images : Images
            A set such as ``op.stream.images("mnist")``.
        runs : int
            How many runs begin, each at its own w₀.
        seed : list of int
            The same seed draws the same.

        Raises
        ------
        ParameterError
            If there are fewer than n images of the digit to learn, or none to test.
        """
        known = images.train_images[images.train_labels == self.digit]
        unknown = images.test_images[images.test_labels == self.digit]
        if len(known) < self.n or not len(unknown):
            raise ParameterError(
                f"RotatedDigits.draw: `images` must hold {self.n} images of digit {self.digit} "
                f"to learn and at least 1 to test, got {len(known)} and {len(unknown)}. "
                "Lower `n`, or choose another digit."
            )
        rng = np.random.default_rng(seed)
        chosen = rng.choice(len(known), self.n, replace=False)
        learned = 180.0 * np.arange(1, self.n + 1) / self.n  # (1)
        tested = rng.uniform(0.0, 180.0, len(unknown))
        X = self._features(known[chosen], learned)
        reach = 1.0 / np.sqrt(known[0].size)  # (2)
        start = rng.uniform(-reach, reach, (runs, X.shape[1]))
        X_test = self._features(unknown, tested)
        return Draw(X, np.deg2rad(learned), X_test, np.deg2rad(tested), start)

    def _features(self, pictures: Array, degrees: Floats) -> Floats:
        """Rows of (1)."""
        turns = -degrees if self.clockwise else degrees
        pixels = rotated(pictures, turns, self.order).reshape(len(pictures), -1)
        X = (pixels / 255.0 - _MEAN) / _DEVIATION
        return np.column_stack([X, np.ones(len(X))]) if self.bias else X
