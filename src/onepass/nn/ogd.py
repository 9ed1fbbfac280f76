"""OGD: orthogonal gradient descent, several steps a batch, none of which moves what is kept.

With S an orthonormal basis of the gradients kept so far, and g the gradient of the mean loss of a
batch at the weights of that moment,

    g̃ = g − Σ_{v ∈ S} v vᵀg,        w ← w − η g̃           k times a batch                   (1)
    S ← S ∪ {∇f(w) of the batch, orthonormalised}          at the weights that it ended with  (2)

(1) is (4) of [2]. What tells it from ORFit ([2], section 3): no step fits a row exactly, so that
several may be needed, with a step size to be chosen; and the gradients kept are fresh, of the
weights after the batch. For linear models both keep the same subspace.

With tasks, as in [1], S holds still within a task: of its rows ``per_task`` are drawn as they pass,
and their gradients, each taken as its row passed, enter S when the task is over.

Cost: k forward and backward passes a batch, one more for each gradient kept, and two or three
reads of the m p numbers of S for each step and each gradient kept.

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020; Algorithm 1.
[2] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 2.3.
"""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import TaskWarning
from onepass.linalg.interrupt import Interrupt
from onepass.memory.choice import specification
from onepass.nn.batch import Batch, refuse_width
from onepass.nn.function import plainly
from onepass.nn.gradients import (
    GradientsName,
    begun,
    check_gradients,
    count,
    entered,
    finite_rows,
    of_rows,
    slots,
)
from onepass.nn.learner import Learner, filled
from onepass.nn.losses import LossName
from onepass.nn.saving import register
from onepass.serialization.state import nbytes

__all__ = ["OGD"]


