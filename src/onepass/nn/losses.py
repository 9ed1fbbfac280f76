"""Losses of networks as least-squares problems: errors and the corresponding gradients.

For outputs f (c) of a row with the Jacobian J (c × p), a least-squares step uses errors e and
gradients G̃ = Jᵀ B such that G̃ e is minus the gradient of the loss, and G̃ G̃ᵀ its Gauss–Newton
matrix:

    squared         e = y − f,             B = I                                             (1)
    one_hot         e = 1_y − f,           B = I, as in the papers' experiments              (2)
    cross_entropy   e = (1_y − π) / √π,    B = diag(√π) − π √πᵀ,    π = softmax(f)           (3)

In (3) B e = 1_y − π, and B Bᵀ = diag(π) − π πᵀ is the curvature of the loss in the outputs [1], so
that the step with noise 1 is that of the extended Kalman filter for a categorical target.

A loss of the user is a callable of the outputs (1, c) and the target of one row. With its gradient
g and second derivatives H = U diag(s) Uᵀ in the outputs, by automatic differentiation,

    callable        e = −Uᵀ g / √s,        B = U diag(√s)                                    (4)

so that B e = −g and B Bᵀ = H.

A least-squares problem with errors e has the loss ‖e‖² / 2. In (3) and (4) a curvature that
vanishes while the gradient does not, as for a confident wrong class or beyond the threshold of
Huber's loss, gives larger errors, and steps beyond the range of the quadratic approximation. With L
the loss of the row, and t = ‖e‖ / √(2 L) > 1, the curvature along g is increased:

    e ← e / t,      B ← B + (t − 1) / ‖e‖² B e eᵀ                                           (5)

Then B e = −g as before, B Bᵀ = H + (1 / (2 L) − 1 / ‖e‖²) g gᵀ, and ‖e‖² = 2 L. Quadratic losses
are unchanged.

[1] N. N. Schraudolph, "Fast curvature matrix-vector products for second-order gradient descent",
    Neural Computation 14(7), 2002; section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from onepass.errors import (
    LabelError,
    NotFiniteError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.nn.batch import numbers
from onepass.types import ArrayLike

LossName: TypeAlias = Literal["squared", "one_hot", "cross_entropy"]
Loss: TypeAlias = LossName | Callable[[Tensor, Tensor], Tensor]
LOSSES = get_args(LossName)

_LEAST = 1e-12  # min probability, second derivative and size of errors in divisions


class Watch:
    """Comparison of prequential errors with those of the mean or the most frequent class so far.

    In a stream sorted by class a learner that forgets has small prequential errors, so that new
    classes after the first rows are reported as well.
    """

    ROWS = 100
    """Number of rows between comparisons; errors are compared after three times as many."""

    def __init__(self) -> None:
        self._rows, self._sums, self._next = 0, torch.zeros(1), self.ROWS
        self._seen = 0  # classes at the last comparison
        self._open = {"worse", "new"}  # findings not yet reported
        self._errors, self._trivial = torch.zeros(()), torch.zeros(())

    def findings(self, outputs: Tensor, y: Tensor, *, classes: bool) -> set[str]:
        """Add rows, predicted before they were learned; return once each of two findings.

        ``worse``: outputs are worse than trivial ones. ``new``: classes appeared that were not
        among the rows up to an earlier comparison.
        """
        f, y = outputs.double(), y.double()
        before = torch.cat([self._sums.to(y).expand(1, y.shape[1]), y]).cumsum(0)
        self._sums = before[-1:]
        if classes:
            right = y.argmax(dim=1)
            wrong = f.argmax(dim=1) != right, before[:-1].argmax(dim=1) != right
            errors, trivial = (each.double() for each in wrong)
        else:
            counts = torch.arange(self._rows, self._rows + len(y), device=y.device).clamp_min(1)
            errors = (f - y).square().sum(dim=1)
            trivial = (before[:-1] / counts[:, None] - y).square().sum(dim=1)
        self._errors = self._errors.to(y.device) + errors.sum()
        self._trivial = self._trivial.to(y.device) + trivial.sum()
        self._rows += len(y)
        if self._rows < self._next or not self._open:
            return set()
        self._next = self._rows + self.ROWS
        found = set[str]()  # reading values synchronises with an accelerator
        if self._rows >= 3 * self.ROWS and not bool(self._errors <= 1.04 * self._trivial):
            found.add("worse")
        seen = int((self._sums > 0.0).sum()) if classes else 0
        if 0 < self._seen < seen:
            found.add("new")
        self._seen = seen
        found &= self._open
        self._open -= found
        return found


class Objective:
    """A loss of the user, as least-squares rows (4) and (5).

    Parameters
    ----------
    loss : callable
        Function of outputs (1, c) and a target (1, c), or a class (1,), to a number.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.loss = loss

    def derivatives(self, outputs: Tensor, y: Tensor, *, classes: bool) -> tuple[Tensor, ...]:
        """Return the loss (n,), its gradient (n, c) and second derivatives (n, c, c) of each row.

        Raises
        ------
        ParameterError
            If the loss fails on a row.
        """
        found = []
        for f, target in zip(outputs.detach(), y, strict=True):
            t = target.argmax()[None] if classes else target[None].to(f.dtype)

            def value(f: Tensor, t: Tensor = t) -> Tensor:
                return self.loss(f[None], t).sum()

            try:
                with torch.enable_grad():
                    derivatives = torch.autograd.functional
                    g, H = derivatives.jacobian(value, f), derivatives.hessian(value, f)
                    found.append((value(f), g, H))
            except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
                kind = "a class of shape (1,)" if classes else f"a target {tuple(t.shape)}"
                raise ParameterError(
                    "`loss` must be a differentiable function of outputs of shape "
                    f"{(1, len(f))} and {kind}, which returns a number, got an error: "
                    f"{error}. Pass a module such as torch.nn.HuberLoss()."
                ) from error
        return tuple(torch.stack(each) for each in zip(*found, strict=True))

    def check(self, outputs: Tensor, y: Tensor, *, classes: bool) -> None:
        """Check that the loss is convex and curved at outputs (1, c) or at the target.

        Raises
        ------
        ParameterError
            If it is not.
        """
        places = torch.cat([outputs, torch.zeros_like(outputs) if classes else y.to(outputs)])
        s = torch.linalg.eigvalsh(self.derivatives(places, y.expand(2, -1), classes=classes)[2])
        low, high = float(s.min()), float(s.max())
        if not high > 0.0 or low < -1e-4 * high:
            found = "none" if not bool(s.any()) else f"from {low:g} to {high:g}"
            raise ParameterError(
                "`loss` must be twice differentiable and convex in the outputs, with "
                f"second derivatives above 0, got {found}. Use a smooth convex loss, "
                "such as torch.nn.HuberLoss() instead of L1Loss()."
            )

    def rows(self, outputs: Tensor, y: Tensor, *, classes: bool) -> tuple[Tensor, Tensor]:
        """Return e (n, c) and B (n, c, c) of (4) and (5)."""
        loss, g, H = self.derivatives(outputs, y, classes=classes)
        s, U = torch.linalg.eigh(H.double().nan_to_num())
        rounding = torch.finfo(H.dtype).eps * s.amax(dim=1, keepdim=True)
        root = s.maximum(rounding).clamp_min(_LEAST).sqrt()
        e = -(U.mT @ g.double()[:, :, None])[:, :, 0] / root
        return _limited(e, U * root[:, None, :], loss.double())


