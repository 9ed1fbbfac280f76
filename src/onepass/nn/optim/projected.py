"""Projected: base class of optimizers that wrap another and project its steps.

Where the inner optimizer would move from w to w + Δ, the wrapper moves to

    w + P Δ                                                                                  (1)

with P the projection onto the free directions. The step is projected instead of the gradient, since
momentum, the scaling of Adam or weight decay would lead out of the free directions.

In ``state_dict`` the memory is encoded by :mod:`onepass.serialization.codec`, as plain values and
tensors, so that ``torch.load(weights_only=True)`` can read it.

:func:`loader_rows` draws a uniform sample of the rows of a task from a loader, in one pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from onepass import validation
from onepass.errors import (
    CheckpointError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    calling,
    public,
)
from onepass.nn.batch import Batch, joined, map_tensors
from onepass.nn.function import plain_mode
from onepass.nn.gradients import reservoir_slots
from onepass.nn.losses import RowLoss
from onepass.nn.module import Network
from onepass.nn.saving import from_tensors, tensors_of
from onepass.nn.selection import select
from onepass.serialization.state import nbytes

_OURS = "onepass"  # key of the wrapper's part of a state_dict


class Projected(torch.optim.Optimizer):  # type: ignore[misc]  # torch may be absent
    """A torch optimizer that wraps another and projects its steps: (1).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Optimizer of parameters of ``module``.
    module : torch.nn.Module
    projects : {"all", "last"}, str or sequence of str
        Parameters whose steps are projected.

    Raises
    ------
    TypeMismatchError, ParameterError
    """

    _part: ClassVar[str]
    """Key of the memory in a state_dict."""
    _memory: Any
    """The memory, encoded by :func:`~onepass.serialization.codec.state_dict`."""

    @public
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        module: torch.nn.Module,
        projects: str | Sequence[str],
    ) -> None:
        self._where = type(self).__name__
        _refuse(optimizer)
        self.optimizer = optimizer
        self.module = module
        self.projects = projects
        self.tasks_ = 0
        self._begun = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._begun = True
        self._select()

    def _select(self) -> None:
        """Select the parameters to project: set ``_names``, ``_chosen`` and ``_network``."""
        try:
            selection = select(self.module, self.projects)
        except (ParameterError, TypeMismatchError) as error:
            names = {"learns": "projects"}
            raise error.renamed(lambda name: f"`{names.get(name, name)}`") from error
        for group in self.param_groups:
            self._refuse_foreign(group["params"])
        ours = {id(each) for group in self.param_groups for each in group["params"]}
        named = zip(selection.names, selection.parameters, strict=True)
        found = {name: each for name, each in named if id(each) in ours}
        if not found:
            raise ParameterError(
                "`projects` must name parameters of the optimizer, got "
                f"{self.projects!r}, which selects no parameter that requires grad. "
                "Pass module.parameters() to the optimizer."
            )
        self._names, self._chosen = list(found), list(found.values())
        last = "projects" if self.projects == "last" else None
        self._network = Network(self.module, self._names, last=last)

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes."""
        return nbytes(self._memory)

    # -- optimizer interface ---------------------------------------------------------------------

    @property
    def param_groups(self) -> Any:
        """Parameter groups of the inner optimizer."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, object]]) -> None:
        if self._begun:
            self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """State of the inner optimizer."""
        return self.optimizer.state

    @state.setter
    def state(self, state: defaultdict[Tensor, object]) -> None:
        if self._begun:
            self.optimizer.state = state

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002  torch's own
        """Reset the gradients of the optimizer's parameters."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    @public
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters of the module to the optimizer, such as those of a new head.

        Before the end of the first task they are selected by ``projects``; later their steps are
        not projected, since past predictions do not depend on them.

        Raises
        ------
        ParameterError
            If they are not parameters of ``module``.
        """
        if not self._begun:  # called by the base class for groups of the inner optimizer
            return
        given = param_group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        self._refuse_foreign([each[1] if isinstance(each, tuple) else each for each in given])
        self.optimizer.add_param_group({**param_group, "params": given})
        if not self.tasks_:
            self._select()

    @public
    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Take a step of the inner optimizer and project it: (1).

        Parameters
        ----------
        closure : callable, optional
            Passed to the inner optimizer.

        Returns
        -------
        loss : return value of the inner optimizer
        """
        parameters = self._corrected_parameters()
        if not parameters:
            return self.optimizer.step(closure)
        before = [each.detach().clone() for each in parameters]
        try:
            loss = self.optimizer.step(closure)
        except BaseException:
            with torch.no_grad():
                torch._foreach_copy_(parameters, before)
            raise
        with torch.no_grad(), self._plain_mode():
            self._correct(parameters, before)
        return loss

    def _plain_mode(self) -> AbstractContextManager[None]:
        return plain_mode(self._chosen[0].device, self._network.p)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state, and the memory under ``"onepass"``."""
        ours = {"wrapper": type(self).__name__, "tasks": self.tasks_, "names": list(self._names)}
        memory = tensors_of(self._memory, f"{self._where}.state_dict")
        return {**self.optimizer.state_dict(), _OURS: {**ours, self._part: memory}}

    @public
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state bit for bit; nothing is changed if it does not fit.

        Raises
        ------
        CheckpointError
            If it is the state of another optimizer, or of other parameters.
        ValueError
            If the inner optimizer rejects its part of the state.
        """
        rest = dict(state_dict)
        ours = rest.pop(_OURS, None)
        kind = ours.get("wrapper") if isinstance(ours, Mapping) else None
        if kind != type(self).__name__:
            raise CheckpointError(
                f"the state must be one of {type(self).__name__}, got that of "
                f"{kind or 'a plain optimizer'}. Load a plain optimizer's state into "
                "the wrapped `optimizer`."
            )
        try:
            tasks = validation.whole(ours["tasks"], "tasks", low=0)
            if ours["names"] != self._names:
                raise CheckpointError(
                    f"the state must be for the parameters {', '.join(self._names)}, got "
                    f"{ours['names']}. Wrap the same module with the same `projects`."
                )
            where = f"{self._where}.load_state_dict"
            memory = from_tensors(ours[self._part], self._network.device, where)
            self._refuse_unlike(memory)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                "the state must be a result of state_dict() for this module, got another: "
                f"{error}. Create it again with state_dict()."
            ) from error
        self.optimizer.load_state_dict(rest)
        self.tasks_ = tasks
        self._take_memory(memory)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeMismatchError(
            "an optimizer cannot be copied or pickled without its module. Save "
            "state_dict(), and load it into a new optimizer of the copied module.",
            self._where,
        )

    # -- implemented by subclasses --------------------------------------------------------

    @abstractmethod
    def _corrected_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters whose step will be projected; empty without a memory."""

    @abstractmethod
    def _correct(self, parameters: list[torch.nn.Parameter], before: list[Tensor]) -> None:
        """Project the step from ``before``, in place."""

    @abstractmethod
    def _refuse_unlike(self, memory: Any) -> None:
        """Check that a restored memory belongs to this module."""

    def _take_memory(self, memory: Any) -> None:
        """Set a restored memory."""
        self._memory = memory

    def _refuse_foreign(self, parameters: Iterable[Tensor]) -> None:
        own = {id(each) for each in self.module.parameters()}
        for each in parameters:
            if id(each) not in own:
                raise ParameterError(
                    "the optimizer must have parameters of `module` only, got one of "
                    f"shape {tuple(each.shape)} that is not the module's. Pass the "
                    "current module.parameters() to the optimizer."
                )


def _refuse(optimizer: object) -> None:
    """Check that the steps of an optimizer can be projected.

    Raises
    ------
    TypeMismatchError, ParameterError
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeMismatchError(
            f"`optimizer` must be a torch.optim.Optimizer, got {type(optimizer).__name__}. Use one "
            "such as torch.optim.SGD(module.parameters(), lr=0.01)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ParameterError(
            "`optimizer` must take one step per call, got LBFGS, whose line search and curvature "
            "estimates do not allow projected steps. Use another optimizer, such as SGD or Adam."
        )
    if isinstance(optimizer, Projected):
        raise ParameterError(
            f"`optimizer` must not be a projected optimizer, got {type(optimizer).__name__}, whose "
            "directions a second projection would undo. Wrap its `optimizer`."
        )


