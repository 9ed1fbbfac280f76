"""Recursive least squares in PyTorch tensors on a device, for blocks of rows with many features.

The triangle, the means and the sums of :mod:`onepass.memory.least_squares` remain on the device
between blocks, as in the vector, so that learning continues from a file bit for bit. Row k of a
block of n rows with weights s_k has the weight u_k, in units of the last row. With an intercept it
is centred at the means of the rows before it; the masses are M_k = λⁿ M₀ + u₁ + … + u_k:

    u_k = λ^(n−k) s_k,      h_k = u_k M_{k−1} / M_k;   without an intercept h_k = u_k         (1)
    a_k = x_k − x̄_{k−1},    x̄_k = x̄₀ + Σ_{i≤k} u_i (x_i − x̄₀) / M_k                          (2)
    [R z] ← triangle of √λⁿ [R z] and the rows √h_k [a_k b_k],   b_k = y_k − ȳ_{k−1}         (3)

:mod:`onepass.linalg.block_qr` computes (3), and the error of each row just before it is learned.
Rows that it cannot add accurately, and rows before the past determines all weights, are learned on
the host. Each block synchronizes once, to read its errors and whether the result is accurate; the
weights are read on the host, so that they do not depend on where the last rows were learned.
Cost: 2 p² multiplications per row, O(p²) memory.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from onepass import linalg
from onepass.errors import ParameterError, import_extra
from onepass.linalg.block_qr import add_rows
from onepass.memory import plain
from onepass.memory.vector import HEAD, Flag, Parts, Slot
from onepass.types import Array, Floats

_WIDTH = 1024  # rows that are added at once
_DEEPEST = -10.0  # log2 of the smallest fade within these rows
_SAFE_GRAM = 1e4  # V is not large if the sum of its squares is below this bound
_REACH = 1e6  # largest safe ratio of a row to the diagonal entry of R in each feature
_SMALLEST = 1e-50  # squares of larger diagonal entries, and their sums, are safe


class Device:
    """The device on which a learner learns blocks.

    Parameters
    ----------
    name : str
        A device of PyTorch, such as ``"cuda"``.
    rule : forgetting rule
    who : str
        The name of the learner, for messages.

    Raises
    ------
    ParameterError
        If the device does not exist or has no float64, or the rule has no constant factor.
    MissingExtraError
        If PyTorch is not installed.
    """

    def __init__(self, name: str, rule: Any, who: str) -> None:
        self.torch: Any = import_extra("torch", extra="torch")
        fading = rule.fading
        stored = fading.window is not None or fading.mixture
        if rule.clock or stored or fading.level or fading.held:
            raise ParameterError(
                "`forgetting` must be 1.0 or op.forgetting.Exponential(factor) with "
                f"device={name!r}, got {rule}. Use one of these, or device=None.",
                who,
            )
        try:
            place = self.torch.device(name if isinstance(name, str) else "")  # a name, for files
            self.like = self.torch.zeros(1, dtype=self.torch.float64, device=place)
            self.like.item()  # "meta" has no values
        # AssertionError if torch is built without the device
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ParameterError(
                "`device` must be None or a device with float64 that is available to torch, such "
                f"as 'cpu' or 'cuda', got {name!r}. Pass None to learn on the CPU.",
                who,
            ) from error

    def tensor(self, array: Array) -> Any:
        """Copy an array to the device, as float64; on the CPU it may be a view."""
        return linalg.like(np.require(array, None, ("C", "W")), self.like)


class DeviceState:
    """A vector of least squares in tensors.

    Parameters
    ----------
    device : Device
    vector : ndarray
        A vector that :meth:`of` accepts; it is copied.
    """

    def __init__(self, device: Device, vector: Floats) -> None:
        parts = Parts(vector)
        self.device, self.d, width = device, parts.d, parts.d + parts.c
        self.head, self.start = parts.head.copy(), parts.start.copy()
        self.prior = device.tensor(parts.prior[: self.d].copy())
        arrays = np.triu(parts.T[:, :width]), np.stack((parts.means, parts.rests))[:, :width]
        self.T, self.means = map(device.tensor, arrays)
        arrays = parts.sums[:width].copy(), parts.squares.copy()
        self.sums, self.squares = map(device.tensor, arrays)

    @classmethod
    def of(cls, device: Device, vector: Floats) -> Self | None:
        """Copy a vector to the device; None if its next rows must be learned on the host.

        That is so while a weight is undetermined or a prior may be removed, and for factors below
        2⁻⁸.
        """
        parts = Parts(vector)
        prior, ridge = parts.prior[: parts.d], parts.head[Slot.RIDGE]
        removable = bool(parts.flags & Flag.UNITS) and (
            (prior > 0.0).any() or (ridge == 0.0 and (prior == 0.0).any())
        )
        if removable or parts.head[Slot.FACTOR] < plain.SUDDEN:
            return None
        return cls(device, vector) if np.diagonal(parts.T).min() > _SMALLEST**2 else None

    def copy(self) -> Self:
        """A copy that shares the tensors, which are never modified."""
        return copy.copy(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        tensors = (self.T, self.means, self.sums, self.squares, self.prior)
        return sum(tensor.nbytes for tensor in tensors)

    def vector(self) -> Floats:
        """Copy the state to a vector."""
        vector, width = np.zeros(Parts(self.head).size), self.means.shape[1]
        vector[:HEAD] = self.head
        parts = Parts(vector)
        parts.T[:, :width], parts.head[Slot.FRESH] = linalg.host(self.T), 0.0
        parts.means[:width], parts.rests[:width] = linalg.host(self.means)
        parts.sums[:width], parts.squares[:] = map(linalg.host, (self.sums, self.squares))
        parts.prior[: len(self.prior)], parts.start[:] = linalg.host(self.prior), self.start
        return vector

    def learn(self, X: Floats, Y: Floats, weights: Floats | None, errors: Floats) -> int:
        """Learn rows X (n, d), Y (n, c) of some weights (n,); write errors just before, (n, c).

        Returns the number of rows learned: the next ones must be learned on the host.
        """
        width = int(_DEEPEST / min(self.head[Slot.FACTOR], _DEEPEST / _WIDTH))
        for i in range(0, len(X), width):
            rows = slice(i, i + width)
            s = np.ones(len(X[rows])) if weights is None else weights[rows]
            block = X[rows], Y[rows], s, errors[rows]
            if not (self._add(*block, sharp=False) or self._add(*block, sharp=True)):
                return i
        return len(X)

    def _add(self, X: Floats, Y: Floats, weights: Floats, errors: Floats, *, sharp: bool) -> bool:
        """Learn a block; return False, with the state unchanged, if the result is inaccurate."""
        torch, d, n, head = self.device.torch, self.d, len(X), self.head.copy()
        log, fade = head[Slot.FACTOR], float(np.exp2(n * head[Slot.FACTOR]))
        ages = np.exp2(log * np.arange(n - 1.0, -1.0, -1.0))
        u = ages * weights
        masses = fade * head[Slot.MASS] + np.append(0.0, np.cumsum(u))
        rows, means = torch.hstack((self.device.tensor(X), self.device.tensor(Y))), self.means
        free = bool(int(head[Slot.FLAGS]) & Flag.FREE)
        if free:
            rows, means = self._centred(rows, u, masses)
        roots = self.device.tensor(np.sqrt(u * (masses[:-1] / masses[1:]) if free else u))[:, None]
        W, sums = self._triangle().mul_(fade**0.5), self.sums * fade
        prior = (
            self._with_new_features(W, sums, rows[:, :d], ages) if len(self.prior) else self.prior
        )
        rows, depth = rows.mul_(roots), W.diagonal().abs()
        sums += (rows * rows).sum(0)
        calm = (rows[:, :d].abs().amax(0) <= _REACH * depth).all() & (depth.min() > _SMALLEST)
        rest, spread, size = add_rows(W, rows, sharp=sharp)  # (3)
        w = torch.linalg.solve_triangular(W[:, :d], W[:, d:], upper=True)
        squares = self.squares * fade + (rest * rest).sum(0)
        finite = w.isfinite().all() & squares.isfinite().all()
        good = calm & finite & ((size < _SAFE_GRAM) | sharp)
        numbers = linalg.host(torch.cat(((rest * spread / roots).flatten(), good.to(rest)[None])))
        if not numbers[-1]:
            return False
        errors[:] = numbers[:-1].reshape(errors.shape)
        if free and masses[0] == 0.0:  # the first row only sets the means
            errors[0] = Y[0] - (self.start @ X[0] if len(self.start) else 0.0)
        head[[Slot.ROWS, Slot.FADED]] += n, n * log
        head[Slot.MASS] = masses[-1]
        self.head, self.prior = head, prior
        pivot = W.diagonal()[:, None]
        self.T, self.means = (W / pivot).diagonal_scatter(pivot[:, 0].square()), means
        self.sums, self.squares = sums, squares
        return True

    def _triangle(self) -> Any:
        """[R z], which the vector holds as diag(R)² and rows divided by the diagonal."""
        depth = self.T.diagonal()
        return self.T.diagonal_scatter(depth.new_ones(len(depth))).mul_(depth.sqrt()[:, None])

    def _centred(self, rows: Any, u: Floats, masses: Floats) -> tuple[Any, Any]:
        """Subtract in place the means before each row; also return the means after them: (2).

        Each mean is the sum of two numbers, the second of which is the rounding error of the first.
        """
        mean, rest = self.means if masses[0] > 0.0 else (rows[0].clone(), self.means[1])
        rows.sub_(mean).sub_(rest)
        weights, mass = (self.device.tensor(part)[:, None] for part in (u, masses[1:]))
        moved = (weights * rows).cumsum(0) / mass
        rows[1:] -= moved[:-1]
        more = rest + moved[-1]
        total = mean + more
        back = total - mean
        return rows, self.device.torch.stack((total, (mean - (total - back)) + (more - back)))

    def _with_new_features(self, W: Any, sums: Any, rows: Any, ages: Floats) -> Any:
        """Add the prior of features that centred rows excite first, in place; return the prior.

        So far the row and the column of R of such a feature are 0 but for the diagonal.
        """
        excited, fade = rows != 0.0, float(np.exp2(len(rows) * self.head[Slot.FACTOR]))
        new, first = excited.any(0) & (self.prior == 0.0), excited.byte().argmax(0)
        size = rows.gather(0, first[None])[0].square() * self.device.tensor(ages)[first]
        size = size * (float(self.head[Slot.PRIOR]) * new)
        diagonal = W.diagonal().clone()
        W.mul_((diagonal.hypot(size.sqrt()) / diagonal.abs()).where(new, 1.0)[:, None])
        sums[: self.d] += size
        faded = (self.prior * fade).clamp_min(np.finfo(float).tiny)  # 0 is a feature not seen
        return faded.where(self.prior > 0.0, self.prior + size)
