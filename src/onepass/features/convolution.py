"""Random convolutional features of images: fixed filters over all patches, without training.

A patch p of s × s pixels and all channels is normalised to mean 0 and unit contrast [4],

    p ← (p − mean p) / √(var p + contrast²)                                                    (1)

With filters w of mean 0 and length 1, each filter maps a patch to two numbers [1, 2],

    z⁺ = max(0, w·p − t),        z⁻ = max(0, −w·p − t)                                         (2)

and the features are their means over the cells of a pool × pool grid, raised to a power ≤ 1 [3].
Filters are Gaussian noise, or patches drawn from images where they are not blank [1].

Cost: O(places · s² · filters) time per row; O(s² · filters) memory.

[1] A. Coates, A. Y. Ng, "The importance of encoding versus training with sparse coding and vector
    quantization", ICML 2011; (2) is its soft threshold, and random patches its dictionary.
[2] A. Saxe et al., "On random weights and unsupervised feature learning", ICML 2011.
[3] F. Perronnin, J. Sánchez, T. Mensink, "Improving the Fisher kernel for large-scale image
    classification", ECCV 2010, section 3.2 (power normalisation).
[4] A. Coates, H. Lee, A. Y. Ng, "An analysis of single-layer networks in unsupervised feature
    learning", AISTATS 2011, section 3.2.1.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from onepass import validation
from onepass.declared import State, param
from onepass.errors import ParameterError, ShapeError, public
from onepass.features.random_features import Frozen, check_features
from onepass.features.transformer import Starts
from onepass.types import Array, Floats
from onepass.validation.table import TableLike


class PatchGrid(NamedTuple):
    """The positions of the patches of an image: every pixel at which a complete patch starts."""

    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    size: int
    """Side of a patch in pixels."""
    padding: int = 0
    """Width of the zero padding in pixels."""

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and of columns of patches."""
        more = 2 * self.padding - self.size + 1
        return self.shape[1] + more, self.shape[2] + more

    @property
    def numbers(self) -> int:
        """Number of values of a patch."""
        return self.shape[0] * self.size**2


_X = TypeVar("_X")


def _brightness(X: _X) -> _X | Floats:
    """Convert bytes from 0 to 255 to pixels in [0, 1]; return other values unchanged."""
    if getattr(X, "dtype", None) == np.uint8:
        return np.asarray(X, dtype=np.float32) / np.float32(255)
    return X


def _patches(X: Floats, places: PatchGrid) -> Floats:
    """Return all patches of images, centred."""
    c, s = places.shape[0], places.size
    pictures, edge = X.reshape(-1, *places.shape), (places.padding, places.padding)
    if places.padding:
        pictures = np.pad(pictures, ((0, 0), (0, 0), edge, edge))
    windows = sliding_window_view(pictures, (s, s), axis=(2, 3))
    h, w = places.grid
    rows: Floats = windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(X), h * w, c * s * s)
    centred: Floats = np.subtract(
        rows, rows.mean(axis=2, keepdims=True)
    )  # rows may share memory with X
    return centred


def _normalised(centred: Floats, contrast: float) -> Floats:
    """Apply (1) to centred patches, in place; patches without contrast become 0."""
    variance = np.einsum("...i,...i->...", centred, centred) / centred.shape[-1]
    variance[np.isinf(variance)] = np.nan  # overflow is not low contrast
    spread = np.sqrt(variance + contrast * contrast)
    centred /= np.where(spread == 0.0, 1.0, spread)[..., None].astype(centred.dtype, copy=False)
    return centred


def _threshold_features(
    centred: Floats, W: Floats, contrast: float, threshold: float, share: Floats
) -> Floats:
    """Return the features (2), averaged over cells."""
    found = _normalised(centred, contrast) @ W
    t = found.dtype.type(threshold)
    above = found - t
    np.maximum(above, 0.0, out=above)
    np.negative(found, out=found)
    found -= t
    np.maximum(found, 0.0, out=found)
    return np.stack((share @ above, share @ found), axis=2)


def _directions(drawn: Floats) -> Floats:
    """Convert filters to mean 0 and length 1, as float32."""
    W = drawn - drawn.mean(axis=1, keepdims=True)
    length = np.linalg.norm(W, axis=1, keepdims=True)
    unit: Floats = (W / np.where(length > 0.0, length, 1.0)).astype(np.float32)
    return unit


