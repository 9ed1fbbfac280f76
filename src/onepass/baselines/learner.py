"""Learner: what all baselines share: the verbs, and one step of SGD that is taken or not at all.

The step on a batch with mean loss L, velocity v, step size η and momentum μ [1]:

    v ← μ v + ∇L(w),   w ← w − η v                                                           (1)

is worked out beside the weights, looked at, and copied into the module only if it is finite. The
module learns in whatever mode it is in: BatchNorm in training mode takes its statistics from the
batch. It answers in eval mode, and is left in the mode it was in.

[1] B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
    form of I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013, with η outside of v.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from onepass import validate
from onepass.baselines import intake
from onepass.baselines.loss import LOSSES, LossName, loss_of_rows
from onepass.errors import NumericalError, ParameterError, ShapeError

__all__ = ["Learner", "Step", "answering"]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step that was worked out and is not yet taken.

    Parameters
    ----------
    weights : list of Tensor
        As they will be, in the order of the parameters that learn.
    velocity : list of Tensor
        v of (1); empty without momentum.
    buffers : list of Tensor
        Of the module, as the forward pass leaves them.
    """

    weights: list[Any]
    velocity: list[Any]
    buffers: list[Any]


class Learner:
    """A module that learns batches, each once, by (1).

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place; parameters that require no gradient stay as they are.
    loss : {"cross_entropy", "squared"}
        What is lowered.
    step_size : float
        η > 0.
    momentum : float
        μ in [0, 1].

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.
    """

    def __init__(
        self, module: Any, *, loss: LossName, step_size: float, momentum: float = 0.0
    ) -> None:
        self._where = f"op.baselines.{type(self).__name__}"
        if loss not in LOSSES:
            raise ParameterError(
                f"{self._where}: `loss` must be one of {', '.join(LOSSES)}, got {loss!r}. "
                "Choose one of them."
            )
        self.module = module
        self.loss = loss
        self.step_size = validate.in_range(step_size, "step_size", self._where, above=0.0)
        self.momentum = validate.in_range(momentum, "momentum", self._where, low=0.0, high=1.0)
        self._learning = intake.learning(module, self._where)
        self.velocity_: list[Any] = []
        self.rows_seen_ = 0

    # -- the verbs -------------------------------------------------------------------------------

    def learn(self, x: Any, y: Any) -> Self:
        """Learn a batch of rows by one step.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows, as the module takes them. No rows are learned as nothing.
        y : Tensor or array of shape (n,), or of the shape of the module's answers
            Classes from 0 on for cross entropy; numbers for the squared loss.

        Raises
        ------
        ShapeError, TypeMismatchError, LabelError, NotFiniteError
            If the rows or answers do not fit.
        NumericalError
            If the loss or the step is not finite. The learner is then as it was.
        """
        with torch.inference_mode(mode=False):  # else there would be no derivative
            return self._looked_over(x, y)

    def _looked_over(self, x: Any, y: Any) -> Self:
        rows = intake.rows(x, self._like, f"{self._where}.learn")
        labels = y if isinstance(y, torch.Tensor) else np.asarray(y)
        if labels.ndim < 1 or len(labels) != len(rows):
            raise ShapeError(
                f"{self._where}.learn: `x` and `y` must have as many rows, got {len(rows)} and "
                f"{labels.shape[0] if labels.ndim else 'a single number'}. Give one answer a row."
            )
        if len(rows):
            self._learn(rows, labels)
        return self

    def predict(self, x: Any) -> Any:
        """Say the class of each row, or its answers.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.

        Returns
        -------
        said : Tensor, or ndarray where x is no tensor
            Classes of shape (n,) for cross entropy, else the module's answers.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        """
        said = self._outputs(x, "predict")
        if self.loss == "cross_entropy":
            said = said.argmax(dim=1)
        return said if isinstance(x, torch.Tensor) else said.cpu().numpy()

    def outputs(self, x: Any) -> Any:
        """What the module answers, of which ``predict`` says the largest for cross entropy.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.

        Returns
        -------
        said : Tensor of shape (n, …), or ndarray where x is no tensor

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        """
        said = self._outputs(x, "outputs")
        return said if isinstance(x, torch.Tensor) else said.cpu().numpy()

    def _outputs(self, x: Any, verb: str) -> Any:
        rows = intake.rows(x, self._like, f"{self._where}.{verb}")
        with answering(self.module), torch.no_grad():
            return _said(self.module, {}, rows, f"{self._where}.{verb}")

    def after_task(self) -> Self:
        """Be told that a task ended; most learners need not be."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes kept from row to row beside the module's own weights."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._kept())

    # -- what a baseline may change --------------------------------------------------------------

    def _kept(self) -> list[Any]:
        """All tensors that are kept beside the weights."""
        return self.velocity_

    def _learn(self, x: Any, y: Any) -> None:
        self._take(self._step(x, y), rows_seen_=self.rows_seen_ + len(x))

    def _answers(self, x: Any, y: Any) -> Any:
        """The answers as a tensor of one shape a row, to be kept; the loss checks them later."""
        tensor = intake.rows(y, self._like, f"{self._where}.learn", "y")
        if self.loss == "squared":
            tensor = tensor.to(self._like.dtype)
        elif bool((tensor.long() == tensor).all()):
            tensor = tensor.long()
        return tensor.reshape(len(x)) if tensor.numel() == len(x) else tensor

    def _pulled(self, weights: list[Any]) -> list[Any]:
        """The weights after (1), as what else is wanted of them would have them."""
        return weights

    # -- one step --------------------------------------------------------------------------------

    @property
    def _like(self) -> Any:
        return next(iter(self._learning.values()))

    def _step(self, x: Any, y: Any) -> Step:
        """(1), beside the weights."""
        where, weights = f"{self._where}.learn", list(self._learning.values())
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.enable_grad():
            outputs = _said(self.module, buffers, x, where)
            answers = intake.answers(y, outputs, self.loss, self._like, where)
            loss = loss_of_rows(self.loss, outputs, answers).mean()
            slopes = _slopes(loss, weights)
        with torch.no_grad():
            if self.velocity_:
                slopes = [
                    self.momentum * v + g for v, g in zip(self.velocity_, slopes, strict=True)
                ]
            fresh = self._pulled(
                [w - self.step_size * v for w, v in zip(weights, slopes, strict=True)]
            )
            self._refuse_nonfinite(loss, fresh, buffers, where)
        return Step(fresh, slopes if self.momentum else [], list(buffers.values()))

    def _refuse_nonfinite(
        self, loss: Any, fresh: list[Any], buffers: dict[str, Any], where: str
    ) -> None:
        # a buffer that was not finite before, such as a mask of -inf, may stay so
        was = dict(self.module.named_buffers())
        seen = [torch.isfinite(b) | ~torch.isfinite(was[name]) for name, b in buffers.items()]
        good = torch.stack([t.all() for t in (*map(torch.isfinite, (loss, *fresh)), *seen)])
        # the one look at the device: nothing that is not finite may reach the weights
        if bool(good.all()):
            return
        bad = [
            name
            for name, fine in zip([*self._learning, *buffers], good[1:].tolist(), strict=True)
            if not fine
        ]
        raise NumericalError(
            f"{where}: the loss and the step must be finite, got a loss of {float(loss):g} and no "
            f"finite step of {', '.join(bad) or 'no weight'}. Nothing was learned of these rows. "
            "Lower `step_size`, or scale the rows."
        )

    def _take(self, step: Step, **learned: Any) -> None:
        """Copy a step into the module; what else was learned comes with it."""
        with torch.no_grad():
            torch._foreach_copy_(
                [*self._learning.values(), *self.module.buffers()],
                [*step.weights, *step.buffers],
            )
        self.__dict__.update(velocity_=step.velocity, **learned)


def _said(module: Any, buffers: dict[str, Any], x: Any, where: str) -> Any:
    """What the module answers, its buffers being these."""
    try:
        outputs = torch.func.functional_call(module, buffers, (x,))
    except RuntimeError as wrong:
        raise ShapeError(
            f"{where}: `module` must take `x` of shape {tuple(x.shape)} and {x.dtype}, got "
            f"{type(wrong).__name__}: {wrong}. Give rows of the shape that it is made for."
        ) from wrong
    if isinstance(outputs, torch.Tensor) and outputs.ndim and len(outputs) == len(x):
        return outputs
    raise ShapeError(
        f"{where}: `module` must answer with a tensor, one row for each of the {len(x)} rows, got "
        f"{tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__}. "
        "Wrap it in a module that does."
    )


def _slopes(loss: Any, weights: list[Any]) -> list[Any]:
    """∇L; zeros for weights that the loss does not depend on."""
    if not loss.requires_grad:  # a forward pass that is cut off from all weights
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@contextmanager
def answering(module: Any) -> Iterator[None]:
    """The module and all its parts in eval mode, and then each in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