class LabelledRows(NamedTuple):
    """Rows and their classes."""

    rows: Batch
    classes: Tensor | None
    """(n, c), one-hot; None if classes are not needed."""


def loader_rows(
    loader: Iterable[object],
    k: int | None,
    seed: tuple[int, ...],
    network: Network,
    where: str,
    *,
    labels: bool,
) -> Iterator[LabelledRows]:
    """Return the rows of a task: a random sample of k single rows, or all rows in batches.

    Parameters
    ----------
    loader : iterable of batches (x, y), or one such batch, a tuple
        Rows are moved to the module's device. If classes are not needed, a batch may be x alone.
    k : int or None
        Number of rows; None: all.
    seed : tuple of int
        Random seed.
    network : Network
    where : str
        The public call, for messages.
    labels : bool
        Whether classes are needed.

    Raises
    ------
    ParameterError, ShapeError, TypeMismatchError, NotFiniteError, LabelError
        If there are no rows, or rows or classes are invalid.
    """
    seen, sample = 0, dict[int, LabelledRows]()
    for at, batch in enumerate(_batches(loader)):
        with calling(where if isinstance(loader, tuple) else f"{where}, batch {at} of `loader`"):
            found = _check_batch(batch, network, labels=labels)
        n = len(found.rows)
        if k is None and n:
            yield found
        elif n:
            for place, i in reservoir_slots(seen, n, k or 0, seed).items():
                sample[place] = _single_row(found, i)
        seen += n
    if not seen:
        raise ParameterError(
            "`loader` must yield the rows of a task, got none. A generator can be "
            "iterated only once: create a new one.",
            where,
        )
    yield from sample.values()


