"""Recursive least squares in PyTorch tensors on a device, for blocks of rows with many features.

The state of :mod:`onepass.memory.square_root`, [R z] and the means, remains on the device between
blocks; :mod:`onepass.linalg.block_qr` adds the blocks. Rows that it cannot add accurately, and rows
before the past determines all directions, are learned in NumPy arrays. Each block synchronizes
once, to read its errors and whether the result is accurate. Cost: 2 p² multiplications per row,
O(p²) memory.
"""

import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from onepass import linalg
from onepass.errors import ParameterError, import_extra
from onepass.learners.rls_compiled import ArrayState, fading
from onepass.linalg.block_qr import add_rows
from onepass.memory.floor import Floor, rows_between
from onepass.memory.forgetting import Bounded, Exponential
from onepass.memory.forgetting.exponential import LeastSquaresState, NewRows
from onepass.memory.square_root import Prior
from onepass.serialization.state import nbytes
from onepass.types import Array, Floats

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Device", "DeviceRows"]

_WIDTH = 1024  # rows that are added at once
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
        self.torch: Any = import_extra("torch", extra="torch", where=f"{who}(device={name!r})")
        if type(rule) not in {Bounded, Exponential} or not fading(rule)[0] or fading(rule)[1]:
            raise ParameterError(
                f"{who}: `forgetting` must be 1.0 or op.forgetting.Exponential(factor) with "
                f"device={name!r}, got {rule}. Use one of these, or device=None."
            )
        try:
            place = self.torch.device(name if isinstance(name, str) else "")  # a name, for files
            self.like = self.torch.zeros(1, dtype=self.torch.float64, device=place)
            self.like.item()  # "meta" has no values
        # AssertionError if torch is built without the device
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ParameterError(
                f"{who}: `device` must be None or a device with float64 that is available to "
                f"torch, such as 'cpu' or 'cuda', got {name!r}. Pass device=None to learn in NumPy."
            ) from error

    def compile(
        self, rule: Any, past: LeastSquaresState, floor: Floor, start: Floats, row_format: object
    ) -> "DeviceRows | None":
        """Copy a state to the device; None if directions are undetermined."""
        del row_format
        memory, _, prior = past
        unknown = prior.level and memory.ridge is None and not prior.seen.all()
        if memory.span is not None or unknown:
            return None
        if not np.abs(np.diagonal(memory.R)).min() > _SMALLEST:
            return None
        parts = [_mapped(part, self.tensor) for part in past]
        return DeviceRows(self, LeastSquaresState(*parts), floor, self.tensor(start), rule.factor)

    def tensor(self, array: Array) -> Any:
        """Copy an array to the device, as float64 or bool; on the CPU it may be a view."""
        return linalg.like(np.require(array, None, ("C", "W")), self.like)


