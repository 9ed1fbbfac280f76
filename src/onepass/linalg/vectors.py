"""Operations on NumPy arrays and tensors whose length is the number of weights.

Sums over all weights are accumulated in float64, at once or piece by piece: in float32 a sum of a
million squares loses three digits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import blas

from onepass.linalg.backend import host, is_tensor, like, numpy_view, on_device, small
from onepass.linalg.factorizations import eigh, ordered_cholesky, solve_lower, svd_both
from onepass.linalg.split import is_split, summed
from onepass.types import ArrayOrTensor, Floats

if TYPE_CHECKING:
    import torch

_LEAST_SQUARE = 1e-280  # smaller sums of squares may have underflowed
_LEAST_LENGTH = 1e-15  # squares of shorter float32 vectors may have underflowed
_FEW = 4096  # squares that may be summed in float32
_BEYOND = 1e300  # larger than any pivot
_SHORT = 1 << 14  # numbers of a vector; below this NumPy is faster
_PIECE = 1 << 16  # numbers that are converted to float64 at once
_WIDE = 1 << 12  # minimum number of weights per piece


def inner(A: ArrayOrTensor, B: Any) -> Any:
    """AᵀB of long A (p, k) and B (p, n), small, in float64."""
    if not is_tensor(A):
        return A.astype(np.float64, copy=False).T @ B.astype(np.float64, copy=False)
    import torch  # noqa: PLC0415  only if there is a tensor

    if A.dtype == torch.float64:
        return summed(small(A.T @ B))[0]
    total = torch.zeros(A.shape[1], B.shape[1], dtype=torch.float64, device=A.device)
    many = max((A.shape[1] + B.shape[1]) // 2, 1)
    piece = max(_PIECE // many, _WIDE) if A.device.type == "cpu" else max(len(A), 1)
    for i in range(0, len(A), piece):
        left = A[i : i + piece].double()
        total += left.T @ (left if B is A else B[i : i + piece].double())
    return summed(small(total))[0]


def times(U: ArrayOrTensor, M: ArrayOrTensor) -> Any:
    """U M of a long U (p, k) and a small M (k, n): a long array in U's precision."""
    small_one = like(M, U)
    return U * small_one[0] if U.shape[1] == 1 else U @ small_one


def moved(w: ArrayOrTensor, W: ArrayOrTensor, nu: ArrayOrTensor) -> Any:
    """W + W ν of long w and W (p, n) and a small ν (n, c)."""
    if is_tensor(w) and nu.shape == (1, 1):
        import torch  # noqa: PLC0415  only if there is a tensor

        return torch.addcmul(w, W.reshape(w.shape), like(nu, w).reshape(1))
    return w + times(W, nu).reshape(w.shape)


def add(A: ArrayOrTensor, c: ArrayOrTensor, rows: ArrayOrTensor, out: ArrayOrTensor) -> None:
    """A + c @ rows of long rows (q, p), written into ``out``, which may be A."""
    if not is_tensor(A):
        if out is A:
            out += c @ rows
        else:
            np.matmul(c, rows, out=out)
            out += A
        return
    import torch  # noqa: PLC0415  only if there is a tensor

    if A.ndim == 1:
        torch.addmv(A, rows.T, c, out=out)
    else:
        torch.addmm(A, c, rows, out=out)


def solve_lower_right(U: ArrayOrTensor, L: ArrayOrTensor) -> Any:
    """U L⁻ᵀ of a long U (p, n) and a lower triangle L (n, n)."""
    if is_tensor(U):
        eye = like(np.eye(len(L)), L)
        return times(U, solve_lower(L, eye).T)
    return solve_lower(L, U.T).T.astype(U.dtype, copy=False)


def norms(G: ArrayOrTensor) -> Any:
    """Euclidean norms of the columns of G, small, in float64, without overflow or underflow."""
    if not isinstance(G, np.ndarray):
        if is_split():
            return summed(_lengths(G) ** 2)[0] ** 0.5
        G = numpy_view(G) if len(G) < _SHORT else G  # NumPy has less overhead per call
        if not isinstance(G, np.ndarray):
            return _lengths(G)
    if G.shape[1] == 1 and len(G) and (G.itemsize == 8 or len(G) < _SHORT):
        return np.array([blas.dnrm2(G[:, 0])])  # in float64
    squares: Floats = np.einsum("ij,ij->j", G, G, dtype=np.float64)
    if squares.size == 0 or (squares.min() > _LEAST_SQUARE and squares.max() < math.inf):
        return np.sqrt(squares)
    largest = np.abs(G).max(axis=0, initial=0.0).astype(np.float64)
    scale = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    scaled = G / scale  # its squares neither overflow nor underflow
    lengths: Floats = scale * np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    return lengths


