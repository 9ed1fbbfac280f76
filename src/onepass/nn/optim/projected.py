"""Projected: an optimizer around another, that corrects each step the other takes.

For weights w the inner optimizer, whatever it is, goes to w + Δ; the outer one goes to

    w + P Δ                                                                                  (1)

with P the projection onto what is free. It is the step that is projected and not the gradient: a
step made of a projected gradient by momentum, by the scaling of Adam or by weight decay would leave
the free directions again.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

import torch

from onepass.errors import CheckpointError, ParameterError, TypeMismatchError
from onepass.nn.function import plainly
from onepass.nn.module import Network
from onepass.nn.selection import select

__all__ = ["Projected"]

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

    def __init__(self, optimizer: Any, module: Any, projects: Any) -> None:
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

    # -- an optimizer's face ---------------------------------------------------------------------

    @property
    def param_groups(self) -> Any:
        """The inner optimizer's."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        if self._begun:
            self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The inner optimizer's."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
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

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
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

    def _plainly(self) -> Any:
        return plainly(self._chosen[0].device, self._network.p)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and the memory under ``"onepass"``: tensors and numbers."""
        ours = {"wrapper": type(self).__name__, "tasks": self.tasks_, "names": list(self._names)}
        return {**self.optimizer.state_dict(), _OURS: {**ours, **self._memory_dict()}}

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
        if missing:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must hold {', '.join(sorted(missing))}, "
                "got one without. It is damaged: take it anew with state_dict()."
            )
        if type(ours["tasks"]) is not int or ours["tasks"] < 0:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must hold the number of tasks, got "
                f"{ours['tasks']!r}. It is damaged: take it anew with state_dict()."
            )
        if ours["names"] != self._names:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must be for the parameters "
                f"{', '.join(self._names)}, got {ours['names']}. Wrap the same module "
                "with the same `projects`."
            )
        try:
            memory = self._read_memory(ours)
        except (AttributeError, KeyError, TypeError) as wrong:
            raise CheckpointError(
                f"{self._where}.load_state_dict: the state must hold the memory that was taken, "
                f"got a damaged one: {wrong}. Take it anew with state_dict()."
            ) from wrong
        self.optimizer.load_state_dict(rest)
        self.tasks_ = ours["tasks"]
        self._take_memory(memory)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeMismatchError(
            f"{self._where}: an optimizer around a module must be made anew for a copy of it, got "
            "a copy or pickle of the optimizer alone. Save state_dict(), and load it into a new "
            "one around the copied module."
        )

    # -- what a kind of projection brings --------------------------------------------------------

    @abstractmethod
    def _held(self) -> list[Any]:
        """The parameters whose step will be corrected; none if there is nothing to keep."""

    @abstractmethod
    def _correct(self, held: list[Any], before: list[Any]) -> None:
        """Correct the step from ``before``, in place."""

    @abstractmethod
    def _memory_dict(self) -> dict[str, Any]:
        """The memory as tensors and numbers."""

    @abstractmethod
    def _read_memory(self, ours: Mapping[str, Any]) -> Any:
        """The memory that was so written."""

    @abstractmethod
    def _take_memory(self, memory: Any) -> None:
        """Use a memory that was read."""

    def _refuse_foreign(self, parameters: Any) -> None:
        known = {id(each) for each in self.module.parameters()}
        for each in parameters:
            if id(each) not in known:
                raise ParameterError(
                    f"{self._where}: the optimizer must move parameters of `module` alone, got one "
                    f"of shape {tuple(each.shape)} that is not the module's. Give the optimizer "
                    "module.parameters(), of the module as it is now."
                )


def _refuse(optimizer: Any, where: str) -> None:
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
