"""Experience replay: SGD on each batch and on rows sampled from a buffer of past rows.

The buffer is a reservoir [1]: row t = 1, 2, … is stored with probability capacity / t, in place of
a random row, so that each row so far is in it with the same probability. A step lowers the mean
loss over the batch and as many rows of the buffer [2]:

    L = mean over batch ∪ replayed of loss(y, f(x; w))                                       (1)

Cost: two batches a step; memory for ``capacity`` rows. It stores rows and repeats them, which
one-pass learning does not: a bound, and a strong method where rows may be stored.

[1] J. S. Vitter, "Random sampling with a reservoir", 1985, algorithm R.
[2] A. Chaudhry et al., "On tiny episodic memories in continual learning", 2019.
"""

import numpy as np
import torch
from torch import Tensor

from onepass import validation
from onepass.errors import ShapeError, TypeMismatchError
from onepass.nn.batch import Batch, joined
from onepass.types import Array
from onepass_experiments.baselines.learner import Learner, LossName

__all__ = ["Replay"]


class Replay(Learner):
    """SGD that sees some past rows again with each batch.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place, in the mode it is in; parameters that require no gradient stay.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        What is lowered: −log softmax, or half the squared error; the mean over all rows.
    step_size : float, default=0.01
        η > 0.
    momentum : float, default=0.0
        μ in [0, 1].
    capacity : int, default=500
        Rows that are kept, at most.
    replayed : int, optional
        Rows that are seen again with each batch; as many as the batch has, if not given.
    seed : int, default=0
        Draws which rows are kept, and which are seen again.

    Attributes
    ----------
    rows_seen_ : int
        Rows learned, each counted once.
    rows_replayed_ : int
        Rows seen again, each time counted.
    rows_stored_, max_rows_stored_ : int
        Rows in the buffer.
    buffer_ : tuple of Tensor
        Kept rows (capacity, …) and their answers; empty before the first.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(1, 1)
    >>> model = baselines.Replay(line, loss="squared", capacity=2)
    >>> for x in range(5):
    ...     model = model.learn([[float(x)]], [2.0 * x])
    >>> model.rows_seen_, model.rows_stored_, model.rows_replayed_
    (5, 2, 4)
    >>> model.nbytes
    16
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float = 0.01,
        momentum: float = 0.0,
        capacity: int = 500,
        replayed: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.capacity = validation.whole(capacity, "capacity", self._where, low=1)
        self.replayed = replayed
        if replayed is not None:
            validation.whole(replayed, "replayed", self._where, low=1)
        self.seed = validation.whole(seed, "seed", self._where, low=0)
        self.buffer_: tuple[Batch | Tensor, ...] = ()
        self.rows_replayed_ = 0

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        # from the rows seen alone: learning again after a refusal draws the same
        rng = np.random.default_rng([self.seed, self.rows_seen_])
        answers = self._answers(x, y)
        again = 0
        if self.rows_stored_:
            again = min(self.replayed or len(x), self.rows_stored_)
            chosen = self._places(rng.choice(self.rows_stored_, again, replace=False))
            batch = zip((x, answers), self._alike(x, answers), strict=True)
            step = self._step(*(joined([fresh, kept[chosen]]) for fresh, kept in batch))
        else:
            step = self._step(x, answers)
        buffer, kept = self._sampled(x, answers, rng)
        self._take(
            step,
            buffer_=buffer,
            rows_stored_=kept,
            max_rows_stored_=kept,
            **self._visited(len(x), again),
            rows_replayed_=self.rows_replayed_ + again,
        )

    def _alike(self, x: Batch | Tensor, y: Tensor) -> tuple[Batch | Tensor, ...]:
        """The buffer, if a batch has rows and answers of its kind."""
        for name, fresh, kept in zip("xy", (x, y), self.buffer_, strict=True):
            if fresh.shape[1:] != kept.shape[1:]:
                raise ShapeError(
                    f"{self._where}.learn: `{name}` must be of shape {('n', *kept.shape[1:])}, as "
                    f"the rows before, got {tuple(fresh.shape)}. Start a new learner for a new "
                    "kind of rows."
                )
            if name == "x" and fresh.dtype != kept.dtype:
                held, came = (str(each.dtype).removeprefix("torch.") for each in (kept, fresh))
                raise TypeMismatchError(
                    f"{self._where}.learn: `{name}` must hold {held}, as the rows "
                    f"before, got {came}. Convert them, or start a new learner "
                    "for a module of another precision."
                )
        return self.buffer_

    def _sampled(
        self, x: Batch | Tensor, y: Tensor, rng: np.random.Generator
    ) -> tuple[tuple[Batch | Tensor, ...], int]:
        """The buffer with its share of the batch, by algorithm R."""
        t = self.rows_seen_ + np.arange(1, len(x) + 1)
        slots = np.where(t <= self.capacity, t - 1, rng.integers(0, t))
        taken = {int(slot): i for i, slot in enumerate(slots) if slot < self.capacity}
        kept = min(int(t[-1]), self.capacity)
        if not taken:
            return self.buffer_, kept
        # a copy: references to the former buffer stay valid
        order = np.arange(self.capacity) if self.buffer_ else np.zeros(self.capacity, np.int64)
        order[list(taken)] = np.array(list(taken.values())) + (self.capacity * bool(self.buffer_))
        past = [[part] for part in self.buffer_] or [[], []]
        parts = (joined([*p, fresh]) for p, fresh in zip(past, (x, y), strict=True))
        return tuple(part[self._places(order)] for part in parts), kept

    def _places(self, places: Array) -> Tensor:
        return torch.from_numpy(places).to(self._like.device)

    def _kept(self) -> list[Batch | Tensor]:
        return [*self.velocity_, *self.buffer_]
