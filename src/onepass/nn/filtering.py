"""Filtering: what Kalman filters of networks share: a belief about the weights, told and kept.

A step linearises the network at the present weights, w_{k|k−1}, and takes the rows in as a Kalman
filter would that knew the linear model to be true; then time passes, so that what is said next is
said by the weights for the next row, w_{k+1|k}.
"""

import warnings
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self, overload

import torch

from onepass import linalg, validate
from onepass.errors import MemoryFullWarning, MergeError, NumericalError, ParameterError
from onepass.nn.belief import Belief, Covariance
from onepass.nn.inputs import Batch
from onepass.nn.learner import Learner
from onepass.nn.losses import LossName, answers
from onepass.nn.mode import plainly

__all__ = ["Dynamics", "Filter"]

_AT_ONCE = 1 << 22  # numbers of a Jacobian that are made at once for standard deviations


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
        self._full = False

    # -- hooks -----------------------------------------------------------------------------------

    def _begin(self, c: int) -> Any:
        """The belief before the first row, of c outputs."""
        return Covariance(self._prior).start(self.network.p, c, self.noise, self._like)

    @abstractmethod
    def _taken(self, belief: Any, w: Any, e: Any, J: Any) -> tuple[Any, Any]:
        """The belief and the weights after rows with errors e (n, c), and after their time."""

    # -- verbs -----------------------------------------------------------------------------------

    @overload
    def predict(self, x: Any, *, return_std: Literal[False] = False) -> Any: ...

    @overload
    def predict(self, x: Any, *, return_std: Literal[True]) -> tuple[Any, Any]: ...

    def predict(self, x: Any, *, return_std: bool = False) -> Any:
        """Numbers (n, c), or (n,) if the module has one output; or classes (n,).

        Parameters
        ----------
        x : rows, as the module takes them
        return_std : bool, default=False
            Whether to give √(g P gᵀ) of each output as well, g its gradient: how far the output is
            unknown because the weights are. The noise of an answer is not in it: an answer lies
            within √(std² + noise) of what is said. It is the linearised network's, and as good as
            ``noise`` and the prior are.

        Returns
        -------
        said : Tensor of shape (n,) or (n, c)
        std : Tensor of the shape of said
            If ``return_std``.

        Raises
        ------
        ParameterError
            If a standard deviation is asked of classes.
        """
        if not return_std:
            return answers(self.loss, self.outputs(x))
        if self.loss != "squared":
            raise ParameterError(
                f"{self._where}.predict: `return_std` must be False for classes, got True with "
                f"loss={self.loss!r}. A class has no standard deviation: see `outputs`."
            )
        rows = self.network.prepare(x, f"{self._where}.predict")
        said = self.network.outputs(rows)
        n, c = said.shape
        belief = self._begin(c) if self._belief is None else self._belief
        width = max(_AT_ONCE // max(self.network.p * c, 1), 1)
        std = torch.zeros_like(said)
        for i in range(0, n, width):
            with plainly(self.network.device, self.network.p):
                J = linalg.widened(self.network.jacobian(rows[i : i + width])[1])
                found = torch.as_tensor(belief.variances(J.T), device=std.device).sqrt()
            std[i : i + width] = found.reshape(-1, c).to(std.dtype)
        return answers(self.loss, said), answers(self.loss, std)

    def merge(self, other: Any) -> Self:
        """Refused: ORFit is the filter that merges.

        Raises
        ------
        MergeError
        """
        del other
        raise MergeError(
            f"{self._where}.merge: a learner that tells its rows from time and prior must be "
            f"given, got {type(self).__name__}. Without forgetting or process noise, "
            "op.nn.ORFit(memory=None, noise=noise / prior) is the same filter, and merges."
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

    def _tried(self) -> None:
        super()._tried()
        float(self._against)
        started = getattr(getattr(self, "_dynamics", None), "_start", None)
        if started is not None:
            started.reshape(self.network.p)
        if self._belief is not None:
            self._belief.variances(self._like.new_zeros(1, self.network.p).T)

    def _learn(self, rows: Batch, e: Any, J: Any) -> None:
        del rows
        belief = self._begin(e.shape[1]) if self._belief is None else self._belief
        try:
            belief, w = self._taken(belief, self._weights, e, J)
            sound = bool(self._sound(w))
        except NumericalError:  # told with the rows whose gradients are not finite themselves
            sound = False
        if not sound:
            self._refused = self._refused + len(e)
            return
        self._belief = belief
        self._take(w)
        if self._belief.rank >= self.network.p and not self._full:
            self._full = True
            warnings.warn(
                f"{self._where}: rows without noise should be fewer than weights, got enough to "
                f"settle all {self.network.p}: nothing more can be learned. Use noise > 0, or "
                "a wider network.",
                MemoryFullWarning,
                stacklevel=6,
            )


class Dynamics:
    """How weights wander from row to row: w ← w₀ + γ (w − w₀) + N(0, q I).

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
        self.decay = validate.in_range(decay, "decay", where, low=0.0, high=1.0)
        self.process_noise = validate.in_range(process_noise, "process_noise", where, low=0.0)
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

    def shrunk(self, w: Any, decay: float) -> Any:
        """w₀ + decay · (w − w₀)."""
        return w if self._start is None else torch.lerp(self._start.to(w), w, decay)

    @property
    def nbytes(self) -> int:
        """Bytes of w₀, if it is kept."""
        return 0 if self._start is None else int(self._start.nbytes)
