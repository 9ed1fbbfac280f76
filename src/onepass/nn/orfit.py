"""ORFit for networks: fit each new row in one step, move past answers as little as possible.

For a row (x, y) with outputs f (c), errors e = y − f and gradients G (p × c), all at the weights of
that moment:

    G̃ = P G,      P = I − (the directions that the memory keeps)                            (1)
    w ← w + G̃ (GᵀG̃ + r I)⁻¹ e                                                              (2)

([1] (5) for one output, (7) for c, (9) for n rows as one of n·c outputs; r = 0 there). Where the
network is as good as linear around w, past answers stay as they are, and the row is fitted; while
memory suffices, w is the point nearest to w₀ that fits the linearised rows ([1] Theorem 5). With
noise r > 0 rows that contradict each other are averaged, where else each would be learned by heart.
Cost of a step: c backward passes, and three reads of the m p numbers that the memory keeps.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 6.
"""

import warnings
from typing import Any, ClassVar

import numpy as np

from onepass.errors import MemoryFullWarning
from onepass.memory import Basis, Nothing
from onepass.memory.choice import specification
from onepass.nn.belief import Covariance
from onepass.nn.inputs import Batch
from onepass.nn.learner import Learner
from onepass.nn.losses import LossName

__all__ = ["ORFit", "OneStepSGD"]


class ORFit(Learner):
    """Orthogonal recursive fitting of a network: one step a row, past answers moved least.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    memory : int, None or a specification of op.memory, default=100
        What is kept of past gradients: m is ``op.memory.Principal(m)``, their m principal
        directions; None is ``op.memory.Basis()``, all of them, c more with each row.
    noise : float, default=0.0
        r >= 0, the variance of an answer relative to P₀ = I. 0 fits each row in one step.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        ``"squared"`` for numbers; for classes 0 … c − 1 ``"one_hot"``, the papers' regression of
        indicators, or ``"cross_entropy"`` by its Gauss–Newton form, with noise > 0.
    learns : str or sequence of str, default="all"
        Which parameters learn: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether rows given together are learned as one augmented row ([1] (9)): quicker, and
        another algorithm than row by row.
    chunk : int, optional
        How many rows of a Jacobian are computed at once; by default as many as fit 64 MiB.

    Attributes
    ----------
    network : Network
        The module as a function of one vector of weights.
    contradictions_ : int
        Rows in the span of the past that disagreed with it; the past won.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their errors or gradients were not finite.

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
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(
    ...     torch.nn.Linear(3, 400), torch.nn.Tanh(), torch.nn.Linear(400, 1)
    ... )
    >>> net = op.nn.ORFit(module, memory=50)
    >>> X = torch.randn(40, 3)
    >>> y = torch.sin(X[:, 0])
    >>> float((net.learn(X, y).predict(X) - y).square().mean()) < 0.05
    True
    """

    arguments: ClassVar[tuple[str, ...]] = ("memory", *Learner.arguments)

    def __init__(
        self,
        module: Any,
        memory: Any = 100,
        noise: float = 0.0,
        *,
        loss: LossName = "squared",
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(
            module, loss=loss, noise=noise, learns=learns, block_update=block_update, chunk=chunk
        )
        self.memory = memory
        self._memory: Any = None
        self._against: Any = 0
        self._full = False
        self._specification = specification(memory, self._where)
        if self.noise and self._specification == Basis():
            self._specification = Covariance()  # of tensors; P₀ = I

    @property
    def contradictions_(self) -> int:
        """Rows in the span of the past that disagreed with it."""
        return int(self._against)

    @property
    def memory_(self) -> Any:
        """The memory as it is, None before the first row."""
        return self._memory

    def _learn(self, rows: Batch, e: Any, J: Any) -> None:
        del rows
        c = e.shape[1]
        if self._memory is None:
            self._memory = self._specification.start(self.network.p, c, self.noise, self._like)
        noise = np.full(e.numel(), self.noise)
        step = self._memory.learn(self._weights, J.T, e.reshape(-1), noise, group=c)
        self._take(step.w)
        self._memory, self._against = step.memory, self._against + step.contradictions
        if self._memory.rank >= self.network.p and not self._full:
            self._full = True
            warnings.warn(
                f"{self._where}: the memory should hold fewer directions than there are weights, "
                f"got all {self.network.p}: nothing more can be learned. Use noise > 0, a smaller "
                "memory, or a wider network.",
                MemoryFullWarning,
                stacklevel=5,
            )


class OneStepSGD(ORFit):
    """Each row fitted in one step, and nothing kept: ORFit without a memory ([1] section 5.1).

    With noise r > 0 it is the normalised LMS filter, for networks.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place.
    noise : float, default=0.0
        r >= 0, as in :class:`ORFit`.
    loss, learns, block_update, chunk
        As in :class:`ORFit`.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> net = op.nn.OneStepSGD(torch.nn.Linear(2, 1))
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])
    >>> bool((net.learn(x, y).predict(x) - y).abs() < 1e-5)
    True
    """

    arguments: ClassVar[tuple[str, ...]] = Learner.arguments

    def __init__(
        self,
        module: Any,
        noise: float = 0.0,
        *,
        loss: LossName = "squared",
        learns: Any = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(
            module,
            Nothing(),
            noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )
