"""LwF, learning without forgetting: distillation from the network before the current task.

When a task ends a copy of its network is stored. On the rows x of the next one, with targets y, let
z and z' be the outputs of the network and of the copy for the classes of completed tasks. With a
temperature T,

    L = L_new(y, f(x; w)) + λ L_old                                                         [1]
    L_old = −Σ_i p'_i log p_i,   p = softmax(z / T),   p' = softmax(z' / T)             [1] (2)–(4)

No row is stored or visited twice. The paper has one head per task and the task is known; here all
classes share one softmax, as in class-incremental comparisons [2]: L_new is over all outputs, L_old
over all classes of completed tasks. For the squared loss, L_old is ½ ‖f(x; w') − f(x; w)‖². All
losses are means over the batch.

Cost: that of SGD and a forward pass; memory for the copy.

[1] Z. Li, D. Hoiem, "Learning without forgetting", ECCV 2016.
[2] G. M. van de Ven, A. S. Tolias, "Three scenarios for continual learning", 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from onepass import validation
from onepass.errors import public
from onepass.nn.batch import Batch
from onepass_experiments.baselines.learner import LossName, Tasked, eval_outputs, loss_of_rows


class LwF(Tasked):
    """SGD with distillation from the network before the current task on the new rows.

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
    strength : float, default=1.0
        λ >= 0; 0 is SGD.
    temperature : float, default=2.0
        T > 0.
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
    teacher_ : dict of str to Tensor
        Weights and buffers of the network at the end of the last task; empty before.
    old_classes_ : tuple of int
        Classes of completed tasks.
    task_classes_ : tuple of int
        Classes of the current task so far.

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
    >>> model = baselines.LwF(line, loss="squared", step_size=0.5)
    >>> model = model.learn([[1.0]], [8.0]).after_task()  # now it predicts 4
    >>> for _ in range(20):
    ...     model = model.learn([[1.0]], [0.0])
    >>> round(line.weight.item(), 3)  # between 0 and the former prediction
    2.0
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "known to forget old classes when tasks introduce new ones: their scores are "
        "preserved only on new rows, none of which belongs to them"
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
        strength: float = 1.0,
        temperature: float = 2.0,
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
        self.temperature = validation.in_range(temperature, "temperature", above=0.0)
        self.teacher_: dict[str, Tensor] = {}
        self.old_classes_: tuple[int, ...] = ()
        self.task_classes_: tuple[int, ...] = ()

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        super()._learn(x, y)
        if self.loss == "cross_entropy":
            classes = torch.as_tensor(y).reshape(-1).unique().tolist()
            self.task_classes_ = tuple(sorted({*self.task_classes_, *(int(k) for k in classes)}))

    def _objective(self, x: Batch | Tensor, outputs: Tensor, y: Tensor) -> Tensor:
        fresh = super()._objective(x, outputs, y)
        if not self.teacher_ or not self.strength:
            return fresh
        before = eval_outputs(self.module, self.teacher_, x, f"{self._where}.learn")
        return fresh + self.strength * self._distillation_loss(outputs, before).mean()

    def _distillation_loss(self, outputs: Tensor, before: Tensor) -> Tensor:
        """Return L_old of each row."""
        if self.loss == "squared":
            return loss_of_rows("squared", outputs, before)
        places = torch.tensor(self.old_classes_, device=outputs.device)
        targets = (before[:, places] / self.temperature).softmax(dim=1)
        log_probabilities = (outputs[:, places] / self.temperature).log_softmax(dim=1)
        return -(targets * log_probabilities).sum(dim=1)  # (2)

    def _end_task(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        del rows
        state = {**self._trainable, **dict(self.module.named_buffers())}
        self.__dict__.update(
            teacher_={name: t.detach().clone() for name, t in state.items()},
            old_classes_=tuple(sorted({*self.old_classes_, *self.task_classes_})),
            task_classes_=(),
        )

    def _stored(self) -> list[Batch | Tensor]:
        return [*super()._stored(), *self.teacher_.values()]
