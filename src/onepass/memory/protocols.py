"""Protocols: what a memory is to the learners that use it, and so what a new one has to bring.

A specification (:class:`Memory`) is what the user gives, ``memory=op.memory.Principal(10)``; what
its ``start`` gives is the first state. A state must be the first of these; the others say what it
is used for besides:

===================== ==============================================================================
:class:`MemoryState`  to learn rows, and to say what that did to past answers: all states
:class:`GrowingState` to take new features and classes as well: every state that ``start`` gives
:class:`Mergeable`    to say what its rows said, where ``merging`` is not ``"refused"``
:class:`Divided`      to apply P and to learn apart from each other, for networks and by layer
===================== ==============================================================================

States are frozen: each method gives a new one, and the one before can still be used, but for
columns of PyTorch, which are written in place. Sizes are p weights an output, c outputs, and n
gradients. Weights w, gradients G and errors e are NumPy's arrays or PyTorch's tensors, as the kind
that ``start`` was given. The weights have the shape (p, c) where all outputs share their gradients,
and (p,) where each has its own: then the n gradients are those of rows times outputs, and e is
(n,).
"""

from typing import Protocol, Self

from onepass.linalg.subspace import Split
from onepass.linalg.update import Fitted, Step
from onepass.memory.evidence import Evidence
from onepass.types import Array, ArrayOrTensor, Floats, Kind

__all__ = ["Divided", "GrowingState", "Memory", "MemoryState", "Mergeable"]


class MemoryState(Protocol):
    """What is kept of past rows, P among it: the directions in which the weights may still move."""

    @property
    def exact_in_blocks(self) -> bool:
        """Whether a block is learned as its rows would be, one after the other."""

    @property
    def rank(self) -> int:
        """How many directions are used up for good, at most p: of these no row moves a weight."""

    @property
    def lost(self) -> float | None:
        """D >= 0, for which Σ g gᵀ over all past gradients is at most what is kept + D · I.

        In the unit of a squared gradient; 0.0 while nothing was let go. None if nobody counts it,
        or if steps are not orthogonal to what is kept: then there is no certificate of forgetting.
        """

    def learn(
        self,
        w: ArrayOrTensor,
        G: ArrayOrTensor,
        e: ArrayOrTensor,
        noise: Floats,
        *,
        group: int = 1,
    ) -> Step:
        """Learn some gradients by the one equation of :mod:`onepass.linalg.update`.

        Nothing that came in is written to, and neither is NumPy's part of this state.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
            The weights before.
        G : array of shape (p, n)
            A row's gradients, or those of all rows of a block, in order.
        e : array of shape (n, c) or (n,)
            What was to be answered less what w says: the errors before any of them is learned.
        noise : ndarray of shape (n,)
            R, the variance of each: all zero, then each is fitted exactly; or all positive.
        group : int
            Neighbouring columns of G that belong to one row: its errors are those before any of
            them was learned.

        Returns
        -------
        step : Step
            The weights and the state after, the errors in the shape of e, each as it was just
            before its row alone was learned (where blocks are not exact: before the block), how
            many directions were used up, and how many rows contradict the past.
        """

    def forgets(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float | ArrayOrTensor:
        """By how much past answers can have moved with the weights, in one step after this state.

        The root of the sum of squares over past answers; of weights on a device, a tensor there.
        0.0 where nothing is known: ``lost`` says that.

        Parameters
        ----------
        new, old : arrays of shape (p, c) or (p,)
            The weights after the step and before it.
        """


class GrowingState(MemoryState, Protocol):
    """A state that new features and new outputs can come to: what :meth:`Memory.start` gives."""

    def grown(self, p: int) -> Self:
        """The same for p weights an output: the new ones, at the end, zero in every row so far."""

    def with_outputs(self, at: Array, c: int) -> Self:
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far.

        Where outputs share all that is kept, as directions, this is the state itself.
        """


class Mergeable(Protocol):
    """A state that can say what its rows said, and learn what another's said."""

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """A few rows, with answers and noise, that teach another what all rows would have.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
            The weights now, which the rows led to.
        start : array of the same shape, optional
            The weights before the first row; zeros if None.
        """

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """The step of learning another's evidence as one block, at the weights w.

        ``evidence.learned_by(self, w)``, and what of it ``learn`` does not know, as its ``lost``.
        """


class Divided(Mergeable, MemoryState, Protocol):
    """A state whose step is taken in two parts: P G before it, and what is kept after it.

    Networks need it, since columns of PyTorch are written in place: the step is computed first and
    only learned if the weights can hold it. :class:`~onepass.memory.blocks.Blocks` needs it of each
    of its parts, which are fitted together. Where ``merging`` is ``"refused"`` nobody asks for
    evidence.
    """

    @property
    def basis(self) -> ArrayOrTensor | None:
        """Of what P is made, for its precision: an array, or None where P = I."""

    def split(self, G: ArrayOrTensor) -> Split:
        """P G of gradients (p, n), as ``lifted``; and what :meth:`after` will want to know of G."""

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: Fitted | None = None
    ) -> Self:
        """The state after the gradients G (p, n) have come.

        Parameters
        ----------
        G : array of shape (p, n)
        free : Split
            What :meth:`split` said of it.
        noise : ndarray of shape (n,)
            As of :meth:`MemoryState.learn`.
        fitted : Fitted, optional
            Their step. Without it, they are learned among others in a step of many parts.
        """


class Memory(Protocol):
    """What a user gives as ``memory``: a frozen dataclass, whose fields are saved with the learner.

    It raises :class:`~onepass.errors.ParameterError` for a field that is out of range.
    """

    @property
    def merging(self) -> str:
        """What merging two learners with it gives: "exact", "approximate" or "refused".

        "exact" is the learner of all rows, to rounding; "approximate" is as near to it as what
        is kept is to the rows. Of "refused" a state need not be :class:`Mergeable`.
        """

    def start(self, p: int, c: int, noise: float = ..., kind: Kind = ..., /) -> GrowingState:
        """The state of no rows.

        Parameters
        ----------
        p : int
            Weights an output, at least 1.
        c : int
            Outputs, at least 1; 1 where each output has gradients of its own.
        noise : float
            r >= 0: the variance of a row relative to P = I before the first. What all rows will
            have is near it, and 0 if and only if it is 0.
        kind : dtype or tensor
            The precision of what is kept: NumPy's, or that and the device of a tensor.

        Raises
        ------
        ParameterError
            If there is, or is no, noise, and this memory is not made for that.
        """