def join_rows(rows: list[Batch]) -> list[Batch]:
    """Join rows into one batch if they are plain tensors of one shape."""
    shapes = {tuple(tuple(each.shape) for each in row.tensors) for row in rows}
    leaves = [*rows[0].args, *rows[0].kwargs.values()]
    if len(shapes) > 1 or not all(isinstance(each, torch.Tensor) for each in leaves):
        return rows
    return [joined(rows)]


def _batches(loader: Iterable[object]) -> Iterable[object]:
    arrays = (torch.Tensor, np.ndarray)
    if isinstance(loader, tuple):
        return [loader]
    if isinstance(loader, (*arrays, Mapping)) or not (
        hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    ):
        raise TypeMismatchError(
            f"`loader` must yield batches (x, y) of the task, got {type(loader).__name__}. Pass a "
            "torch.utils.data.DataLoader, or one batch (x, y)."
        )
    return loader


def _check_batch(batch: object, network: Network, *, labels: bool) -> LabelledRows:
    x, y = batch, None
    if isinstance(batch, (tuple, list)):
        if not 1 <= len(batch) <= 2:
            raise ShapeError(
                f"`loader` must yield batches (x, y), got {len(batch)} parts. If the "
                "module has several inputs, pass them as a tuple: ((x1, x2), y)."
            )
        x, y = (*batch, None)[:2]
    if labels and y is None:
        raise ShapeError(
            "`loader` must yield batches (x, y) with the class of each row, got x "
            "only. Use gradients='outputs', which needs no classes."
        )
    if y is not None and np.ndim(y) == 0:
        raise ShapeError(
            "`loader` must yield batches of rows, got a single row. Wrap the dataset "
            "in a torch.utils.data.DataLoader."
        )
    rows = network.prepare(map_tensors(x, lambda each: each.to(network.device)))
    if not labels or not len(rows):
        return LabelledRows(rows, None)
    like = network.outputs(rows[:1])
    if like.shape[1] == 1:
        raise ParameterError(
            "`gradients` must be 'outputs' for a module with one output, got 'logit', "
            "the output of the class of a row. Use gradients='outputs'."
        )
    return LabelledRows(rows, RowLoss("one_hot").targets(y, len(rows), like.shape[1], like))


def _single_row(found: LabelledRows, i: int) -> LabelledRows:
    """Copy one row, so that it does not share memory with its batch."""
    return LabelledRows(
        found.rows[i].clone(), None if found.classes is None else found.classes[i : i + 1].clone()
    )
