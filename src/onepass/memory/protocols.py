"""Protocols of memories: the members that a new memory must define.

A user passes a specification (:class:`Memory`), such as ``memory=op.memory.Principal(10)``. Its
``start`` returns the initial state. Every state is a :class:`MemoryState`; the other protocols are
required for some uses only:

===================== ==============================================================================
:class:`MemoryState`  learn rows, and report the effect on past predictions: every state
:class:`GrowingState` accept new features and classes: every state that ``start`` returns
:class:`Mergeable`    merge two learners, unless ``merging`` is ``"refused"``
:class:`Divided`      split a step in two parts: networks, and a memory for each layer
===================== ==============================================================================

States are frozen: each method returns a new state, and the old one stays usable. The exception are
basis columns in PyTorch tensors, which are updated in place.

Sizes are p weights per output, c outputs and n gradients. Weights w, gradients G and errors e are
NumPy arrays or PyTorch tensors, as the argument ``kind`` of ``start``. If all outputs share their
gradients, the weights have shape (p, c). If each output has its own gradients, the weights have
shape (p,), n is the number of rows times outputs, and e has shape (n,).
"""

from __future__ import annotations

from typing import Protocol, Self

from onepass.linalg.projection import Split
from onepass.linalg.update import FittedStep, Step
from onepass.memory.evidence import Evidence
from onepass.types import Array, ArrayOrTensor, Floats, Kind


class MemoryState(Protocol):
    """The retained summary of past rows, which determines P, the projector on free directions."""

    @property
    def exact_in_blocks(self) -> bool:
        """Whether learning a block equals learning its rows one after the other."""

    @property
    def rank(self) -> int:
        """The number of directions used up, at most p; later rows move no weights along them."""

    @property
    def lost(self) -> float | None:
        """D >= 0 such that Σ g gᵀ over all past gradients is at most the retained part + D · I.

        D is in units of a squared gradient, and 0.0 if nothing was dropped. None if the memory does
        not track D, or if steps are not orthogonal to the retained directions; then no certificate
        of forgetting exists.
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
        """Learn gradients by the update equation of :mod:`onepass.linalg.update`.

        The arguments, and the NumPy arrays of this state, are not modified.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
            The weights before the step.
        G : array of shape (p, n)
            The gradients of one row, or of all rows of a block in order.
        e : array of shape (n, c) or (n,)
            Targets minus predictions at w, before any of these rows is learned.
        noise : ndarray of shape (n,)
            R, the noise variance of each gradient: all zero (exact fit), or all positive.
        group : int
            The number of neighbouring columns of G that belong to one row. The errors of a row are
            those before any of its columns is learned.

        Returns
        -------
        step : Step
            The weights and the state after the step; the errors, in the shape of e, each just
            before its row is learned (before the block, where blocks are not exact); the number of
            directions used up; and the number of rows that contradict the past.
        """

    def forgetting_bound(self, new: ArrayOrTensor, old: ArrayOrTensor) -> float | ArrayOrTensor:
        """Bound changes of predictions on past rows in one step after this state.

        The bound is on the root of the sum of squared changes. For weights on an accelerator it is
        a tensor on that device. It is 0.0 if no bound is known; ``lost`` is None then.

        Parameters
        ----------
        new, old : arrays of shape (p, c) or (p,)
            The weights after and before the step.
        """


class GrowingState(MemoryState, Protocol):
    """A state that accepts new features and outputs; :meth:`Memory.start` returns one."""

    def grown(self, p: int) -> Self:
        """Return the state for p weights per output; the new ones, at the end, were always 0."""

    def with_outputs(self, at: Array, c: int) -> Self:
        """Return the state for c outputs, of which those in columns ``at`` are new.

        If all outputs share the retained directions, this is the state itself.
        """


class Mergeable(Protocol):
    """A state that can be summarised as evidence, and can learn the evidence of another state."""

    def evidence(self, w: ArrayOrTensor, start: ArrayOrTensor | None = None) -> Evidence:
        """Summarise all rows so far as a few rows with targets and noise.

        Parameters
        ----------
        w : array of shape (p, c) or (p,)
            The current weights.
        start : array of the same shape, optional
            The weights before the first row; zeros if None.
        """

    def merged(self, w: ArrayOrTensor, evidence: Evidence) -> Step:
        """Learn the evidence of another state as one block, at the weights w.

        This is ``evidence.learned_by(self, w)``, plus what ``learn`` does not track, such as the
        other state's ``lost``.
        """


class Divided(Mergeable, MemoryState, Protocol):
    """A state whose step is computed in two parts: P G before it, and the new state after it.

    Networks compute the step first and apply it only if the weights can represent it, since basis
    columns in PyTorch are updated in place. :class:`~onepass.memory.blocks.Blocks` fits its parts
    together. ``evidence`` and ``merged`` are not called if ``merging`` is ``"refused"``.
    """

    @property
    def basis(self) -> ArrayOrTensor | None:
        """The array that P is made of, for its precision; None where P = I."""

    def split(self, G: ArrayOrTensor) -> Split:
        """Return P G of gradients (p, n) as ``lifted``, with the intermediate values of `after`."""

    def after(
        self, G: ArrayOrTensor, free: Split, noise: Floats, fitted: FittedStep | None = None
    ) -> Self:
        """Return the state after the gradients G (p, n).

        Parameters
        ----------
        G : array of shape (p, n)
            The gradients.
        free : Split
            The result of :meth:`split` for G.
        noise : ndarray of shape (n,)
            As in :meth:`MemoryState.learn`.
        fitted : FittedStep, optional
            The step of these gradients. None if they are one part of a larger step.
        """


class Memory(Protocol):
    """A specification of a memory: a frozen dataclass, whose fields are saved with the learner.

    Its constructor raises :class:`~onepass.errors.ParameterError` if a field is out of range.
    """

    @property
    def merging(self) -> str:
        """How two learners with this memory merge: "exact", "approximate" or "refused".

        "exact": the result equals a learner of all rows, to rounding. "approximate": it is as close
        to that learner as the retained directions are to the rows. "refused": the state need not be
        `Mergeable`.
        """

    def start(self, p: int, c: int, noise: float = ..., kind: Kind = ..., /) -> GrowingState:
        """Return the initial state.

        Parameters
        ----------
        p : int
            The number of weights per output, at least 1.
        c : int
            The number of outputs, at least 1; 1 if each output has its own gradients.
        noise : float
            r >= 0: the noise variance of a row, relative to P = I before the first row. The noise
            passed to ``learn`` is 0 if and only if r is 0.
        kind : dtype or tensor
            The precision of the state: a NumPy dtype, or a tensor of that precision and device.

        Raises
        ------
        ParameterError
            If this memory supports only ``noise`` = 0, or only ``noise`` > 0.
        """