def pooling_matrix(grid: tuple[int, int], pool: int, overlap: float = 0.0) -> Array:
    """Return the matrix that averages over the cells of a pool × pool grid.

    Parameters
    ----------
    grid : tuple of int
        Numbers of rows and of columns of patches.
    pool : int
        Number of cells per side, at most the number of patches per side.
    overlap : float, default=0.0
        Standard deviation of the Gaussian weights of a cell, in units of its side; with 0, weights
        are equal inside the cell and 0 outside.

    Returns
    -------
    ndarray of shape (pool², places)

    Examples
    --------
    >>> pooling_matrix((2, 3), 1).round(2).tolist()
    [[0.17, 0.17, 0.17, 0.17, 0.17, 0.17]]
    >>> pooling_matrix((1, 4), 1, overlap=0.5).round(2).tolist()
    [[0.22, 0.28, 0.28, 0.22]]
    """
    down, across = (
        _gaussian(length, pool, overlap) if overlap else _means(length, pool) for length in grid
    )
    return np.kron(down, across)


def _means(length: int, parts: int) -> Floats:
    """Return the matrix (parts, length) of means over nearly equal parts of a line."""
    edges = np.round(np.linspace(0, length, parts + 1)).astype(int)
    share = np.zeros((parts, length))
    for k in range(parts):
        share[k, edges[k] : edges[k + 1]] = 1.0 / (edges[k + 1] - edges[k])
    return share


def _gaussian(length: int, parts: int, overlap: float) -> Floats:
    """Return the matrix (parts, length) of means with Gaussian weights about each part's middle."""
    middle = (np.arange(parts) + 0.5) * length / parts - 0.5
    away = np.abs(np.arange(length) - middle[:, None]) * parts / length
    nearest = away.min(axis=1, keepdims=True)  # the largest weight is 1, however narrow they are
    with np.errstate(over="ignore"):
        share: Floats = np.exp((nearest - away) / overlap * (nearest + away) / overlap / 2.0)
    share /= share.sum(axis=1, keepdims=True)
    return share


def _shape_of(d: int, shape: object, name: str) -> tuple[int, int, int]:
    """Return channels, height and width of flat images: the given shape, or a square."""
    if shape is None:
        side = math.isqrt(d)
        if side * side == d:
            return 1, side, side
    elif isinstance(shape, (tuple, list)) and len(shape) in {2, 3}:
        c, h, w = (validation.whole(k, "shape", low=1) for k in (1, *shape)[-3:])
        return c, h, w
    raise ParameterError(
        "`shape` must be (height, width) or (channels, height, width) for rows that "
        f"are not square images, got {shape} for {d} columns. Set `shape` in the "
        "constructor, or pass images of shape (n, channels, height, width).",
        name,
    )


_NAME = "RandomConvolution"
_PART_SIZE = 1 << 18  # numbers in a part, so that it stays in cache
_MIN_CONTRAST = (
    0.05  # minimal standard deviation of a drawn patch, relative to the range of the image
)


