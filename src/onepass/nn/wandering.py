"""Wandering: filters whose weights wander from row to row, and the way they do.

    w_k = w₀ + γ (w_{k−1} − w₀) + N(0, q I)                                                 (1)

Time passes after each row, so that what is said next is said by the weights for the next row:

    w ← w₀ + γ (w − w₀),        P ← γ² P + q I                                              (2)
"""

from abc import abstractmethod
from typing import Any, ClassVar

import torch

from onepass import validation
from onepass.errors import ParameterError
from onepass.nn.filtering import Filter, Taken
from onepass.nn.losses import LossName

__all__ = ["Dynamics", "Wandering"]


class Wandering(Filter):
    """A filter of weights that wander.

    Parameters
    ----------
    module : torch.nn.Module
    prior : float
        Variance of each weight before the first row, > 0.
    process_noise : float
        q >= 0.
    decay : float
        γ in (0, 1].
    noise, loss, learns, block_update, chunk
        As in :class:`~onepass.nn.filtering.Filter`.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    kept: ClassVar[tuple[str, ...]] = (*Filter.kept, "_dynamics._start")

    def __init__(
        self,
        module: Any,
        *,
        prior: float,
        noise: float,
        process_noise: float,
        decay: float,
        loss: LossName,
        learns: Any,
        block_update: bool,
        chunk: int | None,
    ) -> None:
        where = f"op.nn.{type(self).__name__}"
        self.prior = validation.in_range(prior, "prior", where, above=0.0)
        self._dynamics = Dynamics(decay, process_noise, where)
        self.process_noise, self.decay = self._dynamics.process_noise, self._dynamics.decay
        super().__init__(
            module,
            prior=self.prior,
            noise=noise,
            loss=loss,
            learns=learns,
            block_update=block_update,
            chunk=chunk,
        )

    @abstractmethod
    def _measured(self, belief: Any, w: Any, e: Any, J: Any) -> Taken:
        """What rows with errors e (n, c) and gradients J (n·c, p) make of belief and weights."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return super().nbytes + self._dynamics.nbytes

    def _taken(self, belief: Any, w: Any, e: Any, J: Any) -> Taken:
        found = self._measured(belief, w, e, J)
        decay, added = self._dynamics.passed(len(e))
        new = self._dynamics.shrunk(found.w, w, decay)
        return found._replace(belief=found.belief.drifted(decay, added), w=new)  # (2)

    def _told(self, found: Taken, before: Any) -> None:
        self._dynamics.begun(before)
        super()._told(found, before)

    def _tried(self) -> None:
        super()._tried()
        self._dynamics.tried(self.network.p)


class Dynamics:
    """How weights wander from row to row: (1).

    Parameters
    ----------
    decay : float
        γ in (0, 1].
    process_noise : float
        q >= 0.
    where : str
        What the user called, for messages.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    def __init__(self, decay: float, process_noise: float, where: str) -> None:
        self.decay = validation.in_range(decay, "decay", where, low=0.0, high=1.0)
        self.process_noise = validation.in_range(process_noise, "process_noise", where, low=0.0)
        if not self.decay:
            raise ParameterError(
                f"{where}: `decay` must be above 0, got 0: then nothing of a row would be left for "
                "the next. Use 1 for weights that stay, or a number just below."
            )
        self._start: Any = None

    def begun(self, w: Any) -> None:
        """Note the weights w₀ before the first row, if they are needed."""
        if self.decay < 1.0 and self._start is None:
            self._start = w.clone()

    def passed(self, n: int) -> tuple[float, float]:
        """γⁿ, and the variance that n rows' time adds: q (1 + γ² + … + γ²⁽ⁿ⁻¹⁾)."""
        square = self.decay**2
        times = float(n) if square == 1.0 else (1.0 - square**n) / (1.0 - square)
        return self.decay**n, self.process_noise * times

    def shrunk(self, w: Any, before: Any, decay: float) -> Any:
        """w₀ + decay · (w − w₀), where w₀ is that noted, or the weights before."""
        if decay == 1.0:
            return w
        start = before if self._start is None else self._start.to(w)
        return torch.lerp(start, w, decay)

    def tried(self, p: int) -> None:
        """Use what is noted, which was read from a file."""
        if self._start is not None:
            self._start.reshape(p)

    @property
    def nbytes(self) -> int:
        """Bytes of w₀, if it is kept."""
        return 0 if self._start is None else int(self._start.nbytes)
