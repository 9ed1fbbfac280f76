"""Random features: fixed random functions of all columns, drawn once from a seed.

With weights and offsets drawn once, a row x becomes

    z = max(0, x W + b),              W ~ N(0, scale² / d),  b ~ N(0, bias²)                   (1)
    z = √(2 / width) cos(x W + b),    W ~ N(0, 2γ),          b ~ U(0, 2π)                      (2)

(1) are random ReLU units [1], (2) are random Fourier features [2]: the products of the features of
two rows approach exp(−γ ‖x − x′‖²) as the width grows.

With fixed features, an exact learner such as recursive least squares ends with the solution for all
rows at once: no order of rows or of tasks causes forgetting [3, 4]. On raw inputs, random features
outperform many features that are learned from the stream [5]; for large images, random projections
of the output of a pretrained network are used [6].

The features of few rows are nearly collinear: with the default ridge of least squares, accuracy can
fall while the number of rows approaches the width. A Pipeline therefore gives recursive least
squares ``prior=10``, unless it has a ``prior``: a penalty of each coefficient relative to the
energy of its feature, with the weight of ten rows, in any units.

Cost: O(d · width) time per row, O(d · width) memory.

[1] G.-B. Huang, Q.-Y. Zhu, C.-K. Siew, "Extreme learning machine: theory and applications",
    Neurocomputing 70, 2006.
[2] A. Rahimi, B. Recht, "Random features for large-scale kernel machines", NIPS 2007.
[3] H. Zhuang, Z. Weng, H. Wei, R. Xie, K.-A. Toh, Z. Lin, "ACIL: Analytic class-incremental
    learning with absolute memorization and privacy protection", NeurIPS 2022.
[4] H. Zhuang et al., "F-OAL: Forward-only online analytic learning with fast training and low
    memory footprint in class incremental learning", NeurIPS 2024.
[5] A. Prabhu, S. Sinha, P. Kumaraguru, P. H. S. Torr, O. Sener, P. K. Dokania, "RanDumb: Random
    representations outperform online continually learned representations", NeurIPS 2024.
[6] M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad, A. van den Hengel, "RanPAC: Random
    projections and pre-trained models for continual learning", NeurIPS 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from onepass import linalg
from onepass.declared import State, param
from onepass.errors import NumericalError, public
from onepass.features.transformer import Columnwise, Starts
from onepass.types import Array, Floats


class Frozen(Columnwise):
    """Base class of transformers of matrices whose outputs are fixed functions of a row.

    A subclass defines ``_start``, ``_widen``, ``_transform_block``, ``n_features_out_``,
    ``_prefix`` and ``_draws``, the names of the arrays drawn. ``_by_column`` names the array whose
    first axis counts columns.
    """

    _merging: ClassVar[str] = "exact"
    _uses_units: ClassVar[bool] = True

    _stored_rows: ClassVar[str] = ""
    """What the state contains of single rows, with a remedy."""
    _draws: ClassVar[tuple[str, ...]]
    _by_column: ClassVar[str] = ""

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """Number of output columns, constant after the first row."""

    def _merge_conflict(self, other: Any) -> str:
        """Return a reason if the weights were drawn for different columns."""
        if not (self.rows_seen_ and other.rows_seen_):
            return ""
        k = min(self.n_features_in_, other.n_features_in_)
        mine, theirs = (one._draws_for(k) for one in (self, other))  # noqa: SLF001
        same = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
        if same:
            return ""
        return "its weights were drawn for other columns. Use the same columns and order in both"

    # -- hooks -------------------------------------------------------------------------------------

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        del starts
        return self._transform_block(X), Starts.none(self.n_features_out_)

    def _merge_block(self, other: Self, at: Array, known: int) -> Array:
        del known
        if not self.rows_seen_ and np.array_equal(at, np.arange(self.n_features_in_)):
            for name in self._draws:
                setattr(self, name, getattr(other, name))
        return np.arange(self.n_features_out_)

    def _draws_for(self, k: int) -> list[Array]:
        """Return the names of the first k columns, and the arrays drawn for them."""
        every = {name: np.asarray(getattr(self, name)) for name in self._draws}
        drawn = [array[:k] if name == self._by_column else array for name, array in every.items()]
        return [np.array(self._names_in()[:k]), *drawn]


def check_features(Z: Floats, X: Floats) -> Floats:
    """Return features if they are finite.

    Parameters
    ----------
    Z : ndarray of shape (n, width)
    X : ndarray of shape (n, d)
        The rows.

    Raises
    ------
    NumericalError
        If a feature is not finite.
    """
    if not linalg.finite(Z):
        raise NumericalError(
            f"features must be within {Z.dtype}, got rows with values up to {np.abs(X).max():.3g}. "
            "Divide the columns by a constant, or pass them as float64."
        )
    return Z


class _Units(Frozen):
    """``width`` functions of all columns, with ``weights_`` (d, width) and offsets (width,)."""

    _by_column: ClassVar[str] = "weights_"
    _recommended_prior: ClassVar[float] = 10.0

    width: int
    weights_: Floats

    @property
    @public
    def n_features_out_(self) -> int:
        """Number of output columns, constant after the first row."""
        return int(self.width)

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file are consistent."""
        if not hasattr(self, "n_features_in_"):
            return True
        weights, offsets = (getattr(self, name, None) for name in self._draws[:2])
        return all(
            isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == shape
            for array, shape in (
                (weights, (self.n_features_in_, self.width)),
                (offsets, (self.width,)),
            )
        )

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        late = starts.origins * (starts.rows + self.rows_seen_ > 0)
        parts, offset = [], self._draws[1]
        for begin, end in pairwise([0, *np.unique(starts.rows[late != 0.0]).tolist(), len(X)]):
            parts.append(self._transform_block(X[begin:end]))
            first = np.where(starts.rows == end, late, 0.0)
            if first.any():  # the features of earlier rows do not change
                setattr(self, offset, getattr(self, offset) - first @ self.weights_)
        return np.concatenate(parts), Starts.none(self.n_features_out_)


