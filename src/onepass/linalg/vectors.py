"""Operations on arrays whose length is the number of weights, of NumPy or torch.

Sums over all weights are accumulated in float64, at once or piece by piece: in float32 a sum of a
million squares loses three digits.
"""

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import blas

from onepass.linalg.backend import host, is_tensor, like, numpy_view, on_device, small
from onepass.linalg.factorizations import eigh, ordered_cholesky, solve_lower, svd_both
from onepass.types import ArrayOrTensor, Floats

if TYPE_CHECKING:
    import torch

__all__ = [
    "add",
    "blur",
    "inner",
    "largest",
    "length",
    "magnitude",
    "moved",
    "norms",
    "orthonormal",
    "present",
    "principal",
    "resolution",
    "rounding",
    "rows_are_finite",
    "solve_lower_right",
    "times",
]


_LEAST_SQUARE = 1e-280  # a smaller sum of squares may have lost digits to underflow
_LEAST_LENGTH = 1e-15  # of a tensor: of shorter ones, squares in float32 may have been lost
_FEW = 4096  # squares that may be summed in float32
_BEYOND = 1e300  # a square that no pivot reaches
_SHORT = 1 << 14  # numbers of a vector that are as soon widened as asked for
_PIECE = 1 << 16  # numbers of a tensor, and of another, that are widened to float64 at once
_WIDE = 1 << 12  # weights of which each, however many columns there are


