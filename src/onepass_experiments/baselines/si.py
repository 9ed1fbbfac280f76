"""SI, synaptic intelligence: weights are protected by their contribution to lowering the loss.

The contribution of each weight is summed over the steps of a task, with g the gradient of the loss
and Δw the step. At the end of the task it is divided by the weight's total change [1]:

    ω ← ω − g Δw                                                                        (3)
    Ω ← Ω + max(0, ω) / ((w − w̃)² + ξ),   w̃ ← w,   ω ← 0                                (5)
    L̃ = L + c Ω (w̃ − w)²                                                                (4)

The method uses only quantities that SGD computes, without an extra pass, and is thus a one-pass
method. A negative contribution is set to zero. The penalty is evaluated at the weights after the
step, where it cannot overshoot:

    w = (u + 2 η c Ω w̃) / (1 + 2 η c Ω),   u the weights after SGD's step

Cost: that of SGD; memory for ω, Ω and w̃.

[1] F. Zenke, B. Poole, S. Ganguli, "Continual learning through synaptic intelligence", ICML 2017,
    its equations (3) to (5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from onepass import validation
from onepass.errors import public
from onepass.nn.batch import Batch
from onepass_experiments.baselines.learner import LossName, Tasked


class SI(Tasked):
    """SGD with a quadratic penalty on moving weights that lowered the loss of earlier tasks.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, in its current mode. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        Loss, averaged over the batch: −log softmax, or half the squared error.
    step_size : float, optional
        η > 0. Default: 0.1 for cross entropy; required for the squared loss.
    momentum : float, default=0.0
        μ in [0, 1].
    strength : float, default=0.1
        c >= 0; 0 is SGD.
    damping : float, default=0.001
        ξ > 0.
    epochs : int, default=1
        Passes over the rows of a task. With more than one, rows are stored until ``after_task``.
    batch : int, default=32
        Rows per step if there are several passes.
    seed : int, default=0
        Seed of the order of rows in several passes.

    Attributes
    ----------
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; visits to rows; and visits beyond the first.
    rows_stored_, max_rows_stored_ : int
        Rows stored now, and the maximum so far.
    tasks_ : int
        Number of completed tasks.
    importance_ : list of Tensor
        Ω, one tensor per parameter; empty before the first task has ended.
    anchor_ : list of Tensor
        w̃; empty before the first step.
    path_ : list of Tensor
        ω of the current task.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = baselines.SI(line, loss="squared", step_size=0.5, strength=1e9)
    >>> model = model.learn([[1.0, 0.0]], [4.0]).after_task()  # the first feature lowered the loss
    >>> model = model.learn([[1.0, 1.0]], [8.0])
    >>> line.weight.detach().round(decimals=3).tolist()
    [[2.0, 3.0]]
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "known to forget nearly as much as SGD when tasks introduce new classes: the "
        "penalty protects weights, but no loss separates old classes from new ones"
    }
    """Scenarios in which the method is known to fail, and the reason."""

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
        momentum: float = 0.0,
        strength: float = 0.1,
        damping: float = 0.001,
        epochs: int = 1,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(
            module,
            loss=loss,
            step_size=step_size,
            momentum=momentum,
            epochs=epochs,
            batch=batch,
            seed=seed,
        )
        self.strength = validation.in_range(strength, "strength", low=0.0)
        self.damping = validation.in_range(damping, "damping", above=0.0)
        self.importance_: list[Tensor] = []
        self.anchor_: list[Tensor] = []
        self.path_: list[Tensor] = []

    def _learn_batch(self, x: Batch | Tensor, y: Tensor, **counts: int) -> None:
        step = self._step(x, y)
        with torch.no_grad():
            weights = list(self._trainable.values())
            anchor = self.anchor_ or [w.clone() for w in weights]
            past = self.path_ or [torch.zeros_like(w) for w in weights]
            path = [
                p - g * (fresh - w)  # (3)
                for p, g, fresh, w in zip(past, step.gradients, step.weights, weights, strict=True)
            ]
        self._apply(step, path_=path, anchor_=anchor, **counts)

    def _end_task(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        del rows  # the sums over the steps suffice
        with torch.no_grad():
            weights = [w.clone() for w in self._trainable.values()]
            fresh = [
                p.clamp(min=0.0) / ((w - a).square() + self.damping)  # (5)
                for p, w, a in zip(self.path_, weights, self.anchor_, strict=True)
            ]
            if self.importance_:
                fresh = [p + f for p, f in zip(self.importance_, fresh, strict=True)]
        self.__dict__.update(importance_=fresh, anchor_=weights, path_=[])

    def _penalized(self, weights: list[Tensor]) -> list[Tensor]:
        if not self.importance_:
            return weights
        pull = 2.0 * self.step_size * self.strength
        return [
            (u + pull * o * a) / (1.0 + pull * o)  # (4), at the weights after the step
            for u, o, a in zip(weights, self.importance_, self.anchor_, strict=True)
        ]

    def _stored(self) -> list[Batch | Tensor]:
        return [*super()._stored(), *self.importance_, *self.anchor_, *self.path_]
