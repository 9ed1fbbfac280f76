"""OrthogonalGradient: OGD around any optimizer: its steps do not move answers of past tasks.

With S an orthonormal basis of gradients of past tasks' rows, each taken when its task was over, a
step Δ of the inner optimizer becomes

    Δ − Σ_{v ∈ S} v vᵀΔ                                                                      (1)

([1] Algorithm 1 for plain SGD, whose steps are its gradients; here the step itself is projected,
so that momentum, weight decay and Adam do not lead out of what is free).
Cost of a step: two or three reads of the m p numbers of S, and room for 4 p numbers.

[1] M. Farajtabar, N. Azizan, A. Mott, A. Li, "Orthogonal Gradient Descent for Continual Learning",
    AISTATS 2020.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import (
    CheckpointError,
    MemoryFullWarning,
    RowsRefusedWarning,
)
from onepass.linalg.interrupt import Interrupt
from onepass.linalg.subspace import OrthonormalBasis
from onepass.memory.choice import specification
from onepass.nn.function import evaluation_mode
from onepass.nn.gradients import (
    GradientsName,
    begun,
    check_gradients,
    entered,
    gathered,
    left_out,
    of_rows,
)
from onepass.nn.optim.projected import Labelled, Projected, drawn

__all__ = ["OrthogonalGradient"]


class OrthogonalGradient(Projected):
    """Orthogonal gradient descent, around any optimizer of torch.

    It is an optimizer: give it to schedulers and to ``torch.amp.GradScaler``, and call ``step()``
    after ``loss.backward()`` as ever. The training loop, the loss and the batches are yours.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of parameters of the module; not LBFGS.
    module : torch.nn.Module
    memory : int, None or a specification of op.memory, optional
        What is kept of gradients: m is ``op.memory.Principal(m)``, their m principal directions.
        Default: None, all directions, as [1] has it.
    projects : {"all", "last"}, str or sequence of str, default="all"
        Which parameters' steps are projected: all of the optimizer, or names of parameters or
        layers, or patterns. The others are free, as heads are that belong to one task.
    gradients : {"logit", "outputs", "average"}, default="logit"
        Which gradients of a row are kept: of the output of its class, of all outputs, or their
        mean.
    per_task : int or None, default=100
        Rows of a task whose gradients are kept, >= 1; None: all.
    seed : int, default=0
        What the rows of a task are drawn from.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
    memory_ : state of the memory, or None
    tasks_ : int
        Tasks that are over.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument is none of these, or the optimizer moves what is not the module's.

    Notes
    -----
    A parameter that is frozen by ``requires_grad_(False)`` stays as it is; one that merely has no
    gradient, or a step size of 0, is moved with the others where the projection asks for it.
    Running statistics of batch normalisation are no parameters and are not held: freeze them with
    ``eval()`` if past answers must stay.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(3, 1, bias=False)
    >>> optimizer = op.nn.optim.OrthogonalGradient(
    ...     torch.optim.Adam(module.parameters(), lr=0.1), module, gradients="outputs"
    ... )
    >>> past, new = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> said = module(past).item()
    >>> _ = optimizer.after_task([(past, None)])
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (module(new) - 5.0).square().mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> abs(module(past).item() - said) < 1e-5, round(module(new).item(), 1)
    (True, 5.0)
    """

    _part: ClassVar[str] = "memory"

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
        check_gradients(gradients, self._where)
        self.memory = memory
        self.gradients = gradients
        where = self._where
        self.per_task = (
            None if per_task is None else validation.whole(per_task, "per_task", where, low=1)
        )
        self.seed = validation.whole(seed, "seed", where, low=0)
        self._specification = specification(memory, where)
        begun(self._specification, 1, self._like, where)  # refuses what cannot be used
        self._memory = None
        self._columns: OrthonormalBasis | None = None
        self._partial: tuple[tuple[bool, ...], OrthonormalBasis] | None = None

    # -- tasks -----------------------------------------------------------------------------------

    def after_task(self, loader: Iterable[object]) -> Self:
        """Take the gradients of a task's rows, at the present weights, into the memory.

        The module is asked as in evaluation mode; its mode, ``grad`` and buffers stay.

        Parameters
        ----------
        loader : iterable of batches (x, y), or one such batch, a tuple
            The task's rows, such as the DataLoader that it was trained with; it is read once. y are
            classes, or anything unless ``gradients="logit"``.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ShapeError, TypeMismatchError, NotFiniteError, LabelError
            If there are no rows, or they do not fit: then nothing has changed.
        NumericalError
            If no gradient is finite: then nothing has changed, and the task is not over.

        Warns
        -----
        RowsRefusedWarning
            If some gradients are not finite: those are left out.
        MemoryFullWarning
            When no direction is free any more.
        """
        where, p = f"{self._where}.after_task", self._network.p
        labels, seed = self.gradients == "logit", (self.seed, self.tasks_)
        memory = self._memory
        if memory is None:
            memory = begun(self._specification, p, self._like, where)
        else:
            memory = copy.deepcopy(memory)  # the module may raise when some rows are in it already
        interrupt, w = Interrupt(), self._network.weights().to(self._like.dtype)
        with evaluation_mode(list(self.module.modules())), self._plainly():
            rows = drawn(loader, self.per_task, seed, self._network, where, labels=labels)
            rows = rows if self.per_task is None else iter(list(rows))
            with interrupt.held():
                good: list[Tensor] = []
                for J in gathered(self._sound(rows, good)):
                    memory = entered(memory, w, J)
                lost = left_out(good, where)
                self._take_memory(memory)
                self.tasks_ += 1
        interrupt.raise_pending()
        if lost:
            warnings.warn(
                f"{where}: the gradients of the task's rows must be finite, got {lost} that are "
                "not; those were left out. Look at these rows, or at the module's weights.",
                RowsRefusedWarning,
                stacklevel=2,
            )
        if memory.rank >= p:
            warnings.warn(
                f"{where}: the memory should hold fewer directions than there are weights, got all "
                f"{p}: nothing more can be learned. Use a smaller `memory` or `per_task`, or a "
                "wider network.",
                MemoryFullWarning,
                stacklevel=2,
            )
        return self

    @property
    def memory_(self) -> Any:
        """The memory as it is, None before a task was over."""
        return self._memory

    # -- what stands behind it -------------------------------------------------------------------

    def _sound(self, rows: Iterable[Labelled], good: list[Tensor]) -> Iterator[Tensor]:
        """The gradients of rows, (k, p) each time; ``good`` learns which of them are finite."""
        for each in rows:
            J, sound = of_rows(self._network, each.rows, each.classes, self.gradients)
            good.append(sound)
            yield J

    @property
    def _like(self) -> Tensor:
        net = self._network
        return linalg.widened(torch.empty(0, dtype=net.dtype, device=net.device))

    def _held(self) -> list[torch.nn.Parameter]:
        return self._chosen if self._columns is not None and len(self._columns) else []

    def _correct(self, held: list[torch.nn.Parameter], before: list[Tensor]) -> None:
        """(1), in the order of the memory's weights."""
        like = self._like.dtype
        moved = (each.detach() - old for each, old in zip(held, before, strict=True))
        step = torch.cat([each.reshape(-1).to(like) for each in moved])
        free = self._directions(self._columns, held).split(step[:, None]).outside[:, 0]
        pieces = free.to(like).split([each.numel() for each in held])
        for each, old, piece in zip(held, before, pieces, strict=True):
            if each.requires_grad:
                each.copy_(old + piece.reshape(old.shape))

    def _directions(self, columns: Any, held: list[torch.nn.Parameter]) -> Any:
        """S; where parameters have been frozen since, S of those that still move."""
        moves = tuple(each.requires_grad for each in held)
        if all(moves):
            return columns
        if self._partial is None or self._partial[0] != moves:
            rows = linalg.widened(columns.rows).clone()
            for moving, piece in zip(moves, self._network.slices.values(), strict=True):
                rows[:, piece] *= float(moving)
            least = linalg.small(torch.full_like(rows[:, 0], linalg.resolution(rows)))
            W, _, kept = linalg.orthonormal(rows.T, least)
            self._partial = moves, OrthonormalBasis(linalg.present(W, kept).T.contiguous())
        return self._partial[1]

    def _refuse_unlike(self, memory: Any) -> None:
        columns = None if memory is None else memory.settled()[1]
        if columns is not None and columns.matrix.shape[0] != self._network.p:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the memory must be of {self._network.p} weights, "
                f"got one of {columns.matrix.shape[0]}. Wrap the module that it was taken with."
            )

    def _take_memory(self, memory: Any) -> None:
        self._partial = None
        self._memory, self._columns = (None, None) if memory is None else memory.settled()
