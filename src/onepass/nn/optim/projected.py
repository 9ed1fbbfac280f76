"""Projected: an optimizer around another, that corrects each step the other takes.

For weights w the inner optimizer, whatever it is, goes to w + Δ; the outer one goes to

    w + P Δ                                                                                  (1)

with P the projection onto what is free. It is the step that is projected and not the gradient: a
step made of a projected gradient by momentum, by the scaling of Adam or by weight decay would leave
the free directions again.

In ``state_dict`` the memory is encoded by :mod:`onepass.serialization.codec`, as plain values and
tensors, so that ``torch.load(weights_only=True)`` reads it.

Drawn: rows of a task, from a loader that is read once, each as likely as another.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from onepass.errors import CheckpointError, ParameterError, ShapeError, TypeMismatchError
from onepass.nn.batch import Batch, joined, mapped
from onepass.nn.function import plainly
from onepass.nn.gradients import slots
from onepass.nn.losses import targets
from onepass.nn.module import Network
from onepass.nn.saving import from_tensors, tensors_of
from onepass.nn.selection import select
from onepass.serialization.state import nbytes
from onepass.types import ArrayLike

__all__ = ["Labelled", "Projected", "drawn", "together"]


_OURS = "onepass"  # the key of what is not the inner optimizer's in a state_dict


class Projected(torch.optim.Optimizer):  # type: ignore[misc]  # torch may be absent
    """An optimizer of torch around another one: (1).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Over parameters of the module.
    module : torch.nn.Module
    projects : {"all", "last"}, str or sequence of str
        Which parameters' steps are projected.

    Raises
    ------
    TypeMismatchError, ParameterError
    """

    _part: ClassVar[str]
    """The key of the memory in a state."""
    _memory: Any
    """The memory: what :func:`~onepass.serialization.codec.state_dict` encodes."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        projects: str | Sequence[str],
    ) -> None:
        self._where = f"op.nn.optim.{type(self).__name__}"
        _refuse(optimizer, self._where)
        self.optimizer = optimizer
        self.module = module
        self.projects = projects
        self.tasks_ = 0
        self._begun = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._begun = True
        self._select()

    def _select(self) -> None:
        """Find the parameters whose steps are projected: ``_names``, ``_chosen``, ``_network``."""
        try:
            selection = select(self.module, self.projects, self._where)
        except (ParameterError, TypeMismatchError) as wrong:
            raise type(wrong)(str(wrong).replace("`learns`", "`projects`")) from wrong
        for group in self.param_groups:
            self._refuse_foreign(group["params"])
        ours = {id(each) for group in self.param_groups for each in group["params"]}
        known = zip(selection.names, selection.parameters, strict=True)
        found = {name: each for name, each in known if id(each) in ours}
        if not found:
            raise ParameterError(
                f"{self._where}: `projects` must name parameters that the optimizer moves, got "
                f"{self.projects!r}, of which it has none that requires grad. Give the optimizer "
                "module.parameters()."
            )
        self._names, self._chosen = list(found), list(found.values())
        last = "projects" if self.projects == "last" else None
        self._network = Network(self.module, self._names, where=self._where, last=last)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return nbytes(self._memory)

    # -- an optimizer's face ---------------------------------------------------------------------

    @property
    def param_groups(self) -> Any:
        """The inner optimizer's."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, object]]) -> None:
        if self._begun:
            self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The inner optimizer's."""
        return self.optimizer.state

    @state.setter
    def state(self, state: defaultdict[Tensor, object]) -> None:
        if self._begun:
            self.optimizer.state = state

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  torch's own
        """Forget the gradients of the optimizer's parameters."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Let the optimizer move more parameters of the module, such as those of a new head.

        While no task is over they are chosen by ``projects``, as the others; later their steps are
        free: past answers were given without them.

        Raises
        ------
        ParameterError
            If they are not the module's.
        """
        if not self._begun:  # the groups are the inner optimizer's, which has them already
            return
        given = param_group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        self._refuse_foreign([each[1] if isinstance(each, tuple) else each for each in given])
        self.optimizer.add_param_group({**param_group, "params": given})
        if not self.tasks_:
            self._select()

    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Let the inner optimizer take its step, then take back what is not free of it: (1).

        Parameters
        ----------
        closure : callable, optional
            As the inner optimizer takes it.

        Returns
        -------
        loss : what the inner optimizer returns
        """
        held = self._held()
        if not held:
            return self.optimizer.step(closure)
        before = [each.detach().clone() for each in held]
        try:
            said = self.optimizer.step(closure)
        except BaseException:
            with torch.no_grad():
                torch._foreach_copy_(held, before)
            raise
        with torch.no_grad(), self._plainly():
            self._correct(held, before)
        return said

    def _plainly(self) -> AbstractContextManager[None]:
        return plainly(self._chosen[0].device, self._network.p)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and the memory under ``"onepass"``: tensors and numbers."""
        ours = {"wrapper": type(self).__name__, "tasks": self.tasks_, "names": list(self._names)}
        memory = tensors_of(self._memory, f"{self._where}.state_dict")
        return {**self.optimizer.state_dict(), _OURS: {**ours, self._part: memory}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, bit for bit; nothing is loaded if it does not fit.

        Raises
        ------
        CheckpointError
            If it is the state of another optimizer, or for other parameters.
        ValueError
            If the inner optimizer refuses its part.
        """
        rest = dict(state_dict)
        ours = rest.pop(_OURS, None)
        kind = ours.get("wrapper") if isinstance(ours, Mapping) else None
        if kind != type(self).__name__:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must be one of {type(self).__name__}, "
                f"got that of {kind or 'a plain optimizer'}. Load a plain optimizer's state into "
                "`optimizer`, which this one wraps."
            )
        missing = {"names", "tasks", self._part} - set(ours)
        if type(ours.get("tasks")) is not int or ours["tasks"] < 0:
            missing |= {"tasks"}
        if missing:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must hold {', '.join(sorted(missing))}, "
                "got one without, or with others. It is damaged: take it anew with state_dict()."
            )
        if ours["names"] != self._names:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must be for the parameters "
                f"{', '.join(self._names)}, got {ours['names']}. Wrap the same module "
                "with the same `projects`."
            )
        try:
            where = f"{self._where}.load_state_dict"
            memory = from_tensors(ours[self._part], self._network.device, where)
            self._refuse_unlike(memory)
        except (AttributeError, LookupError, TypeError, ValueError) as wrong:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must be as it was taken, got a "
                f"damaged one: {wrong}. Take it anew with state_dict()."
            ) from wrong
        self.optimizer.load_state_dict(rest)
        self.tasks_ = ours["tasks"]
        self._take_memory(memory)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeMismatchError(
            f"{self._where}: an optimizer around a module must be made anew for a copy of it, got "
            "a copy or pickle of the optimizer alone. Save state_dict(), and load it into a new "
            "one around the copied module."
        )

    # -- what a kind of projection brings --------------------------------------------------------

    @abstractmethod
    def _held(self) -> list[torch.nn.Parameter]:
        """The parameters whose step will be corrected; none if there is nothing to keep."""

    @abstractmethod
    def _correct(self, held: list[torch.nn.Parameter], before: list[Tensor]) -> None:
        """Correct the step from ``before``, in place."""

    @abstractmethod
    def _refuse_unlike(self, memory: Any) -> None:
        """Refuse a memory that was read, if it is of another module."""

    def _take_memory(self, memory: Any) -> None:
        """Use a memory that was read."""
        self._memory = memory

    def _refuse_foreign(self, parameters: Iterable[Tensor]) -> None:
        known = {id(each) for each in self.module.parameters()}
        for each in parameters:
            if id(each) not in known:
                raise ParameterError(
                    f"{self._where}: the optimizer must move parameters of `module` alone, got one "
                    f"of shape {tuple(each.shape)} that is not the module's. Give the optimizer "
                    "module.parameters(), of the module as it is now."
                )


def _refuse(optimizer: object, where: str) -> None:
    """Refuse what is no optimizer, or one whose steps cannot be corrected.

    Raises
    ------
    TypeMismatchError, ParameterError
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeMismatchError(
            f"{where}: `optimizer` must be a torch.optim.Optimizer, got "
            f"{type(optimizer).__name__}. Give one, such as torch.optim.SGD(module.parameters(), "
            "lr=0.01)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            f"{where}: `optimizer` must not learn curvature from where it believes to be, got "
            "LBFGS, whose steps are several and must not be changed. Use SGD, Adam or the like."
        )
    if isinstance(optimizer, Projected):
        raise ParameterError(
            f"{where}: `optimizer` must not be projected already, got "
            f"{type(optimizer).__name__}: one projection after another is none. Wrap its "
            "`optimizer`."
        )


class Labelled(NamedTuple):
    """Rows, and what is known of their classes."""

    rows: Batch
    classes: Tensor | None
    """(n, c), 1 at the class of each row; None where classes do not matter."""


def drawn(
    loader: Iterable[object],
    k: int | None,
    seed: tuple[int, ...],
    network: Network,
    where: str,
    *,
    labels: bool,
) -> Iterator[Labelled]:
    """Rows of a task: k of them, each by itself, in no order; or all, batch by batch.

    Parameters
    ----------
    loader : iterable of batches (x, y), or one such batch, a tuple
        Rows lie where they lie: they are taken to the module's device. Where classes do not matter,
        batches may be x alone.
    k : int or None
        How many rows; None: all.
    seed : tuple of int
        What they are drawn from.
    network : Network
    where : str
        What the user called, for messages.
    labels : bool
        Whether classes are wanted.

    Raises
    ------
    ParameterError, ShapeError, TypeMismatchError, NotFiniteError, LabelError
        If there are no rows, or they or their classes do not fit.
    """
    seen, kept = 0, dict[int, Labelled]()
    for at, batch in enumerate(_batches(loader, where)):
        called = where if isinstance(loader, tuple) else f"{where}, batch {at} of `loader`"
        found = _looked_over(batch, network, called, labels=labels)
        n = len(found.rows)
        if k is None and n:
            yield found
        elif n:
            for place, i in slots(seen, n, k or 0, seed).items():
                kept[place] = _alone(found, i)
        seen += n
    if not seen:
        raise ParameterError(
            f"{where}: `loader` must give the rows of a task, got none. A generator can be read "
            "once only: make a new one."
        )
    yield from kept.values()


def together(rows: list[Batch]) -> list[Batch]:
    """Rows as one batch where they are of one shape and tensors alone, else as they are."""
    shapes = {tuple(tuple(each.shape) for each in row.tensors) for row in rows}
    leaves = [*rows[0].args, *rows[0].kwargs.values()]
    if len(shapes) > 1 or not all(isinstance(each, torch.Tensor) for each in leaves):
        return rows
    return [joined(rows)]


def _batches(loader: Iterable[object], where: str) -> Iterable[object]:
    arrays = (torch.Tensor, np.ndarray)
    if isinstance(loader, tuple):
        return [loader]
    if isinstance(loader, (*arrays, Mapping)) or not (
        hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    ):
        raise TypeMismatchError(
            f"{where}: `loader` must give batches (x, y) of the task, got "
            f"{type(loader).__name__}. Give a torch.utils.data.DataLoader, or one batch (x, y)."
        )
    return loader


def _looked_over(batch: object, network: Network, where: str, *, labels: bool) -> Labelled:
    x, y = batch, None
    if isinstance(batch, (tuple, list)):
        if not 1 <= len(batch) <= 2:
            raise ShapeError(
                f"{where}: `loader` must give batches (x, y), got {len(batch)} parts. Where the "
                "module takes several, give them as one: ((x1, x2), y)."
            )
        x, y = (batch[0], None) if len(batch) == 1 else batch
    if labels and y is None:
        raise ShapeError(
            f"{where}: `loader` must give batches (x, y) with the class of each row, got x alone. "
            "Use gradients='outputs', which needs no classes."
        )
    if y is not None and np.ndim(y) == 0:
        raise ShapeError(
            f"{where}: `loader` must give batches of rows, got a single row. Wrap the data set in "
            "a torch.utils.data.DataLoader."
        )
    rows = network.prepare(mapped(x, lambda each: each.to(network.device)), where)
    if isinstance(y, (torch.Tensor, np.ndarray)) and len(y) != len(rows):
        raise ShapeError(
            f"{where}: `y` must hold one answer for each of {len(rows)} rows, got {len(y)}. Give "
            "the rows with their own answers, or x alone where no classes are asked for."
        )
    if not labels or not len(rows):
        return Labelled(rows, None)
    with torch.no_grad():
        like = network.outputs(rows[:1])
    if like.shape[1] == 1:
        raise ParameterError(
            f"{where}: `gradients` must be 'outputs' where the module has one output, got 'logit', "
            "the output of a row's class."
        )
    _refuse_numbers(y, where)
    return Labelled(rows, targets(y, len(rows), like.shape[1], "one_hot", like, where))


def _refuse_numbers(y: ArrayLike | Tensor, where: str) -> None:
    """Refuse answers that are no classes, and say what to do with them."""
    array = y if isinstance(y, torch.Tensor) else np.asarray(y)
    real = array.is_floating_point() if isinstance(array, torch.Tensor) else array.dtype.kind == "f"
    if real:
        raise TypeMismatchError(
            f"{where}: `loader` must give the class of each row, a whole number, with "
            f"gradients='logit', got {array.dtype}. Use gradients='outputs' for numbers."
        )


def _alone(found: Labelled, i: int) -> Labelled:
    """A copy of one row, that does not keep its batch."""
    return Labelled(
        found.rows[i].clone(), None if found.classes is None else found.classes[i : i + 1].clone()
    )