@dataclass(eq=False, repr=False)
class RandomConvolution(Frozen):
    """Fixed filters over all patches of images, thresholded on both sides and pooled.

    Rows are images, flat or of shape (n, height, width) or (n, channels, height, width), with
    pixels in [0, 1]; bytes (uint8) are divided by 255. Nothing is trained. In a Pipeline,
    recursive least squares after it has ``prior=10.0`` by default, in units of each feature's first
    value. With ``RLSClassifier(ridge=0.1, prior=0.0)`` the final model does not depend on the order
    of rows and classes.

    With ``source="patches"`` the filters are one random patch of each of the first ``filters`` rows
    that are not of a single colour. A filter is used from the next row; until then, its features
    are 0. Filters therefore depend on the first rows of the stream, but not on block sizes.

    Parameters
    ----------
    filters : int, default=100
        Number of filters, >= 1; each has two features per cell.
    size : int, default=6
        Side of a filter in pixels, >= 2.
    pool : int, default=4
        Number of cells per side over which features are averaged, >= 1.
    threshold : float, default=0.15
        t of (2), >= 0. Responses of filters to a patch of noise have standard deviation 1.
    contrast : float, default=0.1
        Constant of (1), >= 0, in units of pixel values; patches with a smaller standard deviation
        are attenuated.
    padding : int, default=0
        Width of the zero padding in pixels, >= 0 and less than ``size``.
    overlap : float, default=0.0
        Standard deviation, >= 0 and in units of a cell's side, of Gaussian weights about the middle
        of the cell, so that small shifts of an image change the features little; with 0, all
        patches of a cell have equal weight.
    power : float, default=1.0
        Power of the means, in (0, 1]; 0.5 takes square roots.
    source : {"random", "patches"}, default="random"
        Source of filters: normal noise, or patches of the first rows.
    seed : int, default=0
        Seed of the filters or the choice of patches, >= 0.
    shape : tuple of int, optional
        (height, width) or (channels, height, width) of flat rows; by default square and of one
        channel.

    Attributes
    ----------
    filters_ : ndarray of float32, shape (filters, channels · size²)
        w of (2); zeros for filters that are not drawn yet.
    drawn_ : int
        Number of filters drawn.
    shape_ : tuple of int
        (channels, height, width).
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        When learning begins, if a parameter is out of range or incompatible with the images.
    ShapeError
        If images have another shape than the first.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import onepass as op
    >>> X, y = load_digits(return_X_y=True)
    >>> model = op.Pipeline(RandomConvolution(20, size=3, pool=3), op.RLSClassifier(ridge=0.1))
    >>> labels = model.fit(X[:1000] / 16.0, y[:1000]).predict(X[1000:] / 16.0)
    >>> float((labels == y[1000:]).mean().round(1))
    1.0
    """

    _prefix: ClassVar[str] = "conv"
    _recommended_prior: ClassVar[float] = 10.0
    _draws: ClassVar[tuple[str, ...]] = ("filters_", "drawn_", "shape_")

    filters_ = State[Floats]()
    drawn_ = State[int]()
    shape_ = State[tuple[int, int, int]]()

    filters: int = param(100, whole=True, low=1)
    _: KW_ONLY
    size: int = param(6, whole=True, low=2)
    pool: int = param(4, whole=True, low=1)
    threshold: float = param(0.15, low=0.0)
    contrast: float = param(0.1, low=0.0)
    padding: int = param(0, whole=True, low=0)
    overlap: float = param(0.0, low=0.0)
    power: float = param(1.0, above=0.0, high=1.0)
    source: str = param("random", choices=("random", "patches"))
    seed: int = param(0, whole=True, low=0)
    shape: tuple[int, ...] | None = None

    @property
    def _stored_rows(self) -> str:  # type: ignore[override]  # by parameter
        """What the state contains of single rows, with a remedy; empty if nothing."""
        drawn = self.source == "patches"
        return "whose filters are patches of rows; use source='random'" if drawn else ""

    @property
    @public
    def n_features_out_(self) -> int:
        """Number of output columns: two for each filter and cell."""
        return 2 * int(self.pool) ** 2 * int(self.filters)

    def _check_rows(self, X: TableLike, *, learning: bool) -> Floats:
        """Return images as a finite matrix."""
        form = np.shape(X)[1:] if hasattr(X, "shape") else ()
        if len(form) in {2, 3}:
            self._check_shape((1, *form)[-3:], learning=learning)
            array = np.asarray(X)
            X = array.reshape(len(array), math.prod(form))
        return super()._check_rows(_brightness(X), learning=learning)

    def _check_row(self, x: Any, *, learning: bool) -> Floats:
        """Return one image as a matrix of one row."""
        if len(np.shape(x)) in {2, 3}:
            return self._check_rows(np.asarray(x)[None], learning=learning)
        return super()._check_row(_brightness(x), learning=learning)

    @public
    def _transform_rows(self, checked_rows: Floats) -> Floats:
        """Transform each row as if it were the next one; no filters are drawn."""
        if hasattr(self, "n_features_in_") or self.source == "random":
            return super()._transform_rows(checked_rows)
        return np.zeros((len(checked_rows), self.n_features_out_), dtype=checked_rows.dtype)

    # -- hooks -------------------------------------------------------------------------------------

    def _start(self, d: int) -> None:
        shape = getattr(self, "shape_", None) or _shape_of(d, self.shape, _NAME)
        size, padding, pool = self.size, self.padding, self.pool
        room = min(shape[1:]) - size + 1
        if math.prod(shape) != d or not 0 < room > pool - 2 * padding - 1 or padding >= size:
            raise ParameterError(
                "`shape` must match the number of columns, `size` must be greater than `padding`, "
                f"and each side must have at least `pool` patches, got {d} columns, shape {shape}, "
                f"size {size}, pool {pool} and padding {padding}. Change these parameters."
            )
        self.shape_ = shape
        F, p = self.n_features_out_ // (2 * pool**2), shape[0] * size**2
        self.filters_, self.drawn_ = np.zeros((F, p), dtype=np.float32), 0
        if self.source == "random":
            drawn = np.random.default_rng(self.seed).normal(size=(F, p))
            self.filters_, self.drawn_ = _directions(drawn), F

    def _widen(self, d: int) -> None:
        raise ShapeError(
            f"images must have {self.n_features_in_} numbers, as in the first block, "
            f"got {d}. Start a new transformer for other images.",
            f"{_NAME}.grow",
        )

    def _step(self, X: Floats, starts: Starts) -> tuple[Floats, Starts]:
        del starts
        drawn_before = self.drawn_
        since = self._draw(X)
        Z = self._transform_block(X)
        if self.drawn_ > drawn_before:
            by_filter = Z.reshape(len(X), -1, len(self.filters_))
            for j, row in enumerate(since, start=drawn_before):
                by_filter[:row, :, j] = 0.0
        return Z, Starts.none(Z.shape[1])

    def _draw(self, X: Floats) -> list[int]:
        """Draw one filter per row until all are drawn; return the rows of their first use."""
        F, since = len(self.filters_), list[int]()
        if self.drawn_ == F:
            return since
        filters, drawn = self.filters_.copy(), self.drawn_
        inside = self._grid._replace(padding=0)
        for i in range(len(X)):
            if drawn == F:
                break
            centred = _patches(X[i : i + 1].astype(np.float64), inside)[0]
            spread = centred.std(axis=1)
            clear = spread > _MIN_CONTRAST * np.ptp(X[i])
            if clear.any():
                keys = np.random.default_rng((self.seed, drawn)).random(len(clear))
                filters[drawn] = _directions(centred[None, np.argmax(keys * clear)])[0]
                since.append(i + 1)
                drawn += 1
        self.filters_, self.drawn_ = filters, drawn
        return since

    def _transform_block(self, X: Floats) -> Floats:
        W = self.filters_.T.astype(X.dtype, copy=False)
        places = self._grid
        share = pooling_matrix(places.grid, self.pool, self.overlap).astype(X.dtype)
        n, F = len(X), W.shape[1]
        Z = np.empty((n, len(share), 2, F), dtype=X.dtype)
        step = max(1, _PART_SIZE // (share.shape[1] * max(F, len(W))))
        with np.errstate(over="ignore", invalid="ignore"):
            for i in range(0, n, step):
                P = _patches(X[i : i + step], places)
                Z[i : i + step] = _threshold_features(P, W, self.contrast, self.threshold, share)
            if self.power != 1.0:
                Z **= self.power
        return check_features(Z.reshape(n, self.n_features_out_), X)

    def _merge_conflict(self, other: Any) -> str:
        """Return a reason if the filters are patches of different rows."""
        conflict = super()._merge_conflict(other)
        if conflict and self.source == "patches":
            return (
                "its filters are patches of its own first rows. Create both from one copy that "
                "has drawn all its filters"
            )
        return conflict

    # -- shapes ------------------------------------------------------------------------------------

    @property
    def _grid(self) -> PatchGrid:
        return PatchGrid(self.shape_, int(self.size), int(self.padding))

    @property
    def _sound(self) -> bool:
        """Whether the attributes of a loaded file are consistent."""
        if not hasattr(self, "n_features_in_"):
            return True
        F, p = self.filters_.shape
        places = self._grid
        return bool(
            self.filters_.dtype == np.float32
            and (self.n_features_in_, p) == (math.prod(self.shape_), places.numbers)
            and F * 2 * self.pool**2 == self.n_features_out_
            and 0 <= self.drawn_ <= F
            and min(places.grid) >= self.pool
        )

    def _check_shape(self, got: tuple[int, ...], *, learning: bool) -> None:
        """Store the shape of the first images; reject other shapes."""
        begun = hasattr(self, "n_features_in_")
        fitted = self.shape_ if begun else self.shape and (1, *self.shape)[-3:]
        if fitted and tuple(fitted) != got:
            raise ShapeError(
                f"images must have shape {tuple(fitted)}, channels first, as the first "
                f"images, got {got}. Start a new transformer for other images."
            )
        if learning and not begun:
            self.shape_ = (int(got[0]), int(got[1]), int(got[2]))