_BIAS = 1  # stream of random numbers for offsets; that of weights is 0


@dataclass(eq=False, repr=False)
class RandomReLU(_Units):
    """Random ReLU units: ``width`` fixed random directions, each cut off at zero.

    Columns should have mean about 0 and standard deviation about 1: use :class:`Scale` before it
    for tables, or ``standardize="row"`` for images, whose pixels share a unit. Nothing is learned,
    so a learner after it stays exact. In a Pipeline, recursive least squares after it has
    ``prior=10.0`` by default, so that its accuracy does not fall near ``width`` rows.

    New columns have their own weights. Offsets change so that the features of earlier rows do not.

    Parameters
    ----------
    width : int, default=1000
        Number of units, >= 1.
    standardize : {"none", "row"}, default="none"
        "row" standardizes each row by its own mean and standard deviation, so that brightness and
        contrast of an image do not change its features; a constant row is 0.
    scale : float, default=1.0
        Scale of the weights, > 0: their standard deviation is scale / √d, with d the number of
        columns of the first block.
    bias : float, default=0.1
        Standard deviation of the offsets, >= 0.
    seed : int, default=0
        Seed of weights and offsets, >= 0.

    Attributes
    ----------
    weights_ : ndarray of float32, shape (d, width)
        W of (1).
    bias_ : ndarray of shape (width,)
        b of (1).
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If a feature overflows.

    Examples
    --------
    Four points that no line separates are separated by their features:

    >>> import onepass as op
    >>> X, y = [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], [0, 1, 1, 0]
    >>> model = op.Pipeline(RandomReLU(50), op.RLSClassifier()).partial_fit(X, y)
    >>> model.predict(X).tolist()
    [0, 1, 1, 0]
    """

    _prefix: ClassVar[str] = "relu"
    _draws: ClassVar[tuple[str, ...]] = ("weights_", "bias_", "spread_")

    bias_ = State[Floats]()
    spread_ = State[float]()

    width: int = param(1000, whole=True, low=1)
    _: KW_ONLY
    standardize: str = param("none", choices=("none", "row"))
    scale: float = param(1.0, above=0.0)
    bias: float = param(0.1, low=0.0)
    seed: int = param(0, whole=True, low=0)

    def _start(self, d: int) -> None:
        width = self.n_features_out_
        self.spread_ = self.scale / float(np.sqrt(max(d, 1)))
        offsets = np.random.default_rng((self.seed, _BIAS)).normal(size=width)
        self.bias_ = (self.bias * offsets).astype(np.float32)
        self.weights_ = self._columns(0, d)

    def _widen(self, d: int) -> None:
        new = self._columns(len(self.weights_), d)
        self.weights_ = np.concatenate((self.weights_, new))

    def _columns(self, begin: int, end: int) -> Floats:
        """Draw the weights of these columns one column at a time, so that blocks have no effect."""
        drawn = np.empty((end - begin, len(self.bias_)), dtype=np.float32)
        for j in range(begin, end):
            rng = np.random.default_rng((self.seed, 0, j))
            drawn[j - begin] = self.spread_ * rng.standard_normal(drawn.shape[1])
        return drawn

    def _transform_block(self, X: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = _standardize_rows(X) if self.standardize == "row" else X
            Z = rows @ self.weights_.astype(X.dtype, copy=False)
            Z += self.bias_
            np.maximum(Z, 0.0, out=Z)
        return check_features(Z, X)

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file are consistent."""
        begun = hasattr(self, "n_features_in_")
        return super()._sound and (not begun or type(getattr(self, "spread_", None)) is float)


@dataclass(eq=False, repr=False)
class RandomFourier(_Units):
    """Random Fourier features of the kernel exp(−γ ‖x − x′‖²), as scikit-learn's RBFSampler.

    With the same seed, weights and features are those of
    ``sklearn.kernel_approximation.RBFSampler``. New columns have the weights that RBFSampler would
    have drawn for them; offsets change so that the features of earlier rows do not.

    Parameters
    ----------
    width : int, default=1000
        Number of features, >= 1.
    gamma : float, default=1.0
        γ > 0, in 1 / squared units of the columns.
    seed : int, default=0
        Seed of weights and offsets: the ``random_state`` of RBFSampler, in [0, 2³²).

    Attributes
    ----------
    weights_ : ndarray of shape (d, width)
        W of (2).
    offset_ : ndarray of shape (width,)
        b of (2).
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range.
    NumericalError
        If a feature overflows.

    Examples
    --------
    >>> Z = RandomFourier(5000, gamma=0.5).transform([[0.0, 0.0], [1.0, 1.0]])
    >>> float((Z[0] @ Z[1]).round(1))  # exp(-0.5 * 2) = 0.37
    0.4
    """

    _prefix: ClassVar[str] = "fourier"
    _draws: ClassVar[tuple[str, ...]] = ("weights_", "offset_")

    offset_ = State[Floats]()

    width: int = param(1000, whole=True, low=1)
    _: KW_ONLY
    gamma: float = param(1.0, above=0.0)
    seed: int = param(0, whole=True, low=0, high=2**32 - 1)

    def _start(self, d: int) -> None:
        self.weights_, self.offset_ = self._sample(d)

    def _widen(self, d: int) -> None:
        known = len(self.weights_)  # the sampler draws weights column by column, then offsets
        self.weights_ = np.concatenate((self.weights_, self._sample(d)[0][known:]))

    def _sample(self, d: int) -> tuple[Floats, Floats]:
        from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415  the import is slow

        sampler = RBFSampler(
            gamma=self.gamma, n_components=self.n_features_out_, random_state=self.seed
        )
        sampler.fit(np.zeros((1, max(d, 1))))
        return sampler.random_weights_[:d], sampler.random_offset_

    def _transform_block(self, X: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            Z: Floats = X @ self.weights_.astype(X.dtype, copy=False)
            Z += self.offset_
            np.cos(Z, out=Z)
            Z *= (2.0 / self.width) ** 0.5  # rounds like RBFSampler
        return check_features(Z, X)


def _standardize_rows(X: Floats) -> Floats:
    """Standardize each row to mean 0 and standard deviation 1; constant rows become 0."""
    # scaling by a power of two is exact and avoids overflow and underflow of squares
    _, power = np.frexp(np.abs(X).max(axis=1, keepdims=True, initial=0.0))
    near = np.ldexp(X, -power)
    Z: Floats = near - near.mean(axis=1, keepdims=True)
    spread = Z.std(axis=1, keepdims=True)
    least = 8 * np.finfo(X.dtype).eps * np.abs(near).max(axis=1, keepdims=True, initial=0.0)
    Z /= np.where(spread > least, spread, np.inf)
    return Z
