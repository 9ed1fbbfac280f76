"""SI, synaptic intelligence: weights are protected by their contribution to lowering the loss.

The contribution of each weight is summed along the path of a task, with g the gradient of the loss
and Δw the step; at the end of the task it is related to the weight's total change [1]:

    ω ← ω − g Δw                                                                        (3)
    Ω ← Ω + max(0, ω) / ((w − w̃)² + ξ),   w̃ ← w,   ω ← 0                                (5)
    L̃ = L + c Ω (w̃ − w)²                                                                (4)

It needs only what SGD computes: no pass of its own, which suits one-pass learning. A weight that
moved against the gradient on the whole would have a negative importance; it gets none. The penalty
is taken at the weights after the step, where it cannot overshoot:

    w = (u + 2 η c Ω w̃) / (1 + 2 η c Ω),   u the weights after SGD's step

Cost: SGD's; memory for ω, Ω and w̃.

[1] F. Zenke, B. Poole, S. Ganguli, "Continual learning through synaptic intelligence", ICML 2017,
    its equations (3) to (5).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from onepass import validation
from onepass.nn.batch import Batch
from onepass_experiments.baselines.learner import LossName, Tasked

__all__ = ["SI"]


class SI(Tasked):
    """SGD with a quadratic penalty on moving weights that lowered the loss of earlier tasks.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place, in the mode it is in; parameters that require no gradient stay.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        What is lowered: −log softmax, or half the squared error; the mean over the batch.
    step_size : float, default=0.01
        η > 0.
    momentum : float, default=0.0
        μ in [0, 1].
    strength : float, default=0.1
        c >= 0; 0 is SGD.
    damping : float, default=0.001
        ξ > 0.
    epochs : int, default=1
        Passes over the rows of a task. With more than one they are held till ``after_task``.
    batch : int, default=32
        Rows a step where there are several passes.
    seed : int, default=0
        Draws the order of rows in several passes.

    Attributes
    ----------
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; how often a row was gone through; and that beyond once.
    rows_stored_, max_rows_stored_ : int
        Rows held now, and at most.
    tasks_ : int
        Tasks that ended.
    importance_ : list of Tensor
        Ω, a tensor a parameter; empty before the first task ended.
    anchor_ : list of Tensor
        w̃, from the first step on.
    path_ : list of Tensor
        ω of the present task.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = baselines.SI(line, loss="squared", step_size=0.5, strength=1e9)
    >>> model = model.learn([[1.0, 0.0]], [4.0]).after_task()  # the first feature lowered it
    >>> model = model.learn([[1.0, 1.0]], [8.0])
    >>> line.weight.detach().round(decimals=3).tolist()
    [[2.0, 3.0]]
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "known to forget nearly as SGD does where tasks bring new classes: the penalty "
        "holds weights, but nothing holds the scores of old classes apart from new ones"
    }
    """Settings in which it is known not to work, and why."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float = 0.01,
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
        self.strength = validation.in_range(strength, "strength", self._where, low=0.0)
        self.damping = validation.in_range(damping, "damping", self._where, above=0.0)
        self.importance_: list[Tensor] = []
        self.anchor_: list[Tensor] = []
        self.path_: list[Tensor] = []

    def _learn_batch(self, x: Batch | Tensor, y: Tensor, **counts: int) -> None:
        step = self._step(x, y)
        with torch.no_grad():
            weights = list(self._learning.values())
            anchor = self.anchor_ or [w.clone() for w in weights]
            past = self.path_ or [torch.zeros_like(w) for w in weights]
            path = [
                p - g * (fresh - w)  # (3)
                for p, g, fresh, w in zip(past, step.slopes, step.weights, weights, strict=True)
            ]
        self._take(step, path_=path, anchor_=anchor, **counts)

    def _end(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        del rows  # all is known from the way
        with torch.no_grad():
            weights = [w.clone() for w in self._learning.values()]
            fresh = [
                p.clamp(min=0.0) / ((w - a).square() + self.damping)  # (5)
                for p, w, a in zip(self.path_, weights, self.anchor_, strict=True)
            ]
            if self.importance_:
                fresh = [p + f for p, f in zip(self.importance_, fresh, strict=True)]
        self.__dict__.update(importance_=fresh, anchor_=weights, path_=[])

    def _pulled(self, weights: list[Tensor]) -> list[Tensor]:
        if not self.importance_:
            return weights
        pull = 2.0 * self.step_size * self.strength
        return [
            (u + pull * o * a) / (1.0 + pull * o)  # (4), at the weights after the step
            for u, o, a in zip(weights, self.importance_, self.anchor_, strict=True)
        ]

    def _kept(self) -> list[Batch | Tensor]:
        return [*super()._kept(), *self.importance_, *self.anchor_, *self.path_]
