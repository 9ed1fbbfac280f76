"""Losses of networks as least-squares problems: errors and the corresponding gradients.

For outputs f (c) of a row with the Jacobian J (c × p), a least-squares step uses errors e and
gradients G̃ = Jᵀ B such that G̃ e is minus the gradient of the loss, and G̃ G̃ᵀ its Gauss–Newton
matrix:

    squared         e = y − f,             B = I                                             (1)
    one_hot         e = 1_y − f,           B = I, as in the papers' experiments              (2)
    cross_entropy   e = (1_y − π) / √π,    B = diag(√π) − π √πᵀ,    π = softmax(f)           (3)

In (3) B e = 1_y − π, and B Bᵀ = diag(π) − π πᵀ is the curvature of the loss in the outputs [1], so
that the step with noise 1 is that of the extended Kalman filter for a categorical target.

With one output, the cross-entropy is that of a label 0 or 1, with the sigmoid of the output.

A loss of the user is a module or function of PyTorch, or a callable of the outputs (1, c) and the
target of one row. With its gradient g and second derivatives H = U diag(s) Uᵀ in the outputs, by
automatic differentiation,

    callable        e = −Uᵀ g / √s,        B = U diag(√s)                                    (4)

so that B e = −g and B Bᵀ = H. The loss of a row is that of PyTorch without the reduction over rows:
a mean is over the outputs or tokens of the row, and class weights multiply it. (The mean of one row
in PyTorch would divide a weight by itself.) A row that the loss ignores has e = 0 and B = 0.

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

import copy
import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
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

NUMBERS, CLASSES, LABELS, TOKENS = "numbers", "classes", "labels", "tokens"

_LABEL_MODULES = (torch.nn.BCEWithLogitsLoss, torch.nn.BCELoss, torch.nn.MultiLabelSoftMarginLoss)
_MODULES: dict[Any, Callable[..., Any]] = {
    F.cross_entropy: torch.nn.CrossEntropyLoss,
    F.nll_loss: torch.nn.NLLLoss,
    F.binary_cross_entropy_with_logits: torch.nn.BCEWithLogitsLoss,
    F.binary_cross_entropy: torch.nn.BCELoss,
    F.multilabel_soft_margin_loss: torch.nn.MultiLabelSoftMarginLoss,
    F.mse_loss: torch.nn.MSELoss,
    F.huber_loss: torch.nn.HuberLoss,
    F.smooth_l1_loss: torch.nn.SmoothL1Loss,
    F.poisson_nll_loss: torch.nn.PoissonNLLLoss,
}
"""Modules of the functions of PyTorch."""

_LEAST = 1e-12  # min probability, second derivative and size of errors in divisions


class Watch:
    """Comparison of prequential errors with those of the mean or the most frequent class so far.

    In a stream sorted by class a learner that forgets has small prequential errors. It is
    recognised by classes that do not recur: if the last rows have new classes, and at most 60 % as
    many of the earlier classes as rows drawn with their frequencies would have.
    """

    ROWS = 100
    """Number of rows between comparisons; errors are compared after three times as many."""

    def __init__(self) -> None:
        self._rows, self._sums, self._next = 0, torch.zeros(1), self.ROWS
        self._before = torch.zeros(1)  # sums at the last comparison
        self._open = {"worse", "sorted"}  # findings not yet reported
        self._errors, self._trivial = torch.zeros(()), torch.zeros(())

    def findings(self, outputs: Tensor, y: Tensor, *, classes: bool) -> set[str]:
        """Add rows, predicted before they were learned; return once each of two findings.

        ``worse``: outputs are worse than trivial ones. ``sorted``: classes come one after the
        other.
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
        recent = self._rows - self._next + self.ROWS
        self._next = self._rows + self.ROWS
        found = set[str]()  # reading values synchronises with an accelerator
        if self._rows >= 3 * self.ROWS and not bool(self._errors <= 1.04 * self._trivial):
            found.add("worse")
        if classes:
            earlier, now = self._before.to(self._sums), self._sums - self._before.to(self._sums)
            chances = 1.0 - (1.0 - earlier / earlier.sum().clamp_min(1.0)) ** recent
            recurring = float(((now > 0.0) & (earlier > 0.0)).sum())
            new = bool(((now > 0.0) & (earlier == 0.0)).any())
            if new and bool(earlier.any()) and recurring <= 0.6 * float(chances.sum()):
                found.add("sorted")
            self._before = self._sums
        found &= self._open
        self._open -= found
        return found


