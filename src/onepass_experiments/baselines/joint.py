"""Joint training: several passes over all rows so far, an upper bound without forgetting.

All rows are stored. When a task ends, SGD makes ``epochs`` passes over all of them in batches, each
in a new order. Steps are those of :class:`~onepass_experiments.baselines.SGD`.

Cost per task: epochs · (rows of all tasks so far); memory for all rows. It is an upper bound, not a
method for streams.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from onepass import validation
from onepass.errors import public
from onepass.nn.batch import Batch, joined
from onepass_experiments.baselines.learner import Learner, LossName, all_or_nothing


class Joint(Learner):
    """Multi-pass SGD over all rows of all tasks so far.

    ``learn`` only stores rows; ``after_task`` learns them.

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
    epochs : int, default=5
        Passes over all rows when a task ends.
    batch : int, default=32
        Rows per step.
    seed : int, default=0
        Seed of the order of rows in each pass.

    Attributes
    ----------
    rows_seen_ : int
        Rows stored, each counted once.
    rows_replayed_ : int
        Visits to rows in all passes, including the first visit; ``rows_repeated_`` excludes it.
    rows_stored_, max_rows_stored_ : int
        Rows stored now, and the maximum so far.
    stored_batches_ : list of tuple of Tensor
        All batches and their targets.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(1, 1, bias=False)
    >>> model = baselines.Joint(line, loss="squared", step_size=0.1, epochs=50)
    >>> model = model.learn([[1.0], [2.0]], [3.0, 6.0]).after_task()
    >>> round(line.weight.item(), 3)
    3.0
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
        momentum: float = 0.0,
        epochs: int = 5,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.epochs = validation.whole(epochs, "epochs", low=1)
        self.batch = validation.whole(batch, "batch", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self.stored_batches_: list[tuple[Batch | Tensor, Tensor]] = []
        self.rows_replayed_ = 0
        self.tasks_ = 0

    def after_task(self) -> Self:
        """Learn all stored rows in ``epochs`` passes; does nothing without rows.

        Raises
        ------
        ShapeError, LabelError
            If stored rows do not fit the module. The learner is then unchanged.
        NumericalError
            If a step is not finite. The learner is then unchanged.
        """
        if self.stored_batches_:
            with torch.inference_mode(mode=False):  # otherwise there would be no gradient
                self._learn_all()
        return self

    def _learn_all(self) -> None:
        x, y = (joined(parts) for parts in zip(*self.stored_batches_, strict=True))
        rng = np.random.default_rng([self.seed, self.tasks_])
        with all_or_nothing(self, self._mutable_tensors()):
            for _ in range(self.epochs):
                order = torch.from_numpy(rng.permutation(len(x))).to(self._like.device)
                for rows in order.split(self.batch):
                    self._apply(self._step(x[rows], y[rows]))
            seen = self.epochs * len(x)
            self.__dict__.update(
                rows_replayed_=self.rows_replayed_ + seen,
                visits_=self.visits_ + seen,
                tasks_=self.tasks_ + 1,
            )

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        self.__dict__.update(
            stored_batches_=[
                *self.stored_batches_,
                (x.clone(), self._stored_targets(x, y).clone()),
            ],
            rows_seen_=self.rows_seen_ + len(x),
            rows_stored_=self.rows_stored_ + len(x),
            max_rows_stored_=self.rows_stored_ + len(x),
        )

    def _stored(self) -> list[Batch | Tensor]:
        return [*self.velocity_, *(part for batch in self.stored_batches_ for part in batch)]
