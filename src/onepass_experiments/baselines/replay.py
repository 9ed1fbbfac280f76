"""Experience replay: SGD on each batch and on rows sampled from a buffer of past rows.

The buffer is a reservoir [1]: row t = 1, 2, … is stored with probability capacity / t, replacing a
random row, so that each row so far is in the buffer with the same probability. A step minimises the
mean loss over the batch and as many rows of the buffer [2]:

    L = mean over batch ∪ replayed of loss(y, f(x; w))                                       (1)

Cost: two batches per step; memory for ``capacity`` rows. It stores and repeats rows, which one-pass
learning does not: it is a strong baseline if rows may be stored.

[1] J. S. Vitter, "Random sampling with a reservoir", 1985, algorithm R.
[2] A. Chaudhry et al., "On tiny episodic memories in continual learning", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from onepass import validation
from onepass.errors import ShapeError, TypeMismatchError, public
from onepass.nn.batch import Batch, joined
from onepass.types import Array
from onepass_experiments.baselines.learner import Learner, LossName, Step


class Replay(Learner):
    """SGD on each batch and on rows from a reservoir of past rows.

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
    capacity : int, default=500
        Max number of stored rows.
    replayed : int, optional
        Stored rows used with each batch; by default as many as the batch contains.
    seed : int, default=0
        Seed of the choice of stored and replayed rows.

    Attributes
    ----------
    rows_seen_ : int
        Rows learned, each counted once.
    rows_replayed_ : int
        Number of replayed rows, counted each time.
    rows_stored_, max_rows_stored_ : int
        Rows in the buffer now, and the maximum so far.
    buffer_ : tuple of Tensor
        Stored rows (capacity, …) and their targets; empty before the first batch.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(1, 1)
    >>> model = baselines.Replay(line, loss="squared", step_size=0.01, capacity=2)
    >>> for x in range(5):
    ...     model = model.learn([[float(x)]], [2.0 * x])
    >>> model.rows_seen_, model.rows_stored_, model.rows_replayed_
    (5, 2, 4)
    >>> model.nbytes
    16
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
        momentum: float = 0.0,
        capacity: int = 500,
        replayed: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.capacity = validation.whole(capacity, "capacity", low=1)
        self.replayed = replayed
        if replayed is not None:
            validation.whole(replayed, "replayed", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self.buffer_: tuple[Batch | Tensor, ...] = ()
        self.rows_replayed_ = 0

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        # depends only on rows_seen_: retrying after an error samples the same rows
        rng = np.random.default_rng([self.seed, self.rows_seen_])
        rows = self._rows_to_store(x, self._stored_targets(x, y))
        drawn = []
        if self.rows_stored_:
            buffer = self._checked_buffer(*rows)
            again = min(self.replayed or len(x), self.rows_stored_)
            for _ in range(self._draws):
                at = self._as_indices(rng.choice(self.rows_stored_, again, replace=False))
                drawn.append([part[at] for part in buffer])
        step = self._replay_step(rows, drawn)
        buffer, stored = self._updated_buffer(rows, rng)
        again = sum(len(each[0]) for each in drawn)
        self._apply(
            step,
            buffer_=buffer,
            rows_stored_=stored,
            max_rows_stored_=stored,
            **self._visit_counts(len(x), again),
            rows_replayed_=self.rows_replayed_ + again,
        )

    _draws: ClassVar[int] = 1
    """Number of samples of the buffer for a step."""

    def _rows_to_store(self, x: Batch | Tensor, y: Tensor) -> tuple[Batch | Tensor, ...]:
        """Return the parts of the rows that the buffer stores."""
        return x, y

    def _replay_step(
        self, rows: Sequence[Batch | Tensor], drawn: Sequence[Sequence[Batch | Tensor]]
    ) -> Step:
        """Compute the step for new rows and for samples of the buffer."""
        parts = zip(rows[:2], *(each[:2] for each in drawn), strict=True)
        x, y = (joined(list(part)) for part in parts)
        return self._step(x, y)

    def _checked_buffer(self, *rows: Batch | Tensor) -> tuple[Batch | Tensor, ...]:
        """Return the buffer after checking that rows and targets match its shape and dtype."""
        for name, fresh, stored in zip("xyz", rows, self.buffer_, strict=False):
            if fresh.shape[1:] != stored.shape[1:]:
                raise ShapeError(
                    f"`{name}` must be of shape {('n', *stored.shape[1:])}, as earlier rows, got "
                    f"{tuple(fresh.shape)}. Start a new learner for rows of another shape.",
                    f"{self._where}.learn",
                )
            if name == "x" and fresh.dtype != stored.dtype:
                expected, given = (
                    str(each.dtype).removeprefix("torch.") for each in (stored, fresh)
                )
                raise TypeMismatchError(
                    f"`{name}` must contain {expected}, as earlier rows, got {given}. Convert "
                    "them, or start a new learner for a module of another precision.",
                    f"{self._where}.learn",
                )
        return self.buffer_

    def _updated_buffer(
        self, rows: Sequence[Batch | Tensor], rng: np.random.Generator
    ) -> tuple[tuple[Batch | Tensor, ...], int]:
        """Return the buffer after sampling from the batch by algorithm R, and its size."""
        t = self.rows_seen_ + np.arange(1, len(rows[0]) + 1)
        slots = np.where(t <= self.capacity, t - 1, rng.integers(0, t))
        replaced = {int(slot): i for i, slot in enumerate(slots) if slot < self.capacity}
        stored = min(int(t[-1]), self.capacity)
        if not replaced:
            return self.buffer_, stored
        # a copy: references to the former buffer stay valid
        order = np.arange(self.capacity) if self.buffer_ else np.zeros(self.capacity, np.int64)
        order[list(replaced)] = np.array(list(replaced.values())) + (
            self.capacity * bool(self.buffer_)
        )
        past = [[part] for part in self.buffer_] or [[] for _ in rows]
        parts = (joined([*p, fresh]) for p, fresh in zip(past, rows, strict=True))
        return tuple(part[self._as_indices(order)] for part in parts), stored

    def _as_indices(self, places: Array) -> Tensor:
        return torch.from_numpy(places).to(self._like.device)

    def _stored(self) -> list[Batch | Tensor]:
        return [*self.velocity_, *self.buffer_]