class RowLoss:
    """The loss of a row, which all learners use: its targets, derivatives and predictions.

    Parameters
    ----------
    loss : str or callable

    Attributes
    ----------
    kind : str or None
        Kind of the targets: ``numbers``, ``classes``, ``labels`` (0 or 1 for each output) or
        ``tokens`` (several classes per row). None for a callable before the first rows.
    """

    def __init__(self, loss: Loss) -> None:
        self._named = loss if isinstance(loss, str) else None
        self._given: Any = loss if isinstance(loss, str) else _as_module(loss)
        self._value: Any = None if isinstance(loss, str) else _value_of_row(self._given)
        self._ignored: int | None = getattr(self._given, "ignore_index", None)
        self.kind: str | None = None
        if isinstance(loss, str):
            self.kind = NUMBERS if loss == "squared" else CLASSES
        elif isinstance(self._given, _LABEL_MODULES):
            self.kind = LABELS
        self._classifies = isinstance(self._given, torch.nn.CrossEntropyLoss)
        self._are_probabilities = isinstance(self._given, torch.nn.BCELoss)

    # -- targets -----------------------------------------------------------------------------------

    def targets(self, y: ArrayLike | Tensor, n: int, c: int, like: Tensor) -> Tensor:
        """Convert targets to float64 (n, c), classes to one-hot, or tokens to integers (n, t).

        Parameters
        ----------
        y : Tensor or array of shape (n,) or (n, …)
        n, c : int
            Number of rows, and of outputs of the module.
        like : Tensor
            Its device is used.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError, LabelError
            If y does not contain n targets of the kind and number of the outputs.
        """
        tensor = numbers(y, "y").to(like.device)
        if tensor.ndim < 1 or tensor.shape[0] != n:
            found = tensor.shape[0] if tensor.ndim else "a single number"
            raise ShapeError(
                f"`y` must contain one target for each of {n} rows, got {found}. Pass as "
                "many targets as rows; for one row, y[0:1] instead of y[0]."
            )
        self._decide(tensor, c)
        if self.kind == CLASSES:
            return _indicators(tensor, n, c, self._ignored)
        if self.kind == TOKENS:
            found = _tokens(tensor, n, c)
            if self._classifies:
                _check_classes(found, c // found.shape[1], self._ignored)
            return found
        found = _numbers(tensor, n, c, like)
        if self.kind == LABELS and not bool(((found >= 0.0) & (found <= 1.0)).all()):
            raise LabelError(
                "`y` must contain labels 0 or 1, or probabilities, got others. Encode the two "
                "classes of each output as 0 and 1."
            )
        return found

    def _set_outputs(self, c: int) -> None:
        """Treat the cross-entropy of one output as that of a label."""
        if self._named == "cross_entropy" and c == 1 and self.kind != LABELS:
            self.kind = LABELS
            self._value = _value_of_row(torch.nn.BCEWithLogitsLoss(reduction="sum"))

    def _decide(self, y: Tensor, c: int) -> None:
        """Set the kind of the targets from the first rows."""
        self._set_outputs(c)
        if self.kind is not None or not len(y):
            return
        each = y[0].numel()
        if y.is_floating_point() or y.is_complex():
            self.kind = NUMBERS
        elif self._classifies:
            self.kind = CLASSES if each == 1 else TOKENS
        elif each == 1 and c > 1:
            self.kind = CLASSES
        else:
            self.kind = NUMBERS if each == c else TOKENS

    # -- derivatives -------------------------------------------------------------------------------

    def derivatives(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the loss (n,), its gradient (n, c) and second derivatives (n, c, c) of each row.

        Raises
        ------
        ParameterError
            If the loss fails on a row.
        """
        found = []
        for f, target in zip(outputs.detach(), y, strict=True):
            t = self._target(target, f)

            def value(f: Tensor, t: Tensor = t) -> Tensor:
                return self._of_row(f, t)

            try:
                with torch.enable_grad():
                    derivatives = torch.autograd.functional
                    g, H = derivatives.jacobian(value, f), derivatives.hessian(value, f)
                    found.append((value(f).detach(), g, H))
            except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
                kinds = {CLASSES: "a class of shape (1,)", TOKENS: f"classes {(1, *t.shape[1:])}"}
                kind = kinds.get(self.kind or "", f"a target {tuple(t.shape)}")
                raise ParameterError(
                    "`loss` must be a differentiable function of outputs of shape "
                    f"{(1, len(f))} and {kind}, which returns a number, got an error: "
                    f"{error}. Pass a module such as torch.nn.HuberLoss()."
                ) from error
        return tuple(torch.stack(each) for each in zip(*found, strict=True))

    def _target(self, target: Tensor, f: Tensor) -> Tensor:
        """Return the target of a row, as the loss expects it, with an axis of one row."""
        if self.kind == CLASSES:  # a row of zeros is ignored
            return (
                target.argmax()[None]
                if bool(target.any())
                else target.new_full((1,), self._ignored, dtype=torch.long)
            )
        return target[None] if self.kind == TOKENS else target[None].to(f.dtype)

    def _of_row(self, f: Tensor, t: Tensor) -> Tensor:
        """Return the loss of outputs (c,)."""
        if self.kind == TOKENS and self._classifies:
            return self._value(f.reshape(t.shape[1], -1), t[0])
        return self._value(f[None], t)

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """Check that the loss is convex, curved at the outputs or targets, and a sum over rows.

        Raises
        ------
        ParameterError
            If it is not.
        """
        if self._value is None:
            return
        _, g, H = self.derivatives(outputs, y)
        used = ~_is_flat(g, H)
        if not bool(used.any()):  # all rows are ignored
            return
        f, t = outputs[used][:1], y[used][:1]
        other = torch.zeros_like(f) if t.shape != f.shape or self.kind == CLASSES else t.to(f)
        curved = self.derivatives(torch.cat([f, other]), t.expand(2, *t.shape[1:]))[2]
        s = torch.linalg.eigvalsh(curved)
        low, high = float(s.min()), float(s.max())
        if not high > 0.0 or low < -1e-4 * high:
            found = "none" if not bool(s.any()) else f"from {low:g} to {high:g}"
            raise ParameterError(
                "`loss` must be twice differentiable and convex in the outputs, with "
                f"second derivatives above 0, got {found}. Use a smooth convex loss, "
                "such as torch.nn.HuberLoss() instead of L1Loss()."
            )
        self._check_sum(f, t)

    def _check_sum(self, f: Tensor, t: Tensor) -> None:
        """Check that the loss of several rows is the sum or the mean of their losses."""
        if self.kind == TOKENS or _has_reduction(self._given):
            return
        if self.kind == CLASSES:
            targets = torch.eye(f.shape[1], dtype=t.dtype, device=t.device)
        else:
            targets = torch.cat([t, t + 1.0 if self.kind == NUMBERS else 1.0 - t])
        parts = [self._target(each, f[0]) for each in targets]
        try:
            single = torch.stack([self._of_row(f[0], part) for part in parts])
            joint = self._given(f.expand(len(parts), -1), torch.cat(parts)).sum()
        except Exception:  # noqa: BLE001  a function of one row
            return
        sums = torch.stack([single.sum(), single.mean()])
        if not bool(torch.isclose(sums, joint, rtol=1e-3, atol=1e-6).any()):
            raise ParameterError(
                "`loss` must be the sum or mean of the losses of rows, got another function, such "
                "as a mean that divides by class weights, which have no effect on single rows. Use "
                "torch.nn.CrossEntropyLoss(weight=…), or reduction='sum'."
            )

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the gradient (n, c) of the loss of each row in the outputs."""
        if self._value is not None:
            return self.derivatives(outputs, y)[1]
        predicted = outputs.double()
        predicted = predicted.softmax(dim=1) if self._named == "cross_entropy" else predicted
        return (predicted - y).to(outputs.dtype)

    def curved(self, outputs: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Return the product (n, c) of the second derivatives of each row with v (n, c)."""
        if self._value is not None:
            H = self.derivatives(outputs, y)[2]
            return (H.double() @ v[:, :, None])[:, :, 0]
        if self._named != "cross_entropy":
            return v
        shares = torch.softmax(outputs.double(), dim=1)
        return shares * (v - (shares * v).sum(dim=1, keepdim=True))

    def rows(
        self, outputs: Tensor, y: Tensor, J: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Convert outputs, targets and Jacobian (n·c, p) to least-squares rows: (1) to (5).

        Returns e (n, c), in float64, and G̃ᵀ (n·c, p). A row of weight s has √s times both, which
        is a noise of 1 / s.
        """
        n, c = outputs.shape
        B: Tensor | None = None
        if self._value is not None:
            loss, g, H = self.derivatives(outputs, y)
            s, U = torch.linalg.eigh(H.double().nan_to_num())
            rounding = torch.finfo(H.dtype).eps * s.amax(dim=1, keepdim=True)
            root = s.maximum(rounding).clamp_min(_LEAST).sqrt()
            e = -(U.mT @ g.double()[:, :, None])[:, :, 0] / root
            B = torch.where(_is_flat(g, H)[:, None, None], 0.0, U * root[:, None, :])
            e, B = _limited(e, B, loss.double())
        elif self._named == "cross_entropy":
            logs = torch.log_softmax(outputs.double(), dim=1)
            probabilities = logs.exp().clamp_min(_LEAST)
            root = probabilities.sqrt()
            B = torch.diag_embed(root) - probabilities[:, :, None] * root[:, None, :]
            e, B = _limited((y - probabilities) / root, B, -(y * logs).sum(dim=1))
        else:
            e = y - outputs.double()
        if weights is not None:
            scale = weights.sqrt()
            e = e * scale[:, None]
            if B is None:  # outputs that share directions have one row of J each
                J = J * scale.repeat_interleave(len(J) // n)[:, None].to(J.dtype)
            else:
                B = B * scale[:, None, None]
        if B is None:
            return e, J
        return e, (B.mT.to(J.dtype) @ J.reshape(n, c, -1)).reshape(n * c, -1)

    def used(self, y: Tensor, weights: Tensor | None) -> Tensor | None:
        """Return the weights of rows (n,), 0 for rows whose targets are ignored; None for 1."""
        if self._ignored is None or self.kind not in {CLASSES, TOKENS}:
            return weights
        seen = (y if self.kind == CLASSES else y != self._ignored).any(dim=1)
        if bool(seen.all()):
            return weights
        return seen.double() if weights is None else weights * seen

    def error(self, outputs: Tensor, y: Tensor) -> float:
        """Return the mean loss of rows, or the root mean square error of a squared loss."""
        y = y.to(outputs.device)
        if self._value is not None:
            return float(self.derivatives(outputs, y)[0].double().mean())
        if self._named == "cross_entropy":
            logs = torch.log_softmax(outputs.double(), dim=1)
            return -float((y * logs).sum(dim=1).mean())
        return float((outputs.double() - y).square().mean().sqrt())

    # -- predictions -------------------------------------------------------------------------------

    @property
    def has_classes(self) -> bool:
        """Whether predictions are classes or labels, which have probabilities."""
        return self.kind in {CLASSES, LABELS, TOKENS} or (self.kind is None and self._classifies)

    def probabilities(self, outputs: Tensor, tokens: int = 1) -> Tensor:
        """Return probabilities in float64: of classes (n, c), labels (n, c) or tokens (n, t, v).

        One label has the probabilities (n, 2) of 0 and 1; several labels are independent.
        """
        self._set_outputs(outputs.shape[1])
        outputs = outputs.double()
        if self.kind == LABELS:
            found = outputs if self._are_probabilities else outputs.sigmoid()
            return torch.cat([1.0 - found, found], dim=1) if found.shape[1] == 1 else found
        if self.kind == TOKENS:
            outputs = outputs.reshape(len(outputs), tokens, -1)
        return outputs.softmax(dim=-1)

    def predictions(self, outputs: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Convert outputs to predictions: numbers (n, c), or (n,) for one output; or classes (n,).

        Parameters
        ----------
        outputs : Tensor of shape (n, c)
        shape : tuple of int, optional
            Shape of one learned target; predictions then have shape (n, *shape).
        """
        self._set_outputs(outputs.shape[1])
        if self.kind == LABELS:
            found = (outputs > (0.5 if self._are_probabilities else 0.0)).long()
        elif self.kind == TOKENS:
            found = outputs.reshape(len(outputs), math.prod(shape or (1,)), -1).argmax(dim=2)
        elif self.has_classes:
            found = outputs.argmax(dim=1, keepdim=True)
        else:
            found = outputs
        if shape is None:
            shape = () if found.shape[1] == 1 else found.shape[1:]
        return found.reshape(len(found), *shape)

    def watched(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and targets of equal shape, to compare errors or classes."""
        if self.kind == LABELS:
            return (outputs if self._are_probabilities else outputs.sigmoid()), y
        if self.kind == TOKENS:
            v = outputs.shape[1] // y.shape[1]
            used = (y.flatten() >= 0) & (y.flatten() < v)
            if self._ignored is not None:
                used &= y.flatten() != self._ignored
            return outputs.reshape(-1, v)[used], F.one_hot(y.flatten()[used], v).double()
        return outputs, y


def _as_module(loss: Any) -> Any:
    """Return the module of a function of PyTorch, or the loss itself.

    The negative log-likelihood becomes the cross-entropy, which is equal for outputs that are
    log-probabilities, and curved.
    """
    function, arguments = getattr(loss, "func", loss), getattr(loss, "keywords", {})
    if not isinstance(loss, torch.nn.Module) and function in _MODULES:
        loss = _MODULES[function](**arguments)
    if isinstance(loss, torch.nn.NLLLoss):
        return torch.nn.CrossEntropyLoss(
            weight=loss.weight, ignore_index=loss.ignore_index, reduction=loss.reduction
        )
    return loss


def _has_reduction(loss: object) -> bool:
    return isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction")


def _value_of_row(loss: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a row as a function of outputs (1, c) and a target, without reduction."""
    if not _has_reduction(loss):
        return lambda f, t: loss(f, t).sum()
    each = copy.copy(loss)
    each.reduction = "none"
    ignored = getattr(loss, "ignore_index", None)

    def value(f: Tensor, t: Tensor) -> Tensor:
        elements: Tensor = each(f, t)
        if loss.reduction != "mean":
            return elements.sum()
        count = elements.numel() if t.is_floating_point() else int((t != ignored).sum())
        return elements.sum() / max(count, 1)

    return value


def _is_flat(g: Tensor, H: Tensor) -> Tensor:
    """Return which rows have no derivatives (n,): the loss ignores them."""
    return (g == 0.0).all(dim=1) & (H == 0.0).flatten(1).all(dim=1)


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


def _numbers(tensor: Tensor, n: int, c: int, like: Tensor) -> Tensor:
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


def _indicators(tensor: Tensor, n: int, c: int, ignored: int | None = None) -> Tensor:
    """Return classes as one-hot rows (n, c); ignored ones as zeros."""
    if tensor.is_floating_point() or tensor.numel() != n:
        raise TypeMismatchError(
            f"`y` must contain one class per row, an integer from 0 to {c - 1}, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}. Encode classes as integers; for "
            "regression use loss='squared', or gradients='outputs' of an optimizer."
        )
    classes = tensor.reshape(n).long()
    _check_classes(classes, c, ignored)
    used = torch.ones_like(classes) if ignored is None else (classes != ignored).long()
    return F.one_hot(classes * used, c).double() * used[:, None]


def _tokens(tensor: Tensor, n: int, c: int) -> Tensor:
    """Return classes of tokens (n, t)."""
    classes = tensor.reshape(n, -1).long()
    if not classes.shape[1] or c % classes.shape[1]:
        raise ShapeError(
            f"`y` must contain as many classes per row as the module has tokens, got "
            f"{classes.shape[1]} for {c} outputs. Let forward return (n, tokens, classes)."
        )
    return classes


def _check_classes(classes: Tensor, c: int, ignored: int | None) -> None:
    valid = (classes >= 0) & (classes < c)
    if ignored is not None:
        valid |= classes == ignored
    if not bool(valid.all()):
        raise LabelError(
            f"`y` must contain classes from 0 to {c - 1}, as the module has {c} "
            f"outputs, got {int(classes[~valid][0])}. Use a module with one output for each class."
        )
