"""Filtering: what Kalman filters of networks share: a belief about the weights, told and kept.

A step linearises the network at the present weights, w_{k|k−1}, and takes the rows in as a Kalman
filter would that knew the linear model to be true; then time passes, so that what is said next is
said by the weights for the next row, w_{k+1|k}.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import torch

from onepass.errors import MergeError, NumericalError
from onepass.nn.belief import Belief, Covariance
from onepass.nn.inputs import Batch
from onepass.nn.learner import Learner
from onepass.nn.losses import LossName

__all__ = ["Filter", "Taken"]


class Taken(NamedTuple):
    """What a step will do; nothing of the learner has changed yet."""

    belief: Any
    w: Any
    contradictions: int = 0


class Filter(Learner):
    """A network, and what is known of its weights: their covariance, in the span of gradients.

    Parameters
    ----------
    module : torch.nn.Module
    prior : float
        Variance of each weight before the first row, > 0.
    noise : float
        R >= 0.
    loss, learns, block_update, chunk
        As in :class:`~onepass.nn.learner.Learner`.
    """

    kept: ClassVar[tuple[str, ...]] = (*Learner.kept, "_belief", "_against", "_full")
    states: ClassVar[tuple[type, ...]] = (Belief,)

    def __init__(
        self,
        module: Any,
        *,
        prior: float,
        noise: float,
        loss: LossName,
        learns: Any,
        block_update: bool,
        chunk: int | None,
    ) -> None:
        super().__init__(
            module, loss=loss, noise=noise, learns=learns, block_update=block_update, chunk=chunk
        )
        self._prior = prior
        self._belief: Any = None
        self._against = 0

    # -- hooks -----------------------------------------------------------------------------------

    def _begin(self, c: int) -> Any:
        """The belief before the first row, of c outputs."""
        return Covariance(self._prior).start(self.network.p, c, self.noise, self._like)

    @abstractmethod
    def _taken(self, belief: Any, w: Any, e: Any, J: Any) -> Taken:
        """What rows with errors e (n, c) and gradients J (n·c, p) do, and their time."""

    # -- verbs -----------------------------------------------------------------------------------

    def merge(self, other: Any, rows: Any = None) -> Self:
        """Refused: ORFit is the filter that merges.

        Raises
        ------
        MergeError
        """
        del other, rows
        raise MergeError(
            f"{self._where}.merge: a learner that tells its rows from time and prior must be "
            f"given, got {type(self).__name__}. Let one learner see all rows. Without forgetting "
            "or process noise op.nn.ORFit(memory=None, noise=noise / prior) is the same filter, "
            "and merges: exactly for modules linear in their weights, of others as far as their "
            "linearisations agree, so measure it with merge(other, rows=(x, y))."
        )

    # -- what is told ----------------------------------------------------------------------------

    @property
    def belief_(self) -> Any:
        """What is known of the weights, for the next row; None before the first."""
        return self._belief

    @property
    def contradictions_(self) -> int:
        """Rows that no weight could be moved for, and that disagreed with the past."""
        return self._against

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return 0 if self._belief is None else int(self._belief.nbytes)

    # -- what stands behind them -----------------------------------------------------------------

    def _variances(self, where: str) -> Any:
        del where
        belief = self._begin(self._outputs or 1) if self._belief is None else self._belief
        return belief.variances

    def _tried(self) -> None:
        super()._tried()
        float(self._against)
        if self._belief is not None:
            self._belief.variances(self._like.new_zeros(1, self.network.p).T)

    def _learn(self, rows: Batch, e: Any, J: Any) -> None:
        del rows
        e, J = self._learnable(e, J)
        if not len(e):  # a row that is not learned lets no time pass
            return
        belief = self._begin(e.shape[1]) if self._belief is None else self._belief
        w = self._weights
        try:
            found = self._taken(belief, w, e, J)
            sound = bool(self._sound(found.w))
        except NumericalError:  # told with the rows whose gradients are not finite themselves
            sound = False
        if sound:
            self._told(found, w)
        else:
            self._refused = self._refused + len(e)

    def _learnable(self, e: Any, J: Any) -> tuple[Any, Any]:
        """The rows that were not refused and masked, whose errors and gradients are zero now.

        Of a device how many they are is waited for, as what is believed of the weights is anyway:
        they must leave no trace in what time does, nor in the size of what is kept.
        """
        n = len(e)
        count = n - int(self._refused - self._masked)
        if count == n:
            return e, J
        said = e.any(dim=1) | J.reshape(n, -1).any(dim=1)
        # without looking at numbers: those that say something first, of the others the first
        chosen = said.to(torch.int8).argsort(descending=True, stable=True)[:count].sort().values
        return e[chosen], J.reshape(n, e.shape[1], -1)[chosen].reshape(-1, J.shape[1])

    def _told(self, found: Taken, before: Any) -> None:
        """Be as after a step that was sound, from the weights before."""
        del before
        self._belief = found.belief
        self._against += found.contradictions
        self._take(found.w)

    def _filled(self) -> str | None:
        if self._belief is None or self._belief.rank < self.network.p:
            return None
        return (
            "rows without noise should be fewer than weights, got enough to settle all "
            f"{self.network.p}: nothing more can be learned. Use noise > 0, or a wider network."
        )
