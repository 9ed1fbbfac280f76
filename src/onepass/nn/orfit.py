"""ORFit for networks: fit each new row in one step, move past answers as little as possible.

For a row (x, y) with outputs f (c), errors e = y − f and gradients G (p × c), all at the weights of
that moment:

    G̃ = P G,      P = I − (the directions that the memory keeps)                            (1)
    w ← w + G̃ (GᵀG̃ + r I)⁻¹ e                                                              (2)

([1] (5) for one output, (7) for c, (9) for n rows as one of n·c outputs; r = 0 there). Where the
network is as good as linear around w, past answers stay as they are, and the row is fitted; while
memory suffices, w is the point nearest to w₀ that fits the linearised rows ([1] Theorem 5). With
noise r > 0 rows that contradict each other are averaged, where else each would be learned by heart.
Cost of a step: c backward passes, whose Jacobian has c p numbers, two or three reads of the memory,
which keeps (m + max(m / 2, c)) p numbers, and O((m + c)³) for a row's c gradients. For many classes
the c gradients cost most.

Where only a last linear layer learns and its outputs f = Wφ + b are the module's, all outputs have
the same gradient φ̄ = (φ, 1) in their own weights, so that

    G = I_c ⊗ φ̄,      P = I_c ⊗ P̄,      P̄ of p/c × p/c                                   (3)

and one memory of the features, with the errors of all outputs at once, makes the same step without
a backward pass: of k directions it needs 3/2 k p/c numbers, which stand for m = k c of (1). This is
exact while m is a multiple of c, as singular values then come in groups of c, or at least p.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 6.

One-Step SGD for networks: each row fitted in one step, nothing kept.

    w ← w + G (GᵀG + r I)⁻¹ e                                                              (1)

ORFit with P = I ([1] section 5.1): the row is fitted, and past answers move as they may. With
noise r > 0 it is the normalised LMS filter.
Cost of a step: c backward passes.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import ModuleError, NumericalError
from onepass.linalg.interrupt import Interrupt
from onepass.memory import Basis, NoMemory
from onepass.memory.choice import specification
from onepass.memory.principal import ForgettingBound, certified
from onepass.nn.batch import Batch, RowsLike
from onepass.nn.function import plainly
from onepass.nn.kalman import Covariance
from onepass.nn.learner import Learner, filled
from onepass.nn.losses import LossName
from onepass.nn.memory import Keeping, fitted, variances
from onepass.nn.merge import fingerprint, merge
from onepass.nn.saving import register
from onepass.serialization.state import nbytes
from onepass.types import ArrayLike

__all__ = ["ORFit", "OneStepSGD"]


@register
class ORFit(Learner):
    """Orthogonal recursive fitting of a network: one step a row, past answers moved least.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. It is asked as in evaluation mode.
    memory : int, None or a specification of op.memory, default=100
        What is kept of past gradients: m is ``op.memory.Principal(m)``, their m principal
        directions; None is ``op.memory.Basis()``, all of them, c more with each row. With
        ``learns="last"`` and None, m a multiple of the c outputs, or m >= p, the outputs of a
        linear layer share m / c directions: c² times fewer numbers, the same weights.
    noise : float, default=0.0
        r >= 0, the variance of an answer relative to P₀ = I. 0 fits each row in one step.
    loss : {"squared", "one_hot", "cross_entropy"}, default="squared"
        ``"squared"`` for numbers; for classes 0 … c − 1 ``"one_hot"``, the papers' regression of
        indicators, or ``"cross_entropy"`` by its Gauss–Newton form, with noise > 0.
    learns : str or sequence of str, default="all"
        Which parameters learn: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether rows given together are learned as one augmented row ([1] (9)), linearised together
        at the weights before them: quicker, and another algorithm than row by row. The more rows a
        block has, the less their linearisations hold where the step ends: the error of one network
        rose from 0.07 to 0.5 and more. For small blocks, wide networks or noise > 0.
    chunk : int, optional
        How many rows of a Jacobian are computed at once; by default as many as fit 64 MiB.
    memory_dtype : {None, "float64", "float32", "bfloat16", "float16"} or torch.dtype, optional
        In what precision the memory is kept; by default in that of the weights. In bfloat16 it is
        half as large as in float32, and what of a gradient is less than 1.6 % new is not told from
        what is known.
    memory_device : str, int or torch.device, optional
        Where the memory is kept; by default beside the weights. Elsewhere, each step sends its
        gradients there, and what is free of them back.
    by_layer : bool, default=False
        Whether each layer has a memory of its own, of m directions: as many numbers as one of all
        weights, and more directions. New rows are fitted and past answers kept as before; two
        layers no longer make room for each other.

    Attributes
    ----------
    network : Network
        The module as a function of one vector of weights.
    inconsistent_rows_ : int
        Rows in the span of the past that disagreed with it; the past won.
    forgetting_bound_ : ForgettingBound
        By how much past answers can have moved by what the memory let go: an estimate, as good as
        the module is linear in its weights. :meth:`drift` measures how far they have moved.
    rows_seen_, rows_refused_ : int
        Rows given, and those left out because their errors, gradients or steps were not finite.

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

    arguments: ClassVar[tuple[str, ...]] = (
        *("memory", *Learner.arguments),
        *("memory_dtype", "memory_device", "by_layer"),
    )
    kept: ClassVar[tuple[str, ...]] = (
        *(*Learner.kept, "_memory", "_against", "_full", "_forgotten"),
        *("_start", "_started_at", "_linear", "_shared"),
    )

    def __init__(
        self,
        module: torch.nn.Module,
        memory: Any = 100,
        noise: float = 0.0,
        *,
        loss: LossName = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
        chunk: int | None = None,
        memory_dtype: str | torch.dtype | None = None,
        memory_device: str | int | torch.device | None = None,
        by_layer: bool = False,
    ) -> None:
        super().__init__(
            module, loss=loss, noise=noise, learns=learns, block_update=block_update, chunk=chunk
        )
        self.memory = memory
        self._memory: Any = None
        self._against: Any = 0
        self._forgotten: Any = 0.0
        self._start: Any = None  # w before the first row, where merging needs it
        self._started_at: str | None = None  # its fingerprint
        self._linear: bool | None = None  # whether the module is, in its weights
        self._shared: int | None = None  # outputs that share the memory's directions
        self._specification = specification(memory, self._where)
        if self.noise and self._specification == Basis():
            self._specification = Covariance()  # of tensors; P₀ = I
        keeping = Keeping.of(memory_dtype, memory_device, by_layer=by_layer, where=self._where)
        keeping.check_possible(self._specification, self.noise, self._where)
        self.memory_dtype, self.memory_device, self.by_layer = keeping
        self._keeping = keeping

    @property
    def inconsistent_rows_(self) -> int:
        """Rows in the span of the past that disagreed with it."""
        return int(self._against)

    @property
    def memory_(self) -> Any:
        """The memory as it is, None before the first row."""
        return self._memory

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return nbytes([self._memory, self._start])

    @property
    def merging(self) -> str:  # type: ignore[override]  # by memory
        """``exact``, ``approximate`` with a limit, by layer or of a network, or ``refused``.

        A module linear in its weights is known by the first row for which any of them matters:
        before it ``approximate`` is all that can be said.
        """
        said: str = self._specification.merging
        bent = self.by_layer or not self._linear
        return "approximate" if said == "exact" and bent else said

    @property
    def forgetting_bound_(self) -> ForgettingBound:
        """By how much past answers can have moved by what the memory let go: an estimate.

        That the gradients of a network turn while it learns moves them as well, and is not in it:
        it is 0.0 while the memory lets nothing go. :meth:`drift` measures both. With noise there
        is no bound, as each step moves past answers, to average them.
        """
        forgotten = float(self._forgotten)
        bound = certified(self._memory, forgotten, noise=self.noise, linear=False)
        if bound.kind == "estimate":
            turns = (
                "it counts what the memory let go, and not that the gradients of a network turn "
                "while it learns: measure both with drift(x, said)"
            )
            return bound if self._linear else replace(bound, why=turns)
        if math.isinf(forgotten):
            merged = (
                "a merge has moved answers of its parts, and their memories know directions "
                "without their lengths, so that nobody knows by how much; op.memory.Principal(m) "
                "and op.memory.Sketch(m) keep lengths"
            )
            return replace(bound, why=merged)
        return bound

    def merge(
        self, other: Learner, rows: tuple[RowsLike, ArrayLike | Tensor] | None = None
    ) -> Self:
        """Learn what another learner has learned, in a copy of the module from the same start.

        Its memory says what its rows would have taught: of a module linear in its weights exactly
        what learning them after this one's does, while neither memory has let go of anything. Of
        others both know linearisations that have turned since, and the merged weights are between
        the two (:mod:`onepass.nn.merge`): measure them. The other is not changed.

        Parameters
        ----------
        other : ORFit
            Of the same arguments, but for ``block_update``, ``chunk`` and where its memory is.
        rows : tuple (x, y), optional
            Rows of both parts, to measure with; they are not learned. A merge that leaves this one
            worse of them than the better of the two is refused.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are not alike, keep too little of the past, or would be worse together.
        NumericalError
            If weights are not finite. In all cases both are as they were.

        Warns
        -----
        MergeWarning
            If what the two know hardly goes together.
        """
        interrupt = Interrupt()
        net = self.network
        with net.turn, interrupt.held(), plainly(net.device, net.p):
            merge(self, other, rows)
        interrupt.raise_pending()
        self._tell_if_full(3)
        return self

    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        c, w, G = e.shape[1], self._weights, J.T
        if self._memory is None or self._linear is None:
            straight = self.merging != "refused" and self.network.is_linear(rows[:1])
            self._begin(w, c, straight)
        group, e = (1, e) if self._shared else (c, e.reshape(-1))
        try:
            noise = np.full(len(e), self.noise)
            found = fitted(self._memory, self._matrix(w), G, e, noise, group)
        except NumericalError:  # told with the rows whose gradients are not finite themselves
            self._refused = self._masked + len(rows)
            return
        new = self._vector(found.w)
        said = new.to(self.network.dtype)
        if linalg.on_device(said):  # a device is not waited for: there the memory learns the row
            fine = said.isfinite().all()
            self._refused = self._refused + (~fine) * (self._masked + len(rows) - self._refused)
            new = torch.where(fine, new, w)
        elif not linalg.finite(said):
            self._refused = self._masked + len(rows)
            return
        forgotten = 0.0 if self.noise else self._memory.forgetting_bound(new, w)
        memory = found.memory()  # it may raise, for want of room; then no weight has moved
        self._take(new)
        self._forgotten = self._forgotten + forgotten
        self._memory, self._against = memory, self._against + found.inconsistent_rows

    def _derived(self, rows: Batch, c: int) -> tuple[Tensor, Tensor]:
        """Outputs (n, c), and the features (n, p / c) that they share, or J (n·c, p)."""
        if self._memory is None:
            self._shared = c if self._per_output(c) else None
        if self._shared:
            said, features = self.network.features(rows)
            if features is not None and said.shape[1] == c:
                return said, features
            if self._memory is not None:
                self.network.jacobian(rows, c=c)  # raises if the number of outputs is another
                raise ModuleError(
                    f"{self._where}: the module must return the outputs of its last layer, as for "
                    "the first rows, got others. Name what learns: learns=[...] in place of 'last'."
                )
            self._shared = None
        return super()._derived(rows, c)

    def _per_output(self, c: int) -> Any:
        """The specification of a memory whose directions c outputs share exactly, or None."""
        known: Any = getattr(self._specification, "per_output", None)
        last = self.learns == "last" and self.loss != "cross_entropy"
        exact = last and c > 1 and self.network.p % c == 0 and not self.by_layer
        return known(c, self.network.p) if known and exact else None

    def _matrix(self, w: Tensor) -> Tensor:
        """Weights (p, …) as (p / c, c, …) where outputs share directions, else unchanged."""
        c = self._shared
        if not c:
            return w
        cut = c * self.network.shapes[0][1]
        parts = [part.reshape(c, -1, *w.shape[1:]) for part in (w[:cut], w[cut:])]
        return torch.cat(parts, dim=1).transpose(0, 1)

    def _vector(self, w: Tensor) -> Tensor:
        """The inverse of ``_matrix``."""
        if not self._shared:
            return w
        return torch.cat([each.reshape(-1) for each in w.T.split(self.network.shapes[0][1], dim=1)])

    def _begin(self, w: Tensor, c: int, linear: Any) -> None:
        """Begin to remember, at the weights w; a device is waited for, this once."""
        self._linear = True if self._shared else linear
        if self._memory is not None:
            return
        if self._shared:
            kind, few = self._keeping.kind(self._like), self._per_output(c)
            self._memory = few.start(self.network.p // c, 1, self.noise, kind)
        else:
            given = self._specification, self.network, self.noise, c, self._like
            self._memory = self._keeping.begun(*given)
        self._started_at = fingerprint(w)
        self._start = w.clone() if self.noise and self.merging != "refused" else None

    def _variances(self, where: str) -> Any:
        memory = self._memory
        if memory is None:
            begun = self._keeping.begun
            memory = begun(self._specification, self.network, self.noise, 1, self._like)
        known = None if self.merging == "refused" else variances(memory, self.noise)
        if known is None or not self._shared or self._memory is None:
            return known or super()._variances(where)
        c = self._shared
        return lambda G: known(self._matrix(G).flatten(1)).reshape(c, -1).sum(0)

    def _tried(self) -> None:
        super()._tried()
        if self._start is not None:
            self._start.reshape(self.network.p)
        if self._shared is not None and not self._per_output(int(self._shared)):
            raise ValueError("its outputs cannot share directions")
        if self._linear not in {None, False, True}:
            raise ValueError("whether its module is linear is neither true nor false")
        float(self._forgotten + self._against)
        if self._memory is not None:
            ask = getattr(self._memory, "split", None) or self._memory.variances
            ask(self._like.new_zeros(1, self.network.p // (self._shared or 1)).T)

    def _filled(self) -> str | None:
        remedy = "Use noise > 0, a smaller memory, or a wider network."
        return filled(self._memory, self.network.p // (self._shared or 1), remedy)


@register
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
        module: torch.nn.Module,
        noise: float = 0.0,
        *,
        loss: LossName = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(
            module,
            NoMemory(),
            noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )
