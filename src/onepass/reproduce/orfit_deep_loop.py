"""A training loop of one's own, as ``orfit-deep`` needs it for optimizers that know of tasks.

Each batch is one step of the optimizer. The rows of a task are held until it ends, and shown to
the optimizer again then, as GPM's authors do; they are not counted as memory, and let go.
"""

from collections.abc import Iterable
from typing import Any, Self

from onepass.errors import NumericalError, need

__all__ = ["Loop"]


class Loop:
    """A module and an optimizer with ``after_task(loader)``, as a learner with the usual verbs.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place.
    optimizer : torch.optim.Optimizer
        Such as ``op.nn.optim.GPM``.
    loss : {"cross_entropy", "squared"}
        What is lowered; half the squared error.

    Raises
    ------
    NumericalError
        By ``learn`` and ``after_task``, where training has diverged.
    """

    def __init__(self, module: Any, optimizer: Any, loss: str) -> None:
        self._torch = need("torch", extra="torch", where="orfit_deep")
        self.module, self.optimizer, self.loss = module, optimizer, loss
        self._task: list[tuple[Any, Any]] = []

    def learn(self, x: Any, y: Any) -> Self:
        """One step on a batch."""
        functional = self._torch.nn.functional
        self.optimizer.zero_grad()
        said = self.module(x)
        if self.loss == "cross_entropy":
            loss = functional.cross_entropy(said, y)
        else:
            loss = 0.5 * functional.mse_loss(said, y, reduction="sum") / len(x)
        self._hold([loss])
        loss.backward()
        self.optimizer.step()
        self._task.append((x, y))
        return self

    def after_task(self) -> Self:
        """Let the optimizer hold on to what the task needs."""
        self._hold(self.module.parameters())
        self.optimizer.after_task(self._task)
        self._task = []
        return self

    def _hold(self, tensors: Iterable[Any]) -> None:
        """Stop where training has diverged."""
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise NumericalError(
                "orfit_deep: loss and weights must be finite, got some that are not. Lower the "
                "step size."
            )

    @property
    def nbytes(self) -> int:
        """Bytes that the optimizer keeps."""
        return int(self.optimizer.nbytes)
