"""DER++, dark experience replay: replayed rows with their targets and their former outputs.

The buffer is a reservoir of rows x with targets y and outputs z, those of the network just before
the row was learned. With two independent samples B and B' of the buffer, a step minimises

    L = mean over batch of loss(y, f(x))
        + α mean over B of ‖z − f(x)‖² + β mean over B' of loss(y, f(x))                     (1)

([1] (6)).

Cost: a forward pass of the batch, and a step for three batches; memory for ``capacity`` rows.

[1] P. Buzzega, M. Boschini, A. Porrello, D. Abati, S. Calderara, "Dark experience for general
    continual learning: a strong, simple baseline", NeurIPS 2020; section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from onepass import validation
from onepass.errors import public
from onepass.nn.batch import Batch
from onepass_experiments.baselines.learner import LossName, Step, eval_outputs, loss_of_rows
from onepass_experiments.baselines.replay import Replay


class DERPP(Replay):
    """Dark experience replay with targets (DER++).

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, in its current mode. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        Loss, averaged over all rows: −log softmax, or half the squared error.
    step_size : float, optional
        η > 0. Default: 0.1 for cross entropy; required for the squared loss.
    momentum : float, default=0.0
        μ in [0, 1].
    distillation : float, default=0.5
        α >= 0.
    strength : float, default=0.5
        β >= 0.
    capacity : int, default=500
        Max number of stored rows.
    replayed : int, optional
        Rows of each sample; by default as many as the batch contains.
    seed : int, default=0
        Seed of the choice of stored and sampled rows.

    Attributes
    ----------
    rows_seen_, rows_replayed_ : int
        Rows learned, each counted once, and replayed rows, counted each time.
    rows_stored_, max_rows_stored_ : int
        Rows in the buffer now, and the maximum so far.
    buffer_ : tuple of Tensor
        Stored rows, their targets and their outputs; empty before the first batch.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = baselines.DERPP(line, loss="squared", step_size=0.5)
    >>> model.learn([[1.0]], [4.0]).learn([[1.0]], [4.0]).rows_replayed_
    2
    """

    _draws: ClassVar[int] = 2
    _distilled: tuple[int, Tensor] | None = None  # rows of the batch, and z, during a step

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
        momentum: float = 0.0,
        distillation: float = 0.5,
        strength: float = 0.5,
        capacity: int = 500,
        replayed: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            module,
            loss=loss,
            step_size=step_size,
            momentum=momentum,
            capacity=capacity,
            replayed=replayed,
            seed=seed,
        )
        self.distillation = validation.in_range(distillation, "distillation", low=0.0)
        self.strength = validation.in_range(strength, "strength", low=0.0)

    def _rows_to_store(self, x: Batch | Tensor, y: Tensor) -> tuple[Batch | Tensor, ...]:
        return x, y, eval_outputs(self.module, {}, x, f"{self._where}.learn")

    def _replay_step(
        self, rows: Sequence[Batch | Tensor], drawn: Sequence[Sequence[Batch | Tensor]]
    ) -> Step:
        self._distilled = (len(rows[0]), drawn[0][2]) if drawn else None
        try:
            return super()._replay_step(rows, drawn)
        finally:
            self._distilled = None

    def _objective(self, x: Batch | Tensor, outputs: Tensor, y: Tensor) -> Tensor:
        if self._distilled is None:
            return super()._objective(x, outputs, y)
        n, z = self._distilled
        sizes = (n, len(z), len(z))
        f, targets = outputs.split(sizes), y.split(sizes)
        fresh, again = (loss_of_rows(self.loss, f[i], targets[i]).mean() for i in (0, 2))
        distilled = (z - f[1]).square().reshape(len(z), -1).sum(dim=1).mean()
        return fresh + self.distillation * distilled + self.strength * again  # (1)
