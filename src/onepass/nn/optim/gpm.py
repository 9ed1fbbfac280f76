"""GPM: gradient projection memory: layers leave alone what they were given in past tasks.

A layer's weights W (o × d) meet vectors x ∈ ℝᵈ, and W x does not change for those x that a change
ΔW of the weights is orthogonal to. So for each layer an orthonormal M (d × k) is kept, of the
directions that its inputs had in past tasks, and the inner optimizer's step becomes

    ΔW ← ΔW − ΔW M Mᵀ                                                                        (1)

([1] (6), and (7) for convolutions, whose x are patches). When a task is over, some of its rows are
shown to the module; with the vectors R (d × N) that the layer met then, not centred,

    R̂ = R − M MᵀR = Û Σ̂ V̂ᵀ                                                      [1] (8)      (2)
    k = min { k : ‖M MᵀR‖² + ‖R̂_k‖² ≥ ε ‖R‖² },    M ← [M Û[:, :k]]              [1] (9)      (3)

in Frobenius norms, R̂_k being the best approximation of R̂ of rank k; for the first task, M being
empty, this is [1] (5). ε is the threshold of the layer, and may rise from task to task.

R itself is not kept, but the triangle of its QR decomposition, which has all that (2) and (3) ask.
Cost: of a step, 4 o d k multiplications a layer; of the end of a task, O(N d² + d³) for each layer.

[1] G. Saha, I. Garg, K. Roy, "Gradient Projection Memory for Continual Learning", ICLR 2021.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch

from onepass import linalg, validation
from onepass.columns import Columns
from onepass.errors import CheckpointError, NumericalError
from onepass.interrupt import Interrupt
from onepass.nn.function import evaluating
from onepass.nn.optim.activations import listening
from onepass.nn.optim.bases import grown, thresholds, triangle
from onepass.nn.optim.drawn import drawn, together
from onepass.nn.optim.projected import Projected
from onepass.nn.optim.sorts import sorted_out
from onepass.nn.optim.written import read, written
from onepass.serialization.state import nbytes

__all__ = ["GPM"]


class GPM(Projected):
    """Gradient projection memory, around any optimizer of torch.

    It is an optimizer: give it to schedulers and to ``torch.amp.GradScaler``, and call ``step()``
    after ``loss.backward()`` as ever. Held are ``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d``.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of parameters of the module; not LBFGS.
    module : torch.nn.Module
    threshold : float, sequence of float, or mapping of str to float, default=0.97
        ε of (3), in (0, 1]: for all layers; one for each, in the module's order; or by names of
        layers or patterns of them, the first that fits. 1 keeps all that rounding can tell.
    growth : float, default=0.0
        By how much ε rises with each task, up to 1; >= 0.
    rows : int or None, default=300
        Rows of a task that are shown to the module when it is over; None: all.
    projects : {"all", "last"}, str or sequence of str, default="all"
        Which parameters are held: all of the optimizer, or names of parameters or layers, or
        patterns. The others are free, as heads are that belong to one task.
    biases : {"frozen", "free"}, default="frozen"
        [1] has no biases. A bias shifts all answers, past ones too: so it learns in the first task
        alone, or freely, if past answers may shift.
    others : {"refuse", "frozen", "free"}, default="refuse"
        What becomes of parameters of other layers, of which it is not known what they meet, such as
        those of normalisation: an error, as biases after the first task, or free.
    seed : int, default=0
        What the rows of a task are drawn from.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
    ranks_ : dict of str to int
        k of each layer, the directions kept, of all its groups together.
    tasks_ : int
        Tasks that are over.

    Raises
    ------
    ParameterError, TypeMismatchError
        If an argument is none of these, or parameters are neither weights nor biases of such
        layers, and it was not said what becomes of them.

    Notes
    -----
    Running statistics of batch normalisation are no parameters and are not held: freeze them with
    ``eval()`` if past answers must stay.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> module = torch.nn.Linear(3, 1, bias=False)
    >>> optimizer = op.nn.optim.GPM(torch.optim.Adam(module.parameters(), lr=0.1), module)
    >>> past, new = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> said = module(past).item()
    >>> optimizer.after_task([past]).ranks_
    {'': 1}
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (module(new) - 5.0).square().mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> abs(module(past).item() - said) < 1e-5, round(module(new).item(), 1)
    (True, 5.0)
    """

    _part: ClassVar[str] = "bases"

    def __init__(
        self,
        optimizer: Any,
        module: Any,
        threshold: float | Sequence[float] | Mapping[str, float] = 0.97,
        *,
        growth: float = 0.0,
        rows: int | None = 300,
        projects: Any = "all",
        biases: Literal["frozen", "free"] = "frozen",
        others: Literal["refuse", "frozen", "free"] = "refuse",
        seed: int = 0,
    ) -> None:
        self.biases = biases
        self.others = others
        super().__init__(optimizer, module, projects)
        where = self._where
        self.threshold = threshold
        self._thresholds = thresholds(threshold, list(self._layers), where)
        self.growth = validation.in_range(growth, "growth", where, low=0.0)
        self.rows = None if rows is None else validation.whole(rows, "rows", where, low=1)
        self.seed = validation.whole(seed, "seed", where, low=0)
        self._bases: dict[str, list[Columns]] = {}

    def _select(self) -> None:
        super()._select()
        sorts = sorted_out(
            self.module,
            dict(zip(self._names, self._chosen, strict=True)),
            biases=self.biases,
            others=self.others,
            where=self._where,
        )
        self._layers, self._fixed = sorts.layers, sorts.fixed

    # -- tasks -----------------------------------------------------------------------------------

    def after_task(self, loader: Any) -> Self:
        """Show rows of a task to the module, and keep the directions of what its layers met.

        The module is asked as in evaluation mode; its mode, hooks and buffers stay. A layer that no
        row reached, such as the head of another task, keeps what it has.

        Parameters
        ----------
        loader : iterable of batches (x, y) or x, or one batch (x, y), a tuple
            The task's rows, such as the DataLoader that it was trained with; it is read once, and
            y does not matter.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, ShapeError, TypeMismatchError, NotFiniteError
            If there are no rows, or they do not fit: then nothing has changed.
        NumericalError
            If what a layer is given is not finite: then nothing has changed.
        """
        where = f"{self._where}.after_task"
        told: dict[str, Any] = {}

        def hear(name: str, vectors: Any) -> None:
            told[name] = triangle(told.get(name), vectors)

        with evaluating(list(self.module.modules())), self._plainly():
            found = drawn(
                loader, self.rows, (self.seed, self.tasks_), self._network, where, labels=False
            )
            rows = (each.rows for each in found)
            batches = rows if self.rows is None else iter(together(list(rows)))
            for batch in batches:
                with listening(self._layers, hear):
                    self._network.outputs(batch)
            bases = dict(self._bases)
            for name, parts in told.items():
                _refuse_nonfinite(name, parts, where)
                level = min(self._thresholds[name] + self.growth * self.tasks_, 1.0)
                old: Any = bases.get(name) or [None] * len(parts)
                bases[name] = [
                    grown(basis, T, level, self._kind(name))
                    for basis, T in zip(old, parts, strict=True)
                ]
        with Interrupt().held():
            self._bases, self.tasks_ = bases, self.tasks_ + 1
        return self

    @property
    def ranks_(self) -> dict[str, int]:
        """The directions kept of each layer, of all its groups together."""
        return {name: sum(map(len, self._bases.get(name, ()))) for name in self._layers}

    @property
    def nbytes(self) -> int:
        """Bytes of the directions."""
        return nbytes(self._bases)

    # -- what stands behind it -------------------------------------------------------------------

    def _kind(self, name: str) -> Any:
        """An empty tensor of the precision of a layer's directions, on its device."""
        return linalg.widened(self._layers[name].weight.detach()[:0])

    def _held(self) -> list[Any]:
        if not self.tasks_:
            return []
        kept = [each.weight for name, each in self._layers.items() if self.ranks_[name]]
        return [*kept, *self._fixed]

    def _correct(self, held: list[Any], before: list[Any]) -> None:
        """(1) for weights; what is frozen goes back."""
        bases = {id(each.weight): self._bases.get(name) for name, each in self._layers.items()}
        for each, old in zip(held, before, strict=True):
            known = bases.get(id(each))
            if known is None:
                each.copy_(old)
                continue
            moved = linalg.widened(each.detach() - old).reshape(
                len(known), -1, known[0].matrix.shape[0]
            )
            # once: what rounding leaves of a step is not more than what it leaves of the weights
            free = [d - (d @ M.matrix) @ M.rows for M, d in zip(known, moved, strict=True)]
            each.copy_(old + torch.cat(free).reshape(old.shape))

    def _memory_dict(self) -> dict[str, Any]:
        return {
            self._part: {name: [written(M) for M in found] for name, found in self._bases.items()}
        }

    def _read_memory(self, ours: Mapping[str, Any]) -> Any:
        where = f"{self._where}.load_state_dict"
        bases = {
            name: [read(M, self._network.device, where) for M in found]
            for name, found in ours[self._part].items()
        }
        for name, found in bases.items():
            layer = self._layers.get(name)
            shape = [M.matrix.shape[0] for M in found]
            if layer is None or shape != [layer.d] * layer.groups:
                raise CheckpointError(
                    f"{where}: the directions of {name!r} must be those of a layer held here, got "
                    f"{len(found)} group(s) of {shape[:1]} inputs. Wrap the module that they "
                    "were taken with."
                )
        return bases

    def _take_memory(self, memory: Any) -> None:
        self._bases = memory


def _refuse_nonfinite(name: str, T: Any, where: str) -> None:
    """Refuse what a layer was given if it has no directions.

    Raises
    ------
    NumericalError
    """
    if not bool(T.isfinite().all()):
        raise NumericalError(
            f"{where}: what the layers are given must be finite, got nan or infinity in "
            f"{name!r}. Look at the weights before it, or scale the rows."
        )