class DeviceRows:
    """A state of least squares in tensors, in the place of a compiled state.

    Parameters
    ----------
    device : Device
    past : LeastSquaresState
        The state, with tensors in place of arrays.
    floor : Floor
        The state of the forgetting rule, which does not change.
    start : tensor of shape (d, c)
        w₀.
    factor : float
        λ.
    """

    state: ClassVar[type] = Floor
    seen: ClassVar[int] = 0
    calibration: Any = None

    def __init__(
        self,
        device: Device,
        past: LeastSquaresState,
        floor: Floor,
        start: "Tensor",
        factor: float,
    ) -> None:
        self.device, self.past, self.floor = device, past, floor
        self.start, self.factor = start, factor
        self.constants = (type(self),)
        self.d, self.c = start.shape
        self._fitted: Any = None

    def copy(self) -> Self:
        """A copy that shares the tensors, which are never modified."""
        return copy.copy(self)

    snapshot = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        return nbytes(self.past)

    def learn_one(self, *_: object) -> bool:
        """Return False: single rows are validated by Python, and learned as blocks of one row."""
        return False

    learn_few = learn_one

    def predict_one(self, *_: object) -> None:
        """Return None: rows are predicted in NumPy."""

    predict_std = predict_one

    def fitted(self, weights: Floats, middle: Floats | None, offset: Floats | None) -> None:
        """Write weights, centre and offset to arrays; they are copied once after learning."""
        if self._fitted is None:
            self._fitted = [linalg.host(part) for part in self.past.fitted(self.start)]
        for out, part in zip((weights, middle, offset), self._fitted, strict=True):
            if out is not None:
                out[:] = part

    @classmethod
    def exported(cls, state: "DeviceRows") -> dict[str, Any]:
        """Return nothing: files contain the state in NumPy arrays."""
        del state
        return {}

    @classmethod
    def read(cls, state: "DeviceRows") -> ArrayState:
        """Copy a state to NumPy arrays."""
        memory, centering, prior = (_mapped(part, _array) for part in state.past)
        memory = replace(memory, R=np.asfortranarray(memory.R))
        prior = replace(prior, seen=prior.seen.astype(bool))
        return ArrayState(LeastSquaresState(memory, centering, prior), state.floor)

    def learn(self, rows: NewRows, errors: Floats) -> int:
        """Learn rows one after the other; write their errors just before to ``errors`` (n, c).

        Returns the number of rows learned: the others must be learned in NumPy.
        """
        width = min(_WIDTH, rows_between(self.factor, _WIDTH))
        for i in range(0, len(rows.X), width):
            part = rows.part(i, i + width)
            if not any(self._learned(part, errors[i : i + width], sharp=s) for s in (False, True)):
                return i
        return len(rows.X)

    def _learned(self, rows: NewRows, errors: Floats, *, sharp: bool) -> bool:
        """Learn some rows; return False, with the state unchanged, if the result is inaccurate."""
        torch, (memory, centering, prior) = self.device.torch, self.past
        X, Y = self.device.tensor(rows.X), self.device.tensor(rows.Y)
        reduced = centering.reduce(X, Y, rows.weights, np.full(len(X), self.factor))
        A, b = reduced.X, reduced.Y - reduced.X @ self.start
        W = torch.hstack((memory.R, memory.z)).mul_(reduced.before**0.5)
        prior = prior.faded(reduced.before)
        first = int(reduced.scale[0] == 0.0)
        if first and prior.level:
            prior = replace(prior, first=X[0].clone())
        if prior.level and len(A) > first:
            prior = _with_pseudo_rows(prior, W, A[first:], self.factor / reduced.ages[first:])
        scale = linalg.like(reduced.scale, X)[:, None]
        depth = W.diagonal().abs()
        calm = ((A * scale).abs().amax(0) <= _REACH * depth).all() & (depth.min() > _SMALLEST)
        rest, spread, size = add_rows(W, torch.hstack((A, b)).mul_(scale), sharp=sharp)
        w = torch.linalg.solve_triangular(W[:, : self.d], W[:, self.d :], upper=True)
        squares = (memory.squares * reduced.before + (rest * rest).sum(0)) * reduced.fade
        finite = w.isfinite().all() & squares.isfinite().all()
        good = calm & finite & ((size < _SAFE_GRAM) | sharp)
        before = torch.where(scale > 0.0, rest * spread / scale, b)
        found = linalg.host(torch.cat((before.flatten(), good.to(X)[None])))
        if not found[-1]:
            return False
        errors[:] = found[:-1].reshape(errors.shape)
        W.mul_(reduced.fade**0.5)
        memory = replace(memory, R=W[:, : self.d], z=W[:, self.d :], w=w, squares=squares)
        self.past = LeastSquaresState(memory, reduced.center, prior.faded(reduced.fade))
        self._fitted = None
        return True


def _mapped(part: Any, convert: Any) -> Any:
    """A part of a state with all arrays, or tensors, converted."""
    own = {field.name: getattr(part, field.name) for field in fields(part)}
    found = {name: value for name, value in own.items() if getattr(value, "ndim", 0)}
    return replace(part, **{name: convert(value) for name, value in found.items()})


def _array(tensor: Any) -> Floats:
    """A tensor as a contiguous array."""
    return np.ascontiguousarray(linalg.host(tensor))


def _with_pseudo_rows(prior: Prior, W: Any, X: Any, age: Floats) -> Prior:
    """Add the pseudo-rows of features that centred rows X (n, p) excite first to W = [R z].

    Until then the column of a feature is 0 but for the ridge, so that only its diagonal changes.
    """
    there = X != 0.0
    new = there.any(0) & ~prior.seen
    row = there.byte().argmax(0)
    size = X.gather(0, row[None])[0].abs() * linalg.like((prior.level * age) ** 0.5, X)[row] * new
    diagonal = W.diagonal()
    diagonal.copy_(diagonal.hypot(size).where(new, diagonal))
    return replace(prior, seen=prior.seen | new, pseudo_lengths=prior.pseudo_lengths + size)