@register
class OGD(Learner):
    """Orthogonal gradient descent on a network.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    memory : int, None or a specification of op.memory, default=100
        What is kept of past gradients: m is ``op.memory.Principal(m)``, None all directions.
    step_size : float, default=1e-3
        η > 0.
    steps : int, default=1
        k, the steps a batch, >= 1.
    batch : int, default=32
        Rows that are learned together, >= 1. More rows given at once are cut into such batches.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        What is lowered, as the mean over a batch: half the squared error, summed over outputs, of
        numbers or of indicators of classes 0 … c − 1; or −log softmax.
    gradients : {"logit", "outputs", "average"}, optional
        Which gradients of a row are kept: of the output of its class, of all outputs, or their
        mean. Default: ``"logit"`` for classes, ``"outputs"`` for numbers.
    per_task : int, optional
        Rows of a task whose gradients are kept, >= 1; they enter the memory with ``after_task()``,
        and not before. Default: no tasks, the gradients of each batch enter at once.
    learns : str or sequence of str, default="all"
        Which parameters learn: ``"all"``, ``"last"`` (layer), names or patterns of names.
    seed : int, default=0
        What the rows of a task are drawn from.
    chunk : int, optional
        How many rows of a Jacobian are computed at once; by default as many as fit 64 MiB.

    Attributes
    ----------
    network : Network
        The module as a function of one vector of weights.
    memory_ : state of the memory, or None
    tasks_ : int
        Tasks that are over.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their output or gradient was not finite; or, on an
        accelerator, that of their batch.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is none of these.

    Warns
    -----
    MemoryFullWarning
        Once, when no direction is free any more.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(5, 1, bias=False)
    >>> net = op.nn.OGD(module, memory=None, step_size=0.5, steps=50, batch=1)
    >>> X, y = torch.eye(5)[:4], torch.arange(4.0)
    >>> float((net.learn(X, y).predict(X) - y).abs().max()) < 1e-5
    True
    """

    kept: ClassVar[tuple[str, ...]] = (
        *(*Learner.kept, "_memory", "_full", "tasks_", "_task_rows", "_drawn"),
    )
    fits: ClassVar[bool] = False
    _untaken = ("where they, or those of the rest of its batch, are not", "a smaller step_size")

    def __init__(
        self,
        module: torch.nn.Module,
        memory: Any = 100,
        *,
        step_size: float = 1e-3,
        steps: int = 1,
        batch: int = 32,
        loss: LossName = "squared",
        gradients: GradientsName | None = None,
        per_task: int | None = None,
        learns: str | Sequence[str] = "all",
        seed: int = 0,
        chunk: int | None = None,
    ) -> None:
        super().__init__(module, loss=loss, learns=learns, block_update=True, chunk=chunk)
        where = self._where
        self.memory = memory
        self.step_size = validation.in_range(step_size, "step_size", where, above=0.0)
        self.steps = validation.whole(steps, "steps", where, low=1)
        self.batch = validation.whole(batch, "batch", where, low=1)
        self.gradients = gradients
        self._kept = gradients or ("outputs" if loss == "squared" else "logit")
        check_gradients(self._kept, where, classes=loss != "squared")
        self.per_task = (
            None if per_task is None else validation.whole(per_task, "per_task", where, low=1)
        )
        self.seed = validation.whole(seed, "seed", where, low=0)
        self.tasks_ = 0
        self._specification = specification(memory, where)
        begun(self._specification, 1, self._like, where)  # refuses what cannot be used
        self._memory: Any = None
        self._task_rows = 0  # rows of the task so far
        self._drawn: Any = None  # (per_task, k, p), their gradients; zero where there is none yet

    # -- verbs -----------------------------------------------------------------------------------

    def after_task(self) -> Self:
        """Be told that a task is over: the gradients drawn of its rows enter the memory.

        Without ``per_task`` they have entered it already: nothing is done, and a warning says so.

        Returns
        -------
        self

        Warns
        -----
        TaskWarning
            Without ``per_task``.
        """
        if self.per_task is None:
            warnings.warn(
                f"{self._where}.after_task: `per_task` must be a number of rows for a task to be "
                "over, got None: gradients of each batch have entered the memory at once, and "
                "nothing was done. Give per_task=100, or leave after_task() out.",
                TaskWarning,
                stacklevel=2,
            )
        if self._drawn is None:
            return self
        interrupt = Interrupt()
        net = self.network
        with net.turn, interrupt.held(), plainly(net.device, net.p):
            self._learn(None, None, self._drawn[: self._task_rows].flatten(0, 1))
            self._drawn, self._task_rows, self.tasks_ = None, 0, self.tasks_ + 1
        interrupt.raise_pending()
        self._tell_if_full(3)
        return self

    @property
    def memory_(self) -> Any:
        """The memory as it is, None before gradients entered it."""
        return self._memory

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights: the memory, and gradients drawn of a task."""
        return nbytes([self._memory, self._drawn])

    # -- what stands behind them -----------------------------------------------------------------

    def _tried(self) -> None:
        super()._tried()
        if self._drawn is not None:
            k = count(self._kept, self._outputs or 1)
            self._drawn.reshape(self.per_task, k, self.network.p)
        if self._memory is not None:
            self._memory.split(self._like.new_zeros(1, self.network.p).T)

    def _rows_a_step(self, n: int) -> int:
        return min(self.batch, n)

    def _step(self, rows: Batch, y: Tensor) -> Tensor:
        before, wide = self._weights, self._wide
        try:
            said, good = self._descended(rows, y, before)
            if not linalg.on_device(good) and not bool(good):
                self._refuse_broken()
                at = finite_rows(self.network, rows, lambda f, i: self._slope(f, y[i : i + 1]))
                if 0 < len(at) < len(said):  # the others are a batch
                    rows, y = rows[torch.tensor(at)], y[at]
                    good = self._descended(rows, y, before)[1]
            G, places = self._fresh(rows, y)
            self._keep(torch.where(good, G, 0.0), places)  # zeros, which no memory keeps
        except BaseException:
            self._wide = wide
            self.network.set_weights(before.to(self.network.dtype))
            raise
        self._refused = self._refused + len(said) - len(rows) + (~good).sum() * len(rows)
        self._task_rows += len(rows)
        self.rows_seen_ += len(said)
        return said

    def _descended(self, rows: Batch, y: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """Take the steps (1); what was said before them, and whether all were finite."""
        first, fine = None, torch.ones((), dtype=torch.bool, device=y.device)
        for _ in range(self.steps):
            said, g = self.network.gradient(rows, lambda f: self._slope(f, y, rows.where))
            first = said if first is None else first
            g = linalg.widened(g)
            rows_are_finite = linalg.rows_are_finite(g[None])[0]
            fine, g = fine & rows_are_finite, torch.where(rows_are_finite, g, 0.0)
            if self._memory is not None:
                g = linalg.like(self._memory.split(g[:, None]).lifted[:, 0], g)
            new = self._weights - self.step_size * g
            # no look at the device: a batch whose step is not finite is masked
            fine = fine & self._sound(new) & said.isfinite().all()
            self._take(torch.where(fine, new, before))
        return first, fine

    def _slope(self, out: Tensor, y: Tensor, where: str = "") -> Tensor:
        """The derivative of the mean loss in the outputs (n, c)."""
        said = out.double()
        refuse_width(out.shape[1], y.shape[1], where)
        if self.loss == "cross_entropy":
            said = torch.softmax(said, dim=1)
        return ((said - y) / len(y)).to(out.dtype)

    def _fresh(self, rows: Batch, y: Tensor) -> tuple[Tensor, list[int]]:
        """(2): gradients (r, k, p) at the present weights, and their places among those drawn."""
        at, places = None, list[int]()
        if self.per_task is not None:
            chosen = slots(self._task_rows, len(rows), self.per_task, (self.seed, self.tasks_))
            at, places = list(chosen.values()), list(chosen)
        k, p = count(self._kept, y.shape[1]), self.network.p
        if at == []:
            return self._like.new_empty((0, k, p)), places
        found, _ = of_rows(self.network, rows, y, self._kept, at)
        return found.reshape(-1, k, p), places

    def _keep(self, G: Tensor, places: list[int]) -> None:
        """Let gradients enter the memory; or, within a task, keep those that were drawn."""
        if self.per_task is None:
            self._learn(None, None, G.flatten(0, 1))
            return
        if self._drawn is None:
            self._drawn = G.new_zeros((self.per_task, *G.shape[1:]))
        if places:
            self._drawn[places] = G

    def _learn(self, rows: Batch | None, e: Tensor | None, J: Tensor) -> None:
        """Let gradients J (k, p) enter the memory; the steps have been taken."""
        del rows, e
        if self._memory is None:
            at_once = self.per_task or self.batch
            at_once *= count(self._kept, self._outputs or 1)
            p, like = self.network.p, self._like
            self._memory = begun(self._specification, p, like, self._where, at_once)
        self._memory = entered(self._memory, self._weights, J)

    def _filled(self) -> str | None:
        remedy = "Use a smaller memory, fewer rows a task, or a wider network."
        return filled(self._memory, self.network.p, remedy)
