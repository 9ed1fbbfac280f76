"""A-GEM: gradient steps that do not increase the loss on a sample of stored rows.

With g the gradient of the mean loss of a batch, and r that of rows sampled from a buffer,

    g̃ = g − (gᵀr / rᵀr) r   if gᵀr < 0, else g,        w ← w − η g̃                          (1)

([1] (11)). The buffer is a reservoir, which needs no boundaries of tasks; in [1] it contains
some rows of each past task.

Cost: two backward passes per step; memory for ``capacity`` rows.

[1] A. Chaudhry, M. Ranzato, M. Rohrbach, M. Elhoseiny, "Efficient lifelong learning with A-GEM",
    ICLR 2019; section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from onepass.nn.batch import Batch
from onepass_experiments.baselines.learner import Step
from onepass_experiments.baselines.replay import Replay


class AGEM(Replay):
    """Averaged gradient episodic memory (A-GEM).

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, in its current mode. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        Loss, averaged over all rows: −log softmax, or half the squared error.
    step_size : float, optional
        η > 0. Default: 0.1 for cross entropy; required for the squared loss.
    momentum : float, default=0.0
        μ in [0, 1], for the sum of the g̃.
    capacity : int, default=500
        Max number of stored rows.
    replayed : int, optional
        Stored rows sampled for r; by default as many as the batch contains.
    seed : int, default=0
        Seed of the choice of stored and sampled rows.

    Attributes
    ----------
    rows_seen_, rows_replayed_ : int
        Rows learned, each counted once, and replayed rows, counted each time.
    rows_stored_, max_rows_stored_ : int
        Rows in the buffer now, and the maximum so far.
    buffer_ : tuple of Tensor
        Stored rows, their targets; empty before the first batch.

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
    >>> model = baselines.AGEM(line, loss="squared", step_size=0.5)
    >>> model = model.learn([[1.0, 0.0]], [4.0]).learn([[1.0, 1.0]], [0.0])
    >>> line.weight.detach().tolist()  # the first weight is protected
    [[2.0, -1.0]]
    """

    def _replay_step(
        self, rows: Sequence[Batch | Tensor], drawn: Sequence[Sequence[Batch | Tensor]]
    ) -> Step:
        step = self._step(*rows)
        if not drawn:
            return step
        reference = self._step(*drawn[0]).gradients
        with torch.no_grad():
            pairs = list(zip(step.gradients, reference, strict=True))
            along = torch.stack([(g * r).sum() for g, r in pairs]).sum()
            length = torch.stack([r.square().sum() for r in reference]).sum()
            share = torch.where(along < 0.0, along / length, 0.0)
            moved = [
                w + self.step_size * share * r  # (1)
                for w, r in zip(step.weights, reference, strict=True)
            ]
            self._refuse_nonfinite(along, moved, {})
            velocity = [v - share * r for v, r in zip(step.velocity, reference, strict=False)]
        return replace(step, weights=moved, velocity=velocity)