def largest(rows: ArrayOrTensor) -> Any:
    """The largest absolute value in each row of a long array (q, p), (q,), on the same device."""
    if not is_tensor(rows):
        return np.array([np.abs(row).max() for row in rows])
    import torch  # noqa: PLC0415  only if there is a tensor

    return torch.linalg.vector_norm(rows, ord=math.inf, dim=1)


def magnitude(A: Floats) -> float:
    """The largest absolute value of a finite NumPy array, 0 if it is empty."""
    if A.size == 0:
        return 0.0
    flat = A.ravel(order="K")
    return abs(float(flat[blas.idamax(flat)])) if A.itemsize == 8 else float(np.abs(flat).max())


def length(W: ArrayOrTensor) -> Any:
    """Euclidean norm of all numbers, in float64; a tensor on an accelerator."""
    if isinstance(W, np.ndarray) and W.itemsize == 8 and W.size:
        return blas.dnrm2(W.ravel(order="K"))
    return norms(W.reshape(-1, 1))[0]


def _lengths(G: torch.Tensor) -> Any:
    """The norms of a tensor's columns, in pieces; scaled first if squares overflow or underflow."""
    import torch  # noqa: PLC0415  only if there is a tensor

    norm, whole = torch.linalg.vector_norm, len(G) // _FEW * _FEW
    if not on_device(G) and G.numel():
        parts = norm(G.T[:, :whole].reshape(G.shape[1], -1, _FEW), dim=2).double()
        rest = norm(G[whole:], dim=0).double()
        lengths = torch.hypot(norm(parts, dim=1), rest)
        if bool(((lengths > _LEAST_LENGTH) & (lengths < 1.0 / _LEAST_LENGTH)).all()):
            return small(lengths)
    largest = G.abs().amax(dim=0).double() if len(G) else G.new_zeros(G.shape[1]).double()
    scale = torch.where((largest > 0.0) & largest.isfinite(), largest, 1.0)
    return small(scale * norm(G / scale.to(G.dtype), dim=0).double())


def orthonormal(
    U: ArrayOrTensor, least: ArrayOrTensor, lengths: ArrayOrTensor | None = None
) -> tuple[Any, Any, Any]:
    """Orthonormal W with U = W Lᵀ, by two Cholesky factorizations, and the independent columns.

    The second factorization restores orthogonality. It also yields the free parts themselves; the
    pivots of the first may be only rounding errors for columns that follow nearly parallel ones.

    Parameters
    ----------
    U : array of shape (p, n)
    least : array of shape (n,), small
        A column whose free part is no longer than this is skipped.
    lengths : array of shape (n,), small, optional
        ``norms(U)``, if known.

    Returns
    -------
    W : array of shape (p, n)
        Zero where a column was skipped.
    L : array of shape (n, n), small
    retained : array of bool of shape (n,), small
    """
    least = least + _smallest(U)
    if U.shape[1] == 1:
        length = norms(U) if lengths is None else lengths
        retained = (length > least) & (length < math.inf)
        height = length + ~retained  # about 1 for skipped columns
        return U * like(retained / height, U), (height * retained + ~retained)[:, None], retained
    squares = least**2
    S = inner(U, U)
    for _ in range(2 if on_device(U) else U.shape[1] + 1):
        L, retained = ordered_cholesky(S, squares)
        W = solve_lower_right(U, L) * like(retained, U)
        L2, left = ordered_cholesky(inner(W, W) + _diagonal(~retained), 0.0 * least)
        doubted = retained & ~(left & (L.diagonal() * L2.diagonal() > least))
        if not on_device(U) and not doubted.any():
            break
        first = doubted & (doubted.cumsum(0) == 1)
        squares = squares + small(first) * _BEYOND  # a bool times it would be nan
    W, retained = solve_lower_right(W, L2) * like(retained & ~doubted, U), retained & ~doubted
    return W, L @ L2, retained


def present(W: ArrayOrTensor, retained: ArrayOrTensor, *, waited: bool = False) -> Any:
    """The retained columns; on an accelerator all columns, to avoid synchronization.

    If ``waited``, they are selected on an accelerator too: for callers that need their number.
    """
    if on_device(W) and not waited:
        return W
    chosen = np.flatnonzero(host(retained))
    return W if len(chosen) == W.shape[1] else W[:, chosen]