def _limited(e: Tensor, B: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Return e (n, c) and B (n, c, c) of (5); losses (n,) of 0 or below set no limit."""
    size = e.norm(dim=1).clamp_min(_LEAST)
    t = torch.where(loss > 0.0, size / (2.0 * loss).sqrt(), 1.0).clamp_min(1.0)
    along = (B @ e[:, :, None]) * e[:, None, :]
    return e / t[:, None], B + ((t - 1.0) / size.square())[:, None, None] * along


def check(loss: Loss, noise: float) -> None:
    """Check that a loss exists, and that noise > 0 if the loss requires noise.

    Parameters
    ----------
    loss : str or callable
    noise : float

    Raises
    ------
    ParameterError
    """
    if not callable(loss) and loss not in LOSSES:
        raise ParameterError(
            f"`loss` must be one of {', '.join(LOSSES)} or a callable, got {loss!r}. "
            "Use 'squared' for regression, 'one_hot' or 'cross_entropy' for classes."
        )
    if loss not in {"squared", "one_hot"} and not noise > 0.0:
        raise ParameterError(
            f"`noise` must be above 0 with loss={loss!r}, got {noise:g}. No finite outputs fit a "
            "class exactly: try noise=0.1, 1.0 and 10.0 on validation rows, or use loss='one_hot'."
        )


def targets(y: ArrayLike | Tensor, n: int, c: int, loss: str, like: Tensor) -> Tensor:
    """Convert targets to a matrix (n, c) in float64 on the device of ``like``; classes to one-hot.

    Parameters
    ----------
    y : Tensor or array of shape (n,) or (n, c)
    n, c : int
        Number of rows, and of outputs of the module.
    loss : str
    like : Tensor

    Raises
    ------
    ShapeError, TypeMismatchError, NotFiniteError, LabelError
        If y does not contain n targets of c numbers, or n classes below c.
    """
    tensor = numbers(y, "y").to(like.device)
    if tensor.ndim < 1 or tensor.shape[0] != n:
        found = tensor.shape[0] if tensor.ndim else "a single number"
        raise ShapeError(
            f"`y` must contain one target for each of {n} rows, got {found}. Pass as "
            "many targets as rows; for one row, y[0:1] instead of y[0]."
        )
    if loss != "squared":
        return _indicators(tensor, n, c)
    flat = tensor.reshape(n, tensor.shape[1:].numel()).double()
    if not n:
        return flat.new_zeros(0, c)
    if flat.shape[1] != c:
        raise ShapeError(
            f"`y` must contain {c} number(s) per row, one for each output of the module, got "
            f"{flat.shape[1]}. For classes use loss='one_hot' or 'cross_entropy'."
        )
    fine = flat.to(
        like.dtype
    ).isfinite()  # values that overflow the dtype of the module count as infinite
    if not bool(fine.all()):
        row = int((~fine).any(dim=1).nonzero()[0])
        large = bool(flat[row].isfinite().all())
        scale = f", or scale y: the number overflows {like.dtype}" if large else ""
        raise NotFiniteError(
            f"`y` must be finite in {like.dtype}",
            got=tensor[row].tolist(),
            remedy=(
                f"None of the {n} row(s) was learned: drop this row and pass the "
                f"other rows again{scale}."
            ),
            row=row,
        )
    return flat


def _indicators(tensor: Tensor, n: int, c: int) -> Tensor:
    if tensor.is_floating_point() or tensor.numel() != n:
        raise TypeMismatchError(
            f"`y` must contain one class per row, an integer from 0 to {c - 1}, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}. Encode classes as integers; for "
            "regression use loss='squared', or gradients='outputs' of an optimizer."
        )
    classes = tensor.reshape(n).long()
    if n and not bool(((classes >= 0) & (classes < c)).all()):
        invalid = classes[(classes < 0) | (classes >= c)][0]
        raise LabelError(
            f"`y` must contain classes from 0 to {c - 1}, as the module has {c} "
            f"outputs, got {int(invalid)}. Use a module with one output for each class."
        )
    return torch.nn.functional.one_hot(classes, c).double()


def as_rows(
    loss: str, outputs: Tensor, y: Tensor, J: Tensor, objective: Objective | None = None
) -> tuple[Tensor, Tensor]:
    """Convert outputs, targets (n, c) and Jacobian (n·c, p) to least-squares rows: (1) to (5).

    Returns e (n, c), in float64, and G̃ᵀ (n·c, p).
    """
    if objective is not None:
        e, B = objective.rows(outputs, y, classes=loss != "squared")
    elif loss != "cross_entropy":
        return y - outputs.double(), J
    else:
        logs = torch.log_softmax(outputs.double(), dim=1)
        probabilities = logs.exp().clamp_min(_LEAST)
        root = probabilities.sqrt()
        B = torch.diag_embed(root) - probabilities[:, :, None] * root[:, None, :]
        e, B = _limited((y - probabilities) / root, B, -(y * logs).sum(dim=1))
    n, c = outputs.shape
    turned = B.mT.to(J.dtype) @ J.reshape(n, c, -1)
    return e, turned.reshape(n * c, -1)


def to_predictions(loss: str, outputs: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Convert outputs to predictions: numbers (n, c), or (n,) for one output; or classes (n,).

    Parameters
    ----------
    loss : str
    outputs : Tensor of shape (n, c)
    shape : tuple of int, optional
        Shape of one learned target; predictions then have shape (n, *shape).
    """
    predictions = outputs if loss == "squared" else outputs.argmax(dim=1, keepdim=True)
    if shape is None:
        shape = () if predictions.shape[1] == 1 else predictions.shape[1:]
    return predictions.reshape(len(predictions), *shape)
