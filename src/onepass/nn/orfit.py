"""ORFit for networks: fit each row in one step, with minimal change of past predictions.

For a row (x, y) with outputs f (c), errors e = y − f and gradients G (p × c), all at the current
weights:

    G̃ = P G,      P = I − (projection onto the directions in the memory)                    (1)
    w ← w + G̃ (GᵀG̃ + r I)⁻¹ e                                                              (2)

([1] (5) for one output, (7) for c outputs, (9) for n rows as one row of n·c outputs; all with r =
0). To first order, the row is fitted and past predictions do not change. While the memory is large
enough, w is the point nearest to w₀ that fits the linearised rows ([1] Theorem 5). With noise r >
0, contradictory rows are averaged instead of fitted exactly. Cost of a step: c backward passes for
a Jacobian of c p numbers, two or three reads of the memory of (m + max(m / 2, c)) p numbers, and
O((m + c)³). For many classes the c gradients dominate.

If only a last linear layer learns, and its outputs f = Wφ + b are those of the module, all outputs
have the same gradient φ̄ = (φ, 1) in their own weights, so that

    G = I_c ⊗ φ̄,      P = I_c ⊗ P̄,      P̄ of p/c × p/c                                   (3)

and one memory of features, with the errors of all outputs, gives the same step without a backward
pass: k directions take 3/2 k p/c numbers and represent m = k c directions of (1). This is exact if
m is a multiple of c, since singular values then occur in groups of c, or if m >= p.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version; section 6.

One-Step SGD for networks: fit each row in one step, without a memory.

    w ← w + G (GᵀG + r I)⁻¹ e                                                              (1)

ORFit with P = I ([1] section 5.1): the row is fitted, regardless of past predictions. With noise
r > 0 this is the normalised LMS filter.
Cost of a step: c backward passes.

[1] Y. Min, K. Ahn, N. Azizan, "One-Pass Learning via Bridging Orthogonal Gradient Descent and
    Recursive Least-Squares", extended version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from onepass import linalg
from onepass.errors import MergeError, ModuleError, NumericalError, ParameterError, public
from onepass.memory import Basis, NoMemory
from onepass.memory.blocks import Blocks
from onepass.memory.choice import specification
from onepass.memory.principal import ForgettingBound, certified
from onepass.nn.batch import Batch, RowsLike
from onepass.nn.kalman import Covariance
from onepass.nn.learner import Learner, full_memory_message
from onepass.nn.losses import Loss
from onepass.nn.memory import (
    check_possible,
    device_name,
    dtype_name,
    pending_step,
    variances,
)
from onepass.nn.merge import fingerprint, merge
from onepass.nn.saving import register
from onepass.serialization.state import nbytes
from onepass.types import ArrayLike


@register
class ORFit(Learner):
    """Orthogonal recursive fitting (ORFit) of a network: one step per row.

    Each step fits a new row with minimal change of the predictions on past rows.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. Evaluated in evaluation mode.
    memory : "auto", int, None or a specification of op.memory, default="auto"
        Memory of past gradients. An integer m means ``op.memory.Principal(m)``, their m principal
        directions; None means ``op.memory.Basis()``, all directions, c more per row. With
        ``learns="last"`` and None, m a multiple of the c outputs, or m >= p, the outputs of a
        linear layer share m / c directions, with the same result in c² times less memory.
        ``"auto"`` is None for ``learns="last"``, and 100 otherwise.
    noise : float, optional
        r >= 0, the noise variance of a target relative to P₀ = I. 0 fits each row exactly, as in
        the papers. Default: 1, or 0 if ``memory`` is given.
    loss : {"squared", "one_hot", "cross_entropy"} or callable, default="squared"
        ``"squared"`` for regression. For classes 0 … c − 1, ``"one_hot"`` (regression on
        indicators, as in the papers) or ``"cross_entropy"`` (Gauss–Newton approximation; requires
        noise > 0).
    learns : str or sequence of str, default="all"
        Parameters to train: ``"all"``, ``"last"`` (layer), names or patterns of names.
    block_update : bool, default=False
        Whether to learn the rows of one call as one augmented row ([1] (9)), linearised at the same
        weights. This is faster than row-by-row learning, but less accurate for large blocks, whose
        linearisations do not hold at the end of the step: the error of one network rose from 0.07
        to over 0.5. Use it with small blocks, wide networks or noise > 0.
    memory_dtype : {None, "float64", "float32", "bfloat16", "float16"} or torch.dtype, optional
        Precision of the memory; default: that of the weights. bfloat16 takes half the memory of
        float32, but ignores gradients of which less than 1.6 % is outside the stored directions.
    memory_device : str, int or torch.device, optional
        Device of the memory; default: that of the weights. On another device, each step transfers
        its gradients there and their projections back.
    by_layer : bool, default=False
        Whether each layer has its own memory of m directions. This takes as much memory as one
        memory for all weights and stores more directions. New rows are fitted and past predictions
        preserved as before, but layers cannot share capacity.
    group : torch.distributed.ProcessGroup, optional
        Processes over which the memory and the steps are split, such as
        ``torch.distributed.group.WORLD``; all of them must make the same calls with the same rows.
        Default: one process, or for a module of ``fully_shard`` its own group.

    Attributes
    ----------
    network : Network
        The module as a function of one flat weight vector.
    inconsistent_rows_ : int
        Number of rows that lie in the span of past rows and contradict them; these rows are not
        learned.
    forgetting_bound_ : ForgettingBound
        Estimated bound on the change of past predictions due to directions that the memory
        discarded; as accurate as the module is linear in its weights. :meth:`drift` measures the
        actual change.
    rows_seen_, rows_refused_ : int
        Number of rows received, and of rows rejected because errors, gradients or steps were not
        finite.

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

    _state_attributes: ClassVar[tuple[str, ...]] = (
        *(*Learner._state_attributes, "_memory", "_inconsistent", "_full", "_forgotten"),  # noqa: SLF001  of the base class
        *("_start", "_started_at", "_linear", "_shared"),
    )

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        memory: Any = "auto",
        noise: float | None = None,
        *,
        loss: Loss = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
        memory_dtype: str | torch.dtype | None = None,
        memory_device: str | int | torch.device | None = None,
        by_layer: bool = False,
        group: Any = None,
    ) -> None:
        by_default = isinstance(memory, str) and memory == "auto"
        noise = (1.0 if by_default else 0.0) if noise is None else noise
        super().__init__(module, loss=loss, noise=noise, learns=learns, block_update=block_update)
        self.memory = memory
        self._memory: Any = None
        self._inconsistent: Any = 0
        self._forgotten: Any = 0.0
        self._start: Any = None  # w before the first row, if needed for merging
        self._started_at: str | None = None  # fingerprint of these weights
        self._linear: bool | None = None  # whether the module is linear in its weights
        self._shared: int | None = None  # number of outputs that share directions
        limit = None if learns == "last" else 100
        self._specification: Any = specification(limit if by_default else memory)
        if self.noise and self._specification == Basis():
            self._specification = Covariance()  # of tensors; P₀ = I
        self.memory_dtype = dtype_name(memory_dtype)
        self.memory_device = device_name(memory_device)
        self.by_layer = bool(by_layer)
        check_possible(self._specification, self.noise, self.memory_dtype, by_layer=self.by_layer)
        self._split = self._split_over(group)
        self._stored = self._split.size if self._split else self.network.p  # weights, here

    def _network_class(self, module: Any) -> Any:
        if not any(hasattr(each, "to_local") for each in getattr(module, "parameters", list)()):
            return super()._network_class(module)
        from onepass.nn.split import ShardedNetwork  # noqa: PLC0415  imports torch.distributed

        return ShardedNetwork

    def _split_over(self, group: Any) -> Any:
        """Return the part of the weights of this process; None if it stores all of them."""
        if group is None and not hasattr(self.network, "group"):
            return None
        from onepass.nn.split import ProcessSplit  # noqa: PLC0415  imports torch.distributed

        if self.by_layer or hasattr(self._specification, "prior"):
            raise ParameterError(
                "`memory` must have a limit, or noise must be 0, and `by_layer` must be False for "
                f"weights that are split over processes, got memory={self.memory!r}, "
                f"noise={self.noise:g}, by_layer={self.by_layer}. Use op.memory.Principal(m)."
            )
        return ProcessSplit(self.network, group)

    @property
    def _keeps_all(self) -> bool:
        return bool(self._linear and self.noise and self._specification == Covariance())

    @property
    def inconsistent_rows_(self) -> int:
        """Number of rows that lie in the span of past rows and contradict them."""
        return int(self._inconsistent)

    @property
    def memory_(self) -> Any:
        """State of the memory; None before the first row."""
        return self._memory

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes, without the weights."""
        return nbytes([self._memory, self._start])

    @property
    def merging(self) -> str:  # type: ignore[override]  # by memory
        """Kind of merge: ``exact``, ``approximate`` or ``refused``.

        ``exact`` requires a memory without limit, not by layer, and a module that is linear in its
        weights. Linearity is tested with the first informative row; until then the value is
        ``approximate``.
        """
        merging: str = self._specification.merging
        bent = self.by_layer or not self._linear
        return "approximate" if merging == "exact" and bent else merging

    @property
    def forgetting_bound_(self) -> ForgettingBound:
        """Estimated bound on the change of past predictions due to discarded directions.

        It is 0.0 while the memory discards nothing. It does not include the effect of gradients
        that change while the network learns; :meth:`drift` measures both. With noise there is no
        bound, since each step changes past predictions to average them.
        """
        forgotten = float(self._forgotten)
        bound = certified(self._memory, forgotten, noise=self.noise, linear=False)
        if bound.kind == "estimate":
            turns = (
                "it includes directions that the memory discarded, but not changes of gradients "
                "while the network learns: measure both with drift(x, predictions)"
            )
            return bound if self._linear else replace(bound, why=turns)
        if math.isinf(forgotten):
            merged = (
                "a merge changed predictions of its parts by an unknown amount, since their "
                "memories store directions without singular values; op.memory.Principal(m) and "
                "op.memory.Sketch(m) store both"
            )
            return replace(bound, why=merged)
        return bound

    @public
    def merge(
        self, other: Learner, rows: tuple[RowsLike, ArrayLike | Tensor] | None = None
    ) -> Self:
        """Merge a learner with a copy of the module and the same initial weights into this one.

        For a module linear in its weights this equals learning the other's rows after this one's,
        as long as neither memory has discarded directions. For other modules the merged weights are
        a compromise between both (:mod:`onepass.nn.merge`) and should be evaluated with ``rows``.
        ``other`` is not changed.

        Parameters
        ----------
        other : ORFit
            With the same arguments except ``block_update`` and ``memory_device``.
        rows : tuple (x, y), optional
            Validation rows of both parts; they are not learned. The merge is rejected if the merged
            error on them is larger than that of the better part.

        Returns
        -------
        self

        Raises
        ------
        MergeError
            If the two are incompatible, have no mergeable memory, or the merged error is larger.
        NumericalError
            If weights are not finite. In all cases both learners are unchanged.

        Warns
        -----
        MergeWarning
            If the two parts fit together poorly.
        """
        if self._split or getattr(other, "_split", None):
            raise MergeError(
                "the weights must not be split over processes, got a learner with "
                "`group`. Save both, and merge them after op.nn.load in one process."
            )
        with self._exclusively():
            merge(self, other, rows)
        self._warn_if_full(3)
        return self

    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        with linalg.split_over(self._split):
            self._fit(rows, e, self._part(J.T))

    def _fit(self, rows: Batch, e: Tensor, G: Tensor) -> None:
        """Take the step for gradients G (p, n·c) of the weights that this process stores."""
        c, w = e.shape[1], self._part(self._weights)
        if self._memory is None or self._linear is None:
            linear = self.merging != "refused" and self.network.is_linear(rows[:1])
            self._begin(rows, w, c, linear)
        group, e = (1, e) if self._shared else (c, e.reshape(-1))
        try:
            noise = np.full(len(e), self.noise)
            step = pending_step(self._memory, self._matrix(w), G, e, noise, group)
        except NumericalError:  # reported together with rows whose gradients are not finite
            self._refused = self._masked + len(rows)
            return
        new = self._vector(step.w)
        written = new.to(self.network.dtype)
        if linalg.on_device(written):  # no synchronisation: the memory learns the row
            finite = linalg.summed(~written.isfinite().all())[0] == 0
            self._refused = self._refused + (~finite) * (self._masked + len(rows) - self._refused)
            new = torch.where(finite, new, w)
        elif linalg.summed(not linalg.finite(written))[0]:
            self._refused = self._masked + len(rows)
            return
        forgotten = 0.0 if self.noise else self._memory.forgetting_bound(new, w)
        memory = step.memory()  # may raise MemoryError, before any weight is changed
        self._set_weights(self._split.whole(new) if self._split else new)
        self._forgotten = self._forgotten + forgotten
        self._memory, self._inconsistent = memory, self._inconsistent + step.inconsistent_rows

    def _derived(self, rows: Batch, c: int) -> tuple[Tensor, Tensor]:
        """Return outputs (n, c), and shared features (n, p / c) or the Jacobian J (n·c, p)."""
        if self._memory is None:
            self._shared = c if self._per_output(c) else None
        if self._shared:
            outputs, features = self.network.features(rows)
            if features is not None and outputs.shape[1] == c:
                return outputs, features
            if self._memory is not None:
                self.network.jacobian(rows, c=c)  # raises if the number of outputs differs
                raise ModuleError(
                    "the module must return the outputs of its last layer, as for the "
                    "first rows, got other outputs. Name the parameters to train: "
                    "learns=[...] instead of learns='last'."
                )
            self._shared = None
        return super()._derived(rows, c)

    def _per_output(self, c: int) -> Any:
        """Return a memory specification whose directions c outputs share exactly, or None."""
        per_output: Any = getattr(self._specification, "per_output", None)
        last = self.learns == "last" and self.loss in {"squared", "one_hot"}
        exact = last and c > 1 and self.network.p % c == 0 and not (self.by_layer or self._split)
        return per_output(c, self.network.p) if per_output and exact else None

    def _part(self, w: Tensor) -> Tensor:
        """Return the rows of w (p, …) that this process stores."""
        return self._split.part(w) if self._split else w

    def _matrix(self, w: Tensor) -> Tensor:
        """Reshape weights (p, …) to (p / c, c, …) if outputs share directions."""
        c = self._shared
        if not c:
            return w
        cut = c * self.network.shapes[0][1]
        parts = [part.reshape(c, -1, *w.shape[1:]) for part in (w[:cut], w[cut:])]
        return torch.cat(parts, dim=1).transpose(0, 1)

    def _vector(self, w: Tensor) -> Tensor:
        """Invert ``_matrix``."""
        if not self._shared:
            return w
        return torch.cat([each.reshape(-1) for each in w.T.split(self.network.shapes[0][1], dim=1)])

    def _begin(self, rows: Batch | None, w: Tensor, c: int, linear: Any) -> None:
        """Create the memory, at initial weights w; synchronises with an accelerator once."""
        self._linear = True if self._shared else linear
        if self._memory is not None:
            return
        if self._split and rows is not None:  # None: merge, which learns no batch
            self._split.check_equal(self._weights, rows)
        if self._shared:
            few = self._per_output(c)
            self._memory = few.start(self.network.p // c, 1, self.noise, self._kind)
        else:
            self._memory = self._start_memory(c)
        self._started_at = fingerprint(self._weights)
        self._start = w.clone() if self.noise and self.merging != "refused" else None

    def _start_memory(self, c: int) -> Any:
        """Return an empty memory, of the weights that this process stores."""
        if not self.by_layer:
            return self._specification.start(self._stored, c, self.noise, self._kind)
        places = tuple(
            tuple((piece.start, piece.stop) for piece in pieces)
            for pieces in self.network.layers.values()
        )
        return Blocks.start(self._specification, places, self.noise, c, self._kind)

    @property
    def _kind(self) -> Tensor:
        """An empty tensor with the dtype and device of the memory."""
        like = self.network.like
        dtype = getattr(torch, self.memory_dtype) if self.memory_dtype else like.dtype
        return torch.empty(0, dtype=dtype, device=self.memory_device or like.device)

    def _variances(self) -> Any:
        memory = self._start_memory(1) if self._memory is None else self._memory
        variance = None if self.merging == "refused" else variances(memory, self.noise)
        if variance is not None and self._split:
            return partial(self._split.within, variance)
        if variance is None or not self._shared or self._memory is None:
            return variance or super()._variances()
        c = self._shared
        return lambda G: variance(self._matrix(G).flatten(1)).reshape(c, -1).sum(0)

    def _check_restored(self) -> None:
        super()._check_restored()
        if self._start is not None:
            self._start.reshape(self._stored)
        if self._shared is not None and not self._per_output(int(self._shared)):
            raise ValueError("the outputs cannot share directions")
        if self._linear not in {None, False, True}:
            raise ValueError("`linear` must be True, False or None")
        float(self._forgotten + self._inconsistent)
        if self._memory is not None:
            split = getattr(self._memory, "split", None) or self._memory.variances
            split(self.network.like.new_zeros(1, self._stored // (self._shared or 1)).T)

    def _full_message(self) -> str | None:
        remedy = "Use noise > 0, a smaller memory, or a wider network."
        return full_memory_message(self._memory, self.network.p // (self._shared or 1), remedy)


@register
class OneStepSGD(ORFit):
    """One-step SGD: fit each row in one step; ORFit without a memory ([1] section 5.1).

    With noise r > 0 this is the normalised LMS filter for networks.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place.
    noise : float, default=0.0
        r >= 0, as in :class:`ORFit`.
    loss, learns, block_update
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

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        noise: float = 0.0,
        *,
        loss: Loss = "squared",
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
    ) -> None:
        super().__init__(
            module,
            NoMemory(),
            noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
        )