def _diagonal(mask: ArrayOrTensor) -> Any:
    """A mask as a small diagonal matrix."""
    eye = np.eye(len(mask))
    return like(eye, mask.double()) * mask if is_tensor(mask) else eye * mask


def rows_are_finite(J: torch.Tensor) -> Any:
    """Which rows of a tensor (n, p) are finite; in float64 also their sums of squares.

    Nan and infinity propagate to sums and norms.
    """
    if J.itemsize == 8:
        import torch  # noqa: PLC0415  only if there is a tensor

        return torch.linalg.vector_norm(J, dim=1).isfinite()
    if on_device(J):
        return J.isfinite().all(dim=1)
    sums = J.sum(dim=1).isfinite()
    return sums if bool(sums.all()) else J.isfinite().all(dim=1)


def _smallest(U: ArrayOrTensor) -> float:
    """The smallest length that a column can be divided by."""
    return 1e-300 if U.dtype.itemsize == 8 else 1e-37


def rounding(G: ArrayOrTensor) -> float:
    """The machine epsilon of G's precision."""
    return _rounding(G.dtype)


@cache
def _rounding(dtype: object) -> float:
    if isinstance(dtype, np.dtype):
        return float(np.finfo(dtype).eps)
    import torch  # noqa: PLC0415  only if there is a tensor

    return float(torch.finfo(dtype).eps)


def blur(*arrays: ArrayOrTensor) -> float:
    """The relative rounding error of a vector, for the least precise of these arrays.

    Directions are sums of other vectors, each rounded once; shorter parts contain no information.
    """
    return max(rounding(array) * (2.0 if array.dtype.itemsize == 2 else 16.0) for array in arrays)


def resolution(G: ArrayOrTensor) -> float:
    """The smallest part of a gradient, relative to its length, that counts as new.

    Storing directions in half precision rotates them by this much.
    """
    if G.dtype.itemsize == 2:
        return 2.0 * rounding(G)
    return 1e-7 if G.dtype.itemsize == 8 else 1e-5


_SHARP = 1e-3  # share of the largest length below which squares lose too many digits
_MAX_USED = 0.95  # share of nonzero columns below which zero columns are dropped
_LEAST = 1e-12  # share of the largest length attributed to rounding


def principal(F: Floats, k: int) -> tuple[Floats, Floats]:
    """The top k right singular vectors of F (q, d), as rows (k, d), and its singular values.

    From the smaller of FFᵀ and FᵀF if squares retain enough digits, else from F itself. The first
    of the largest numbers of each vector, equal up to 1e-6, is positive, so that the result is
    unique. There are fewer than k vectors if F has a smaller rank.

    Parameters
    ----------
    F : ndarray of shape (q, d)
    k : int

    Raises
    ------
    LinAlgError
        If a number is not finite.
    """
    q, d = F.shape
    unit = magnitude(F) or 1.0  # so that no square underflows
    found = _by_squares(F / unit, min(k, q, d)) if min(q, d) else (F[:0], np.zeros(0))
    if found is None:
        _, lengths, directions = svd_both(F / unit)
        there = lengths > _LEAST * lengths.max(initial=0.0)
        found = directions[there][:k], lengths[there][:k]
    directions, lengths = found
    sizes = np.abs(directions)
    ties = sizes >= sizes.max(axis=1, keepdims=True, initial=0.0) * (1.0 - 1e-6)
    first = ties.argmax(axis=1) if directions.size else np.zeros(0, dtype=int)
    signs = np.sign(directions[np.arange(len(directions)), first])
    return directions * signs[:, None], lengths * unit


def _by_squares(F: Floats, k: int) -> tuple[Floats, Floats] | None:
    """`principal` by squares; None if they retain too few digits."""
    q, d = F.shape
    used = np.flatnonzero(F.any(axis=0))
    if q >= d and len(used) < _MAX_USED * d:
        found = _by_squares(F[:, used], k) if k <= len(used) else None
        if found is None:
            return None
        directions = np.zeros((k, d))
        directions[:, used] = found[0]
        return directions, found[1]
    values, vectors = eigh(F @ F.T if q < d else F.T @ F)
    squares = values[::-1][:k]
    if not squares[-1] > _SHARP**2 * squares[0]:
        return None
    lengths, top = np.sqrt(squares), vectors[:, ::-1][:, :k].T
    return (top @ F / lengths[:, None] if q < d else np.ascontiguousarray(top)), lengths
