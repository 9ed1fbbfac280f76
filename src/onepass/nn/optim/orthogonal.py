"""OrthogonalGradient: an optimizer wrapper that projects steps as OGD does.

With S an orthonormal basis of gradients of rows of past tasks, each taken at the end of its task, a
step Δ of the inner optimizer becomes

    Δ − Σ_{v ∈ S} v vᵀΔ                                                                      (1)

([1] Algorithm 1 for plain SGD, whose steps are its gradients). The step is projected instead of the
gradient, so that momentum, weight decay and Adam do not leave the orthogonal complement of S.
Cost of a step: two or three reads of the m p numbers of S, and temporary memory for 4 p numbers.

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import CheckpointError, MemoryFullWarning, RowsRefusedWarning, public
from onepass.linalg.interrupt import Interrupt
from onepass.linalg.subspace import OrthonormalBasis
from onepass.memory.choice import specification
from onepass.nn.function import evaluation_mode
from onepass.nn.gradients import (
    GradientsName,
    check_gradients,
    chunked_gradients,
    count_nonfinite,
    insert_gradients,
    row_gradients,
    start_memory,
)
from onepass.nn.optim.projected import LabelledRows, Projected, loader_rows


class OrthogonalGradient(Projected):
    """Orthogonal gradient descent (OGD) with any torch optimizer.

    Use it like the wrapped optimizer, with schedulers and ``torch.amp.GradScaler``: call ``step()``
    after ``loss.backward()``.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimizer of parameters of ``module``; not LBFGS.
    module : torch.nn.Module
    memory : int, None or a specification of op.memory, optional
        Memory of gradients. An integer m means ``op.memory.Principal(m)``, their m principal
        directions. Default: None, all directions, as in [1].
    projects : {"all", "last"}, str or sequence of str, default="all"
        Parameters whose steps are projected: all, those of the last layer, or names or patterns of
        parameters or layers. Others, such as task-specific heads, are updated without projection.
    gradients : {"logit", "outputs", "average"}, default="logit"
        Gradients to store for a row: of the output of its class, of all outputs, or of their mean.
    per_task : int or None, default=100
        Number of rows per task whose gradients are stored, >= 1; None: all.
    seed : int, default=0
        Random seed for sampling the rows of a task.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
    memory_ : state of the memory, or None
    tasks_ : int
        Number of finished tasks.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument is invalid, or the optimizer has parameters that are not of ``module``.

    Notes
    -----
    A parameter that is frozen with ``requires_grad_(False)`` does not change. A
    parameter without a gradient, or with a step size of 0, may still be changed by the projection.
    Running statistics of batch normalisation are not parameters and are not projected: freeze them
    with ``eval()`` to preserve past predictions.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(3, 1, bias=False)
    >>> optimizer = op.nn.optim.OrthogonalGradient(
    ...     torch.optim.Adam(module.parameters(), lr=0.1), module, gradients="outputs"
    ... )
    >>> past, new = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> before = module(past).item()
    >>> _ = optimizer.after_task([(past, None)])
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (module(new) - 5.0).square().mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> abs(module(past).item() - before) < 1e-5, round(module(new).item(), 1)
    (True, 5.0)
    """

    _part: ClassVar[str] = "memory"

    @public
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        memory: Any = None,
        *,
        projects: str | Sequence[str] = "all",
        gradients: GradientsName = "logit",
        per_task: int | None = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(optimizer, module, projects)
        check_gradients(gradients)
        self.memory = memory
        self.gradients = gradients
        self.per_task = None if per_task is None else validation.whole(per_task, "per_task", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self._specification = specification(memory)
        start_memory(self._specification, 1, self._network.like)  # may raise
        self._memory = None
        self._columns: OrthonormalBasis | None = None
        self._partial: tuple[tuple[bool, ...], OrthonormalBasis] | None = None

    # -- tasks -----------------------------------------------------------------------------------

    @public
    def after_task(self, loader: Iterable[object]) -> Self:
        """End a task: add gradients of its rows, at the current weights, to the memory.

        The module is evaluated in evaluation mode; its mode, ``grad`` and buffers do not change.

        Parameters
        ----------
        loader : iterable of batches (x, y), or one such batch, a tuple
            The rows of the task, such as its DataLoader; read once. y contains classes; it is
            ignored unless ``gradients="logit"``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ShapeError, TypeMismatchError, NotFiniteError, LabelError
            If there are no rows, or they are invalid. Nothing is changed.
        NumericalError
            If no gradient is finite. Nothing is changed, and the task is not ended.

        Warns
        -----
        RowsRefusedWarning
            If some gradients are not finite. They are skipped.
        MemoryFullWarning
            When the memory spans all weights.
        """
        where, p = f"{self._where}.after_task", self._network.p
        labels, seed = self.gradients == "logit", (self.seed, self.tasks_)
        memory = self._memory
        if memory is None:
            memory = start_memory(self._specification, p, self._network.like)
        else:
            memory = copy.deepcopy(memory)  # a failure must not leave some rows in the memory
        interrupt, w = Interrupt(), self._network.weights().to(self._network.like.dtype)
        with evaluation_mode(list(self.module.modules())), self._plain_mode():
            rows = loader_rows(loader, self.per_task, seed, self._network, where, labels=labels)
            rows = rows if self.per_task is None else iter(list(rows))
            with interrupt.held():
                good: list[Tensor] = []
                for J in chunked_gradients(self._row_gradients(rows, good)):
                    memory = insert_gradients(memory, w, J)
                count = count_nonfinite(good)
                self._take_memory(memory)
                self.tasks_ += 1
        interrupt.raise_pending()
        if count:
            warnings.warn(
                f"{where}: the gradients of the task's rows must be finite, got nan or infinity in "
                f"{count}. These gradients were skipped. Check these rows and the module's "
                "weights.",
                RowsRefusedWarning,
                stacklevel=3,
            )
        if memory.rank >= p:
            warnings.warn(
                f"{where}: the memory should contain fewer directions than the module has weights, "
                f"got all {p}: no direction is left for further tasks. Use a smaller `memory` or "
                "`per_task`, or a wider network.",
                MemoryFullWarning,
                stacklevel=3,
            )
        return self

    @property
    def memory_(self) -> Any:
        """State of the memory; None before the end of the first task."""
        return self._memory

    # -- helpers -------------------------------------------------------------------

    def _row_gradients(self, rows: Iterable[LabelledRows], good: list[Tensor]) -> Iterator[Tensor]:
        """Yield gradients (k, p) of rows; append masks of the finite gradients to ``good``."""
        for each in rows:
            J, sound = row_gradients(self._network, each.rows, each.classes, self.gradients)
            good.append(sound)
            yield J

    def _corrected_parameters(self) -> list[torch.nn.Parameter]:
        return self._chosen if self._columns is not None and len(self._columns) else []

    def _correct(self, parameters: list[torch.nn.Parameter], before: list[Tensor]) -> None:
        """Apply (1), in the order of the memory's weights."""
        like = self._network.like.dtype
        moved = (each.detach() - old for each, old in zip(parameters, before, strict=True))
        step = torch.cat([each.reshape(-1).to(like) for each in moved])
        free = self._directions(self._columns, parameters).split(step[:, None]).outside[:, 0]
        pieces = free.to(like).split([each.numel() for each in parameters])
        for each, old, piece in zip(parameters, before, pieces, strict=True):
            if each.requires_grad:
                each.copy_(old + piece.reshape(old.shape))

    def _directions(self, columns: Any, parameters: list[torch.nn.Parameter]) -> Any:
        """Return S, restricted to the parameters that are not frozen."""
        moves = tuple(each.requires_grad for each in parameters)
        if all(moves):
            return columns
        if self._partial is None or self._partial[0] != moves:
            rows = linalg.widened(columns.rows).clone()
            for moving, piece in zip(moves, self._network.slices.values(), strict=True):
                rows[:, piece] *= float(moving)
            least = linalg.small(torch.full_like(rows[:, 0], linalg.resolution(rows)))
            W, _, accepted = linalg.orthonormal(rows.T, least)
            self._partial = moves, OrthonormalBasis(linalg.present(W, accepted).T.contiguous())
        return self._partial[1]

    def _refuse_unlike(self, memory: Any) -> None:
        columns = None if memory is None else memory.settled()[1]
        if columns is not None and columns.matrix.shape[0] != self._network.p:
            raise CheckpointError(
                f"the memory must be of {self._network.p} weights, got a memory of "
                f"{columns.matrix.shape[0]}. Wrap the module of the saved state."
            )

    def _take_memory(self, memory: Any) -> None:
        self._partial = None
        self._memory, self._columns = (None, None) if memory is None else memory.settled()
