"""QR of a triangle and a block of rows by matrix products, in PyTorch tensors on a device.

A block of rows [A b] is added to the triangle [R z] for some columns of R at a time. With their
diagonal block R_j and V = A_j R_j⁻¹, let C and T be upper triangles with positive diagonals in

    [I; V] = Q C,                          [−Vᵀ; I] = H T                                   (1)
    R_j ← C R_j,      A_j ← 0              in these columns                                 (2)
    [R z]_j ← Qᵀ [[R z]_j; A b],           [A b] ← Hᵀ [[R z]_j; A b]      in later columns  (3)

[Q H] is orthogonal, so this is a step of QRD-RLS [1]. The rows of [A b] are multiplied by triangles
T⁻ᵀ only: after the last columns b contains M⁻¹ e, where e are the errors before the block, M is a
lower triangle, and its diagonal is the product of those of all T. So the error of row k just before
it is learned is entry k of b times M_kk, as in :func:`onepass.linalg.update.absorb`.

(1) is computed from Gram matrices or, if V is large, by QR. Neither waits for the device.
Cost: 2 n p² multiplications.

[1] A. H. Sayed, "Fundamentals of Adaptive Filtering", 2003, on array algorithms.
"""

from __future__ import annotations

from typing import Any

_COLUMNS = 256  # smallest number of columns at once, so that few rows do not take many small steps


def add_rows(W: Any, A: Any, *, sharp: bool) -> tuple[Any, Any, Any]:
    """Add rows [A b] to the triangle [R z]: (1), (2), (3).

    Parameters
    ----------
    W : tensor of shape (p, p + c)
        [R z], which is updated in place; R is a nonsingular upper triangle.
    A : tensor of shape (n, p + c)
        [A b], which is overwritten.
    sharp : bool
        Whether to compute (1) by QR, which takes longer.

    Returns
    -------
    rest : tensor of shape (n, c)
        M⁻¹ e.
    spread : tensor of shape (n, 1)
        The diagonal of M.
    size : tensor of shape ()
        The largest sum of squares of a V. If it is large, the result is accurate only if ``sharp``.
    """
    import torch  # noqa: PLC0415  only if there is a tensor

    (n, _), p = A.shape, len(W)
    width = max(n, _COLUMNS)
    spread, size = torch.ones_like(A[:, :1]), torch.zeros_like(A[0, 0])
    for j in range(0, p, width):
        own, later = slice(j, min(j + width, p)), slice(min(j + width, p), None)
        R, above, below = W[own, own].triu(), W[own, later].clone(), A[:, later]
        V = torch.linalg.solve_triangular(R, A[:, own], upper=True, left=False)
        Q, Q_low, C = _orthonormal(V, sharp=sharp)
        H, H_low, T = _orthonormal(-V.mT, sharp=sharp)
        W[own, own] = C @ R
        W[own, later] = Q.mT @ above + Q_low.mT @ below
        A[:, later] = H.mT @ below + H_low.mT @ above
        spread, size = spread * T.diagonal()[:, None], size.maximum((V * V).sum())
    return A[:, p:], spread, size


def _orthonormal(V: Any, *, sharp: bool) -> tuple[Any, Any, Any]:
    """Both parts of orthonormal columns Q, and the upper triangle C, of [I; V] = Q C."""
    import torch  # noqa: PLC0415  only if there is a tensor

    one = V.new_ones(V.shape[1]).diag()
    E = torch.vstack((one, V))
    if sharp:
        Q, C = torch.linalg.qr(E)
        signs = C.diagonal().sign()
        Q, C = Q * signs, C * signs[:, None]
    else:
        C = torch.linalg.cholesky_ex(V.mT @ V + one, upper=True)[0]
        Q = torch.linalg.solve_triangular(C, E, upper=True, left=False)
    return Q[: len(one)], Q[len(one) :], C
