"""Bases: the directions that a layer's inputs have, as far as they matter: (2) and (3) of GPM."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from onepass import linalg, validation
from onepass.columns import Columns
from onepass.errors import ParameterError, listed

__all__ = ["grown", "thresholds", "triangle"]


def triangle(before: Any, vectors: Any) -> Any:
    """What has the same RRᵀ as all vectors R so far, in float64, at most d × d for each group.

    Parameters
    ----------
    before : Tensor of shape (groups, at most d, d), or None
    vectors : Tensor of shape (groups, N, d)
    """
    rows = vectors.double()
    rows = rows if before is None else torch.cat((before, rows), dim=1)
    return rows if rows.shape[1] <= rows.shape[2] else torch.linalg.qr(rows, mode="r").R


def grown(basis: Columns | None, T: Any, threshold: float, kind: Any) -> Columns:
    """M with so many directions of R̂ that the threshold is reached: [1] (8), (9).

    Parameters
    ----------
    basis : Columns, optional
        M, of d numbers each; none before the first task.
    T : Tensor of shape (N, d)
        Rᵀ, or its triangle, in float64.
    threshold : float
        ε.
    kind : Tensor
        Of the precision of M, on its device.
    """
    d = T.shape[1]
    basis = Columns.start(d, kind, 1) if basis is None else basis
    M = basis.rows.double()
    rest = T - (T @ M.T) @ M
    rest = rest - (rest @ M.T) @ M
    _, sigma, V = torch.linalg.svd(rest, full_matrices=False)
    whole, energy = T.square().sum(), sigma.square()
    held = whole - energy.sum()
    # Here, once a task, a device is waited for: how many columns there are must be known.
    short = held + energy.cumsum(0) < threshold * whole * (1.0 - 1e-12)
    some = held < threshold * whole * (1.0 - 1e-12)
    alive = sigma > linalg.rounding(kind) * d**0.5 * whole.sqrt()
    k = min(int(short.sum()) + int(some), int(alive.sum()))
    if not k:
        return basis
    new = basis.split(V[:k].T.to(kind.dtype)).outside
    W, _, kept = linalg.orthonormal(new, linalg.small(torch.full_like(new[0], 0.5)))
    return basis.appended(linalg.present(W, kept))


def thresholds(given: Any, names: list[str], where: str) -> dict[str, float]:
    """ε of each layer.

    Raises
    ------
    ParameterError
        If one is missing or not in (0, 1], or a name means no layer.
    """
    if isinstance(given, Mapping):
        return {name: _level(_meant(given, name, names, where), where) for name in names}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(names):
            raise ParameterError(
                f"{where}: `threshold` must have one number for each of the {len(names)} layers "
                f"{listed(names)}, got {len(given)}. Give a single one for all, or a dict by names."
            )
        return {name: _level(each, where) for name, each in zip(names, given, strict=True)}
    return {name: _level(given, where) for name in names}


def _meant(given: Mapping[str, Any], name: str, names: list[str], where: str) -> Any:
    for pattern in given:
        if not any(fnmatchcase(each, str(pattern)) for each in names):
            raise ParameterError(
                f"{where}: `threshold` must name layers, got {pattern!r}, which means none of "
                f"{listed(names)}. Use their names or patterns, such as '*'."
            )
    for pattern, level in given.items():
        if fnmatchcase(name, str(pattern)):
            return level
    raise ParameterError(
        f"{where}: `threshold` must have a number for each layer, got none for {name!r}. "
        "Add it, or '*' at the end for all others."
    )


def _level(given: Any, where: str) -> float:
    return validation.in_range(given, "threshold", where, above=0.0, high=1.0)