def inner(A: ArrayOrTensor, B: Any) -> Any:
    """AᵀB of long A (p, k) and B (p, n), small, in float64."""
    if not is_tensor(A):
        return A.astype(np.float64, copy=False).T @ B.astype(np.float64, copy=False)
    import torch  # noqa: PLC0415  only where there is a tensor

    if A.dtype == torch.float64:
        return small(A.T @ B)
    total = torch.zeros(A.shape[1], B.shape[1], dtype=torch.float64, device=A.device)
    many = max((A.shape[1] + B.shape[1]) // 2, 1)
    piece = max(_PIECE // many, _WIDE) if A.device.type == "cpu" else max(len(A), 1)
    for i in range(0, len(A), piece):
        left = A[i : i + piece].double()
        total += left.T @ (left if B is A else B[i : i + piece].double())
    return small(total)


def times(U: ArrayOrTensor, M: ArrayOrTensor) -> Any:
    """U M of a long U (p, k) and a small M (k, n), as long, in U's precision."""
    small_one = like(M, U)
    return U * small_one[0] if U.shape[1] == 1 else U @ small_one


def moved(w: ArrayOrTensor, W: ArrayOrTensor, nu: ArrayOrTensor) -> Any:
    """W + W ν of long w and W (p, n) and a small ν (n, c)."""
    if is_tensor(w) and nu.shape == (1, 1):
        import torch  # noqa: PLC0415  only where there is a tensor

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
    import torch  # noqa: PLC0415  only where there is a tensor

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
    """Euclidean norms of the columns of G, small, in float64, whatever their size."""
    if is_tensor(G) and G.shape[0] < _SHORT:
        G = numpy_view(G)  # calls cost NumPy less
    if is_tensor(G):
        return _lengths(G)
    if G.shape[1] == 1 and len(G) and (G.itemsize == 8 or len(G) < _SHORT):
        return np.array([blas.dnrm2(G[:, 0])])  # in float64
    squares: Floats = np.einsum("ij,ij->j", G, G, dtype=np.float64)
    if squares.size == 0 or (squares.min() > _LEAST_SQUARE and squares.max() < math.inf):
        return np.sqrt(squares)
    largest = np.abs(G).max(axis=0, initial=0.0).astype(np.float64)
    scale = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    scaled = G / scale  # neither overflows when squared, nor is it lost
    lengths: Floats = scale * np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    return lengths


def largest(rows: ArrayOrTensor) -> Any:
    """The largest absolute value in each row of a long (q, p), (q,); of a device, there."""
    if not is_tensor(rows):
        return np.array([np.abs(row).max() for row in rows])
    import torch  # noqa: PLC0415  only where there is a tensor

    return torch.linalg.vector_norm(rows, ord=math.inf, dim=1)


def magnitude(A: Floats) -> float:
    """The largest absolute value of all, 0 if there is none; finite numbers of NumPy's."""
    if A.size == 0:
        return 0.0
    flat = A.ravel(order="K")
    return abs(float(flat[blas.idamax(flat)])) if A.itemsize == 8 else float(np.abs(flat).max())


def length(W: ArrayOrTensor) -> Any:
    """Euclidean length of all numbers together, in float64; of a device, a tensor there."""
    if not is_tensor(W) and W.itemsize == 8 and W.size:
        return blas.dnrm2(W.ravel(order="K"))
    return norms(W.reshape(-1, 1))[0]


def _lengths(G: "torch.Tensor") -> Any:
    """The norms of a tensor's columns: by pieces at once, unless squares were lost, then scaled."""
    import torch  # noqa: PLC0415  only where there is a tensor

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
    """Orthonormal W with U = W Lᵀ, by two Cholesky factorisations; and the columns that are new.

    The second restores orthogonality. It also knows the free parts by themselves, where the first
    has pivots, which behind columns that are nearly parallel may be rounding alone.

    Parameters
    ----------
    U : array of shape (p, n)
    least : array of shape (n,), small
        A column of which no more than this is new is skipped.
    lengths : array of shape (n,), small, optional
        ``norms(U)``, where they are known.

    Returns
    -------
    W : array of shape (p, n)
        Zero where a column was skipped.
    L : array of shape (n, n), small
    kept : array of bool of shape (n,), small
    """
    least = least + _smallest(U)
    if U.shape[1] == 1:
        length = norms(U) if lengths is None else lengths
        kept = (length > least) & (length < math.inf)
        height = length + ~kept  # 1, or so, where nothing is divided
        return U * like(kept / height, U), (height * kept + ~kept)[:, None], kept
    squares = least**2
    S = inner(U, U)
    for _ in range(2 if on_device(U) else U.shape[1] + 1):
        L, kept = ordered_cholesky(S, squares)
        W = solve_lower_right(U, L) * like(kept, U)
        L2, left = ordered_cholesky(inner(W, W) + _diagonal(~kept), 0.0 * least)
        doubted = kept & ~(left & (L.diagonal() * L2.diagonal() > least))
        if not on_device(U) and not doubted.any():
            break
        first = doubted & (doubted.cumsum(0) == 1)
        squares = squares + small(first) * _BEYOND  # a truth value times it would be nan
    W, kept = solve_lower_right(W, L2) * like(kept & ~doubted, U), kept & ~doubted
    return W, L @ L2, kept


def present(W: ArrayOrTensor, kept: ArrayOrTensor, *, waited: bool = False) -> Any:
    """The columns that are kept; all of them where that could only be known by waiting.

    Unless it is ``waited`` for, as where the number of columns decides what else is kept.
    """
    if on_device(W) and not waited:
        return W
    chosen = np.flatnonzero(host(kept))
    return W if len(chosen) == W.shape[1] else W[:, chosen]


def _diagonal(mask: ArrayOrTensor) -> Any:
    """A mask as a small diagonal matrix."""
    eye = np.eye(len(mask))
    return like(eye, mask.double()) * mask if is_tensor(mask) else eye * mask


def rows_are_finite(J: "torch.Tensor") -> Any:
    """Which rows of a tensor (n, p) are all finite, in float64 their squares as well.

    Nan and infinity survive a sum, or a norm.
    """
    if J.itemsize == 8:
        import torch  # noqa: PLC0415  only where there is a tensor

        return torch.linalg.vector_norm(J, dim=1).isfinite()
    if on_device(J):
        return J.isfinite().all(dim=1)
    sums = J.sum(dim=1).isfinite()
    return sums if bool(sums.all()) else J.isfinite().all(dim=1)


def _smallest(U: ArrayOrTensor) -> float:
    """The length of the shortest column that can be divided by it."""
    return 1e-300 if U.dtype.itemsize == 8 else 1e-37


def rounding(G: ArrayOrTensor) -> float:
    """The distance from 1 to the next number in G's precision."""
    return _rounding(G.dtype)


@cache
def _rounding(dtype: object) -> float:
    if isinstance(dtype, np.dtype):
        return float(np.finfo(dtype).eps)
    import torch  # noqa: PLC0415  only where there is a tensor

    return float(torch.finfo(dtype).eps)


def blur(*arrays: ArrayOrTensor) -> float:
    """How much of a vector may be rounding, relative to its length, of the least precise of these.

    Directions are sums of others, each rounded once: what is shorter says nothing.
    """
    return max(rounding(array) * (2.0 if array.dtype.itemsize == 2 else 16.0) for array in arrays)


def resolution(G: ArrayOrTensor) -> float:
    """The smallest part of a gradient, relative to its length, that counts as new.

    Directions of half precision are turned by so much as they are written down.
    """
    if G.dtype.itemsize == 2:
        return 2.0 * rounding(G)
    return 1e-7 if G.dtype.itemsize == 8 else 1e-5


_SHARP = 1e-3  # share of the largest length; of shorter axes, squares lose too many digits
_MOST_USED = 0.95  # of the columns that are not all zero: others, as dead pixels, are left out
_LEAST = 1e-12  # share of the largest length that is rounding


def principal(F: Floats, k: int) -> tuple[Floats, Floats]:
    """The top k right singular vectors of F (q, d), as rows (k, d), and its singular values.

    From the smaller of FFᵀ and FᵀF where squares keep enough digits, else from F itself. Of each
    vector the largest number is positive, so that the answer is one. There are fewer than k where
    F has no more.

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
    unit = magnitude(F) or 1.0  # so that no square is lost
    found = _by_squares(F / unit, min(k, q, d)) if min(q, d) else (F[:0], np.zeros(0))
    if found is None:
        _, lengths, directions = svd_both(F / unit)
        there = lengths > _LEAST * lengths.max(initial=0.0)
        found = directions[there][:k], lengths[there][:k]
    directions, lengths = found
    largest = np.abs(directions).argmax(axis=1) if directions.size else np.zeros(0, dtype=int)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return directions * signs[:, None], lengths * unit


def _by_squares(F: Floats, k: int) -> tuple[Floats, Floats] | None:
    """The same by squares; None where they keep too few digits."""
    q, d = F.shape
    used = np.flatnonzero(F.any(axis=0))
    if q >= d and len(used) < _MOST_USED * d:
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
