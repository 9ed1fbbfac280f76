"""Tasked: learners that are told when a task ended, and may go over its rows several times.

With ``epochs=1`` every batch is a step when it comes, and is let go. With more, as the papers
train, rows of the present task are held until ``after_task``, and then gone over ``epochs`` times,
each time in a new order, by batches. Every visit is counted.
"""

from typing import Any, Self

import numpy as np
import torch

from onepass import validation
from onepass.baselines.forward import all_or_nothing, predicted
from onepass.baselines.learner import Learner
from onepass.baselines.loss import LossName
from onepass.errors import ShapeError
from onepass.nn.batch import joined

__all__ = ["Tasked"]


class Tasked(Learner):
    """A learner of tasks.

    Parameters
    ----------
    module, loss, step_size, momentum
        As of Learner.
    epochs : int
        Passes over the rows of a task.
    batch : int
        Rows a step where there are several passes.
    seed : int
        Draws the order of rows in each pass.
    """

    def __init__(
        self,
        module: Any,
        *,
        loss: LossName,
        step_size: float,
        momentum: float,
        epochs: int,
        batch: int,
        seed: int,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.epochs = validation.whole(epochs, "epochs", self._where, low=1)
        self.batch = validation.whole(batch, "batch", self._where, low=1)
        self.seed = validation.whole(seed, "seed", self._where, low=0)
        self.held_: list[Any] = []
        self.rows_of_task_ = 0
        self.tasks_ = 0

    def after_task(self) -> Self:
        """End a task: learn the rows that were held, if any, and let them go.

        A task of no rows is none.

        Raises
        ------
        NumericalError
            If a step is not finite. The learner is then as it was.
        """
        if self.rows_of_task_:
            with torch.inference_mode(mode=False), all_or_nothing(self, self._changing()):
                rows = None
                if self.held_:
                    rows = tuple(joined(parts) for parts in zip(*self.held_, strict=True))
                    self._learn_held(*rows)
                self._end(rows)
                kept = self.rows_kept_ - sum(len(x) for x, _ in self.held_)
                self.__dict__.update(
                    held_=[], rows_kept_=kept, rows_of_task_=0, tasks_=self.tasks_ + 1
                )
        return self

    # -- what a baseline may change --------------------------------------------------------------

    def _learn_batch(self, x: Any, y: Any, **counts: int) -> None:
        """Learn a batch by a step, and take the counts with it."""
        self._take(self._step(x, y), **counts)

    def _end(self, rows: tuple[Any, ...] | None) -> None:
        """What is to be remembered of a task, whose rows are there if they were held."""

    def _learn_held(self, x: Any, y: Any) -> None:
        """Go over the rows of a task."""
        self._go_over(x, y)

    # -- passes ----------------------------------------------------------------------------------

    def _go_over(self, x: Any, y: Any) -> None:
        rng = np.random.default_rng([self.seed, self.tasks_])
        for _ in range(self.epochs):
            order = torch.from_numpy(rng.permutation(len(x))).to(self._like.device)
            for rows in order.split(self.batch):
                self._learn_batch(x[rows], y[rows])
        self.visits_ = self.visits_ + self.epochs * len(x)

    def _learn(self, x: Any, y: Any) -> None:
        counts = {"rows_of_task_": self.rows_of_task_ + len(x)}
        if self._holds:
            self._hold(x, y)
            self.__dict__.update(counts, rows_seen_=self.rows_seen_ + len(x))
        else:
            self._learn_batch(x, y, **counts, **self._visited(len(x)))

    @property
    def _holds(self) -> bool:
        return self.epochs > 1

    def _hold(self, x: Any, y: Any) -> None:
        """Keep rows till the task ends; those that do not fit are refused now."""
        if self.held_ and self.held_[0][0].shape[1:] != x.shape[1:]:
            raise ShapeError(
                f"{self._where}.learn: `x` must be of shape {('n', *self.held_[0][0].shape[1:])}, "
                f"as the rows before, got {tuple(x.shape)}. Give rows of one shape."
            )
        first = predicted(self.module, {}, x[:1], f"{self._where}.learn")
        answers = self._targets(y, first.expand(len(x), *first.shape[1:]))
        kept = self.rows_kept_ + len(x)
        self.__dict__.update(
            held_=[*self.held_, (x.clone(), answers.clone())],
            rows_kept_=kept,
            most_rows_kept_=max(kept, self.most_rows_kept_),
        )

    def _kept(self) -> list[Any]:
        return [*self.velocity_, *(part for pair in self.held_ for part in pair)]
