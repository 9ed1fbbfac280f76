"""OGD: orthogonal gradient descent, with steps orthogonal to stored gradients.

With S an orthonormal basis of the stored gradients, and g the gradient of the mean loss of a batch
at the current weights,

    g̃ = g − Σ_{v ∈ S} v vᵀg,        w ← w − η g̃           k times per batch                 (1)
    S ← S ∪ {∇f(w) of the batch, orthonormalised}          at the weights after the batch    (2)

By default 1 / η is the largest curvature of the loss along the gradients so far. With J the
Jacobian of the outputs of the n rows of a batch, and H the second derivatives of the loss in them,

    1 / η = max over batches of Σ (J g)ᵀ H (J g) / (n ‖g‖²)                                  (3)

so that the steps do not depend on the units of features and targets.

(1) is (4) of [2]. Differences from ORFit ([2], section 3): a step does not fit a row exactly, so
that a step size and a number of steps must be chosen; and stored gradients are taken at the weights
after the batch. For linear models both store the same subspace.

With tasks, as in [1], S is constant within a task. ``per_task`` of its rows are sampled, and their
gradients, each computed when its row was learned, are added to S at the end of the task.

Cost: k forward and backward passes per batch, one more for each stored gradient, and two or three
reads of the m p numbers of S for each step and each stored gradient.

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020; Algorithm 1.
[2] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 2.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import TaskWarning, public
from onepass.memory.choice import specification
from onepass.nn.batch import Batch, refuse_width
from onepass.nn.gradients import (
    GradientsName,
    check_gradients,
    finite_rows,
    gradients_per_row,
    insert_gradients,
    reservoir_slots,
    row_gradients,
    start_memory,
)
from onepass.nn.learner import Learner, full_memory_message
from onepass.nn.losses import Loss
from onepass.nn.saving import register
from onepass.serialization.state import nbytes

_PROBE = 1e-3  # length of the difference for J g̃, relative to the weights


@register
class OGD(Learner):
    """Orthogonal gradient descent (OGD) for a network.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. Evaluated in evaluation mode.
    memory : int, None or a specification of op.memory, default=100
        Memory of past gradients. An integer m means ``op.memory.Principal(m)``, None means all
        directions.
    step_size : float, optional
        Step size η > 0. Default: the inverse of the largest curvature so far (3).
    steps : int, default=1
        Steps k per batch, >= 1.
    batch : int, default=32
        Batch size, >= 1. Larger inputs are split into batches.
    loss : {"squared", "one_hot", "cross_entropy"} or callable, default="squared"
        Mean loss over a batch: half the squared error, summed over outputs, for regression or for
        indicators of classes 0 … c − 1; or the cross entropy.
    gradients : {"logit", "outputs", "average"}, optional
        Gradients to store for a row: of the output of its class, of all outputs, or of their mean.
        Default: ``"logit"`` for classes, ``"outputs"`` for regression.
    per_task : int, optional
        Number of rows per task whose gradients are stored, >= 1; ``after_task()`` adds them to the
        memory. Default: no tasks, gradients are added after each batch.
    learns : str or sequence of str, default="all"
        Parameters to train: ``"all"``, ``"last"`` (layer), names or patterns of names.
    seed : int, default=0
        Random seed for sampling the rows of a task.

    Attributes
    ----------
    network : Network
        The module as a function of one flat weight vector.
    memory_ : state of the memory, or None
    tasks_ : int
        Number of finished tasks.
    rows_seen_, rows_refused_ : int
        Number of rows received, and of rows rejected because outputs or gradients were not finite
        (on an accelerator, of any row of their batch).

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument or the module is invalid.

    Warns
    -----
    MemoryFullWarning
        Once, when the memory spans all weights.

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

    _state_attributes: ClassVar[tuple[str, ...]] = (
        *Learner._state_attributes,  # noqa: SLF001  of the base class
        "_memory",
        "_full",
        "tasks_",
        "_task_rows",
        "_drawn",
        "_curvature",
    )
    _fits: ClassVar[bool] = False
    _advice: ClassVar[str] = (
        "Scale features and targets to mean 0 and variance 1, use more `steps` per batch, or a "
        "larger network or smaller memory, which leaves more directions free."
    )
    _refusal = (
        "with nan or infinity, or in a batch with such a row",
        "a smaller step_size",
    )

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        memory: Any = 100,
        *,
        step_size: float | None = None,
        steps: int = 1,
        batch: int = 32,
        loss: Loss = "squared",
        gradients: GradientsName | None = None,
        per_task: int | None = None,
        learns: str | Sequence[str] = "all",
        seed: int = 0,
    ) -> None:
        super().__init__(module, loss=loss, learns=learns, block_update=True)
        self.memory = memory
        if step_size is not None:
            step_size = validation.in_range(step_size, "step_size", above=0.0)
        self.step_size = step_size
        self.steps = validation.whole(steps, "steps", low=1)
        self.batch = validation.whole(batch, "batch", low=1)
        self.gradients = gradients
        by_name = loss in {"one_hot", "cross_entropy"}
        self._gradients = gradients or ("logit" if by_name else "outputs")
        check_gradients(self._gradients, classes=loss != "squared")
        self.per_task = None if per_task is None else validation.whole(per_task, "per_task", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self.tasks_ = 0
        self._curvature = 0.0  # the largest so far
        self._specification = specification(memory)
        start_memory(
            self._specification, 1, self.network.like
        )  # raises if the specification cannot be used
        self._memory: Any = None
        self._task_rows = 0  # rows of the task so far
        self._drawn: Any = None  # (per_task, k, p), sampled gradients; zero if not yet sampled

    # -- tasks -----------------------------------------------------------------------------------

    @public
    def after_task(self) -> Self:
        """End a task: add the gradients sampled from its rows to the memory.

        Without ``per_task`` this does nothing and warns, since gradients are added after each
        batch.

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
                f"{self._where}.after_task: `per_task` must be a number of rows to end a task, got "
                "None. The memory is unchanged: gradients are added after each batch. Set "
                "per_task, such as per_task=100, or do not call after_task().",
                TaskWarning,
                stacklevel=3,
            )
        if self._drawn is None:
            return self
        with self._exclusively():
            self._learn(None, None, self._drawn[: self._task_rows].flatten(0, 1))
            self._drawn, self._task_rows, self.tasks_ = None, 0, self.tasks_ + 1
        self._warn_if_full(3)
        return self

    @property
    def memory_(self) -> Any:
        """State of the memory; None before the first gradient."""
        return self._memory

    @property
    def nbytes(self) -> int:
        """Size in bytes of the memory and of sampled gradients, without the weights."""
        return nbytes([self._memory, self._drawn])

    # -- helpers -----------------------------------------------------------------

    def _check_restored(self) -> None:
        super()._check_restored()
        if self._drawn is not None:
            k = gradients_per_row(self._gradients, self._outputs or 1)
            self._drawn.reshape(self.per_task, k, self.network.p)
        if self._memory is not None:
            self._memory.split(self.network.like.new_zeros(1, self.network.p).T)

    def _rows_a_step(self, n: int) -> int:
        return min(self.batch, n)

    def _step(self, rows: Batch, y: Tensor, weights: Tensor | None) -> Tensor:
        before, wide = self._weights, self._wide
        try:
            outputs, good = self._descended(rows, y, weights, before)
            if not linalg.on_device(good) and not bool(good):
                self._refuse_broken()
                at = finite_rows(
                    self.network, rows, lambda f, i: self._slope(f, y[i : i + 1], None)
                )
                if 0 < len(at) < len(outputs):  # the other rows form a batch
                    rows, y = rows[torch.tensor(at)], y[at]
                    weights = None if weights is None else weights[at]
                    good = self._descended(rows, y, weights, before)[1]
            G, places = self._fresh(rows, y)
            self._keep(torch.where(good, G, 0.0), places)  # memories ignore zeros
        except BaseException:
            self._wide = wide
            self.network.set_weights(before.to(self.network.dtype))
            raise
        self._refused = self._refused + len(outputs) - len(rows) + (~good).sum() * len(rows)
        self._task_rows += len(rows)
        self.rows_seen_ += len(outputs)
        return outputs

    def _descended(
        self, rows: Batch, y: Tensor, weights: Tensor | None, before: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take the steps (1); return the outputs before them, and whether all were finite."""
        first, fine = None, torch.ones((), dtype=torch.bool, device=y.device)
        for _ in range(self.steps):
            outputs, g = self.network.gradient(rows, lambda f: self._slope(f, y, weights))
            first = outputs if first is None else first
            g = linalg.widened(g)
            rows_are_finite = linalg.rows_are_finite(g[None])[0]
            fine, g = fine & rows_are_finite, torch.where(rows_are_finite, g, 0.0)
            step_size = self._step_size(rows, outputs, g, y, weights)
            if self._memory is not None:
                g = linalg.like(self._memory.split(g[:, None]).lifted[:, 0], g)
            new = self._weights - step_size * g
            # no synchronisation: a batch with a non-finite step is masked
            fine = fine & self._is_finite(new) & outputs.isfinite().all()
            self._set_weights(torch.where(fine, new, before))
        return first, fine

    def _step_size(
        self, rows: Batch, outputs: Tensor, g: Tensor, y: Tensor, weights: Tensor | None
    ) -> Any:
        """Return η, by default (3) with J g from a difference of outputs."""
        if self.step_size is not None:
            return self.step_size
        w, length = self._weights, g.norm().clamp_min(1e-30)
        size = _PROBE * w.norm().clamp_min(1.0) / length
        self._set_weights(w - size * g)
        moved = ((outputs - self.network.outputs(rows)) / size).double()
        self._set_weights(w)
        curved = self._row_loss.curved(outputs, y, moved)
        curved = curved if weights is None else curved * weights[:, None]
        found = (moved * curved).sum() / len(y) / length.double().square()
        if bool(found.isfinite()):
            self._curvature = max(self._curvature or 0.0, float(found))
        return 1.0 / self._curvature if self._curvature else 0.0

    def _slope(self, out: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
        """Return the derivative of the mean loss with respect to the outputs (n, c)."""
        refuse_width(out.shape[1], self._outputs or out.shape[1])
        slope = self._row_loss.slope(out, y) / len(y)
        return slope if weights is None else slope * weights[:, None].to(slope.dtype)

    def _fresh(self, rows: Batch, y: Tensor) -> tuple[Tensor, list[int]]:
        """Return gradients (r, k, p) of (2) at these weights, and their slots in the sample."""
        at, places = None, list[int]()
        if self.per_task is not None:
            chosen = reservoir_slots(
                self._task_rows, len(rows), self.per_task, (self.seed, self.tasks_)
            )
            at, places = list(chosen.values()), list(chosen)
        k, p = gradients_per_row(self._gradients, self._outputs or 1), self.network.p
        if at == []:
            return self.network.like.new_empty((0, k, p)), places
        found, _ = row_gradients(self.network, rows, y, self._gradients, at)
        return found.reshape(-1, k, p), places

    def _keep(self, G: Tensor, places: list[int]) -> None:
        """Add gradients to the memory, or to the sample of the current task."""
        if self.per_task is None:
            self._learn(None, None, G.flatten(0, 1))
            return
        if self._drawn is None:
            self._drawn = G.new_zeros((self.per_task, *G.shape[1:]))
        if places:
            self._drawn[places] = G

    def _learn(self, rows: Batch | None, e: Tensor | None, J: Tensor) -> None:
        """Add gradients J (k, p) to the memory; the steps have been taken."""
        del rows, e
        if self._memory is None:
            at_once = self.per_task or self.batch
            at_once *= gradients_per_row(self._gradients, self._outputs or 1)
            p, like = self.network.p, self.network.like
            self._memory = start_memory(self._specification, p, like, at_once)
        self._memory = insert_gradients(self._memory, self._weights, J)

    def _full_message(self) -> str | None:
        remedy = "Use a smaller memory, fewer rows per task, or a wider network."
        return full_memory_message(self._memory, self.network.p, remedy)
