"""Base classes of the baselines: input checks, losses, one step of SGD, and learners with tasks.

The step on a batch with mean loss L, velocity v, step size η and momentum μ [1]:

    v ← μ v + ∇L(w),   w ← w − η v                                                           (1)

is computed apart from the weights and copied into the module only if it is finite; on errors the
learner is unchanged. The module learns in its current mode: BatchNorm in training mode takes its
statistics from the batch, or its running statistics for a batch of one row. Predictions are made in
eval mode, and the mode is restored.

Rows become tensors on the module's device and in its precision. NumPy arrays are moved to the
device; a tensor on another device is refused, since moving it would be a hidden cost at every step.

The loss of a batch is the mean over its rows of

    cross_entropy   −log softmax(f(x; w))_y
    squared         ½ ‖y − f(x; w)‖²

the negative log-likelihood of a class, and of targets with noise of variance 1.

Learners with tasks are notified when a task ends. With ``epochs=1`` every batch is one step and is
then dropped. With more, as in the papers, rows of the current task are held until ``after_task``,
followed by ``epochs`` passes over them, each in a new order, by batches. Every visit is counted.

[1] B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
    form of I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013, with η outside of v.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onepass import validation
from onepass.errors import (
    LabelError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
)
from onepass.nn.batch import (
    Batch,
    RowsLike,
    batch,
    chosen,
    holds_indices,
    joined,
    module_errors,
    numbers,
    tensors,
)
from onepass.nn.function import NORMS, evaluation_mode, refuse_max_norm, substituted
from onepass.types import ArrayLike, ArrayOrTensor

__all__ = [
    "LOSSES",
    "Learner",
    "LossName",
    "Step",
    "Tasked",
    "all_or_nothing",
    "answers",
    "forward",
    "learning",
    "loss_of_rows",
    "plain",
    "predicted",
    "said",
    "slopes",
]


def learning(module: torch.nn.Module, where: str) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name; shared ones once.

    Raises
    ------
    TypeMismatchError
        If it is no module.
    ParameterError
        If none of its parameters learns, they lie on several devices, or it rescales its own.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"{where}: `module` must be a torch.nn.Module, got {type(module).__name__}. "
            "Wrap it in one."
        )
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    devices = sorted({str(p.device) for p in module.parameters()})
    if not found or len(devices) > 1:
        came = f"parameters on {', '.join(devices)}" if found else "none that requires a gradient"
        raise ParameterError(
            f"{where}: `module` must have parameters to learn, on one device, got {came}. "
            "Call module.requires_grad_(True), or module.to(device)."
        )
    refuse_max_norm(module, where)
    return found


def _as_batch(
    x: RowsLike, like: Tensor, where: str, columns: Mapping[str, list[str]] | None = None
) -> Batch:
    """Convert rows for the module, as in op.nn; a list is one array of rows."""
    if isinstance(x, list):
        x = numbers(x, "x", where, "Encode text first.").to(like.device)
    found = batch(x, like.dtype, like.device, where, columns)
    if any(each.is_complex() for each in found.tensors):
        raise TypeMismatchError(
            f"{where}: `x` must be real, got complex numbers. Give real and imaginary parts."
        )
    return found


def plain(found: Batch) -> Batch | Tensor:
    """The tensor of a batch that holds one tensor; another batch unchanged."""
    single = len(found.args) == 1 and not found.kwargs and isinstance(found.args[0], torch.Tensor)
    return found.args[0] if single else found


def answers(y: ArrayLike | Tensor, outputs: Tensor, loss: str, like: Tensor, where: str) -> Tensor:
    """The answers as the loss takes them: (n,) of classes, or of the outputs' shape.

    Parameters
    ----------
    y : Tensor or array-like
        Classes from 0 on of shape (n,) for cross entropy, else numbers.
    outputs : Tensor of shape (n, …)
        What the module says.
    loss : {"cross_entropy", "squared"}
        Which.
    like : Tensor
        A parameter of the module.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
        If there is not one for each row and output.
    LabelError
        If a class is no whole number from 0 to c − 1.
    TypeMismatchError
        If they are no numbers, or on another device.
    NotFiniteError
        If one is nan or infinite.
    """
    tensor = _as_tensor(y, like, where)
    if loss == "squared":
        if tensor.numel() != outputs.numel() or len(tensor) != len(outputs):
            raise ShapeError(
                f"{where}: `y` must be of shape {tuple(outputs.shape)}, as the module answers, "
                f"got {tuple(tensor.shape)}. Give one number for each output of each row."
            )
        return tensor.to(like.dtype).reshape(outputs.shape)
    if outputs.ndim != 2 or tensor.shape not in {outputs.shape[:1], (len(outputs), 1)}:
        raise ShapeError(
            f"{where}: for cross entropy the module must answer (n, c) and `y` be of shape "
            f"({len(outputs)},), got {tuple(outputs.shape)} and {tuple(tensor.shape)}. "
            "Give one class a row, and the module one output a class."
        )
    labels = tensor.reshape(-1).long()
    # one look at the answers: a class that is not there would end a GPU's whole context
    bad = (labels < 0) | (labels >= outputs.shape[1]) | (labels != tensor.reshape(-1))
    if bool(bad.any()):
        came = np.unique(tensor.reshape(-1)[bad].cpu().numpy()).tolist()
        raise LabelError(
            f"{where}: `y` must hold classes 0 … {outputs.shape[1] - 1}, one output each, got "
            f"{came}. Number the classes from 0, or give the "
            "module more outputs."
        )
    return labels


def _among(classes: Sequence[int], told: Tensor, loss: str, where: str) -> Tensor:
    """The classes among which to choose, as places of outputs."""
    if loss != "cross_entropy":
        raise ParameterError(
            f"{where}: `classes` must be left out for the loss {loss!r}, got {classes!r}. "
            "It is for learners of classes."
        )
    some = np.asarray(classes)
    right = some.ndim == 1 and some.size and some.dtype.kind in "iu"
    if not right or some.min() < 0 or some.max() >= told.shape[1]:
        raise LabelError(
            f"{where}: `classes` must be some of 0 … {told.shape[1] - 1}, got {classes!r}. "
            "Give the classes of the task."
        )
    return torch.from_numpy(some.astype(np.int64)).to(told.device)


def _as_tensor(y: ArrayLike | Tensor, like: Tensor, where: str) -> Tensor:
    """Targets as a tensor on the device of the module, finite in its precision."""
    tensor = numbers(y, "y", where, "Encode text first.").to(like.device)
    tensor = tensor.clone() if tensor.is_inference() else tensor
    good = torch.isfinite(tensor.to(like.dtype))
    if not bool(good.all()):  # one look at each block: nothing bad may reach the weights
        row = int((~good.reshape(len(tensor), -1).all(dim=1)).nonzero()[0])
        raise NotFiniteError(
            f"{where}: `y` must be finite, got nan or infinity in row {row}. Drop the row, "
            "or impute it before learning."
        )
    return tensor  # not rounded: half precision would change large class numbers


def forward(module: torch.nn.Module, tensors: Mapping[str, Tensor], rows: Batch) -> Any:
    """Outputs of a module with its parameters and buffers of these names replaced."""
    known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = {id(known[name]): each for name, each in tensors.items()}
    with substituted(list(module.modules()), given):
        return module(*rows.args, **rows.kwargs)


def said(
    module: torch.nn.Module, buffers: dict[str, Tensor], x: Batch | Tensor, where: str
) -> Tensor:
    """The outputs (n, …) of a module with these buffers.

    Batch normalisation uses its running statistics for a batch of one row.
    """
    rows = x if isinstance(x, Batch) else Batch((x,), {}, len(x), where, len(x))
    with module_errors(rows, where, lambda: None):
        try:
            outputs = forward(module, buffers, rows)
        except ValueError:
            norms = [each for each in module.modules() if isinstance(each, NORMS) and each.training]
            if len(x) > 1 or not norms or any(each.running_mean is None for each in norms):
                raise
            fresh = {name: b.clone() for name, b in module.named_buffers() if name in buffers}
            buffers.update(fresh)  # earlier layers have written into those
            with evaluation_mode(norms):
                outputs = forward(module, buffers, rows)
        outputs = chosen(outputs, where)
    if outputs.ndim and len(outputs) == len(x):
        return outputs
    raise ShapeError(
        f"{where}: `module` must answer with a tensor, one row for each of the {len(x)} rows, got "
        f"{tuple(outputs.shape)}. Wrap it in a module that does."
    )


def predicted(
    module: torch.nn.Module, buffers: dict[str, Tensor], x: Batch | Tensor, where: str
) -> Tensor:
    """The outputs of a module in evaluation mode, without a derivative."""
    with evaluation_mode(module.modules()), torch.no_grad():
        return said(module, buffers, x, where).detach()  # scripted modules ignore no_grad


def slopes(loss: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """∇L; zeros for weights that the loss does not depend on."""
    if not loss.requires_grad:  # a forward pass that is cut off from all weights
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@contextmanager
def all_or_nothing(learner: "Learner", held: list[Tensor]) -> Iterator[None]:
    """Whatever is raised within, the learner and its module are as they were.

    Parameters
    ----------
    learner : Learner
        Its attributes are replaced and not written into.
    held : list of Tensor
        What may be written into, such as weights.
    """
    before, known = [t.detach().clone() for t in held], dict(learner.__dict__)
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, was in zip(held, before, strict=True):
                tensor.copy_(was)
        learner.__dict__.clear()
        learner.__dict__.update(known)
        raise


LossName: TypeAlias = Literal["cross_entropy", "squared"]
LOSSES = ("cross_entropy", "squared")


def loss_of_rows(name: LossName, outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of each row.

    Parameters
    ----------
    name : {"cross_entropy", "squared"}
        Which.
    outputs : Tensor of shape (n, c), or (n,) for the squared loss
        What the module says.
    y : Tensor of shape (n,) of classes, or of the shape of outputs
        The answers.

    Returns
    -------
    loss : Tensor of shape (n,)

    Examples
    --------
    >>> import torch
    >>> y = torch.tensor([[1.0, 0.0]])
    >>> loss_of_rows("squared", torch.zeros(1, 2), y).item()
    0.5
    """
    if name == "cross_entropy":
        return functional.cross_entropy(outputs, y, reduction="none")
    return 0.5 * (outputs - y).square().reshape(len(outputs), -1).sum(dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step that was worked out and is not yet taken.

    Parameters
    ----------
    weights : list of Tensor
        As they will be, in the order of the parameters that learn.
    velocity : list of Tensor
        v of (1); empty without momentum.
    buffers : list of Tensor
        Of the module, as the forward pass leaves them.
    slopes : list of Tensor
        ∇L, without momentum.
    """

    weights: list[Tensor]
    velocity: list[Tensor]
    buffers: list[Tensor]
    slopes: list[Tensor]


class Learner:
    """A module that learns batches, each once, by (1).

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place; parameters that require no gradient stay as they are.
    loss : {"cross_entropy", "squared"}
        What is lowered.
    step_size : float
        η > 0.
    momentum : float
        μ in [0, 1].

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.
    """

    def __init__(
        self, module: torch.nn.Module, *, loss: LossName, step_size: float, momentum: float = 0.0
    ) -> None:
        self._where = f"baselines.{type(self).__name__}"
        if loss not in LOSSES:
            raise ParameterError(
                f"{self._where}: `loss` must be one of {', '.join(LOSSES)}, got {loss!r}. "
                "Choose one of them."
            )
        self.module = module
        self.loss = loss
        self.step_size = validation.in_range(step_size, "step_size", self._where, above=0.0)
        self.momentum = validation.in_range(momentum, "momentum", self._where, low=0.0, high=1.0)
        self._learning = learning(module, self._where)
        self._columns: Any = None
        self._whole: bool | None = None  # whether the module accepts integers
        self.velocity_: list[Tensor] = []
        self.rows_seen_ = 0
        self.visits_ = 0
        self.rows_stored_ = 0
        self.max_rows_stored_ = 0

    # -- the verbs -------------------------------------------------------------------------------

    def learn(self, x: RowsLike, y: ArrayLike | Tensor) -> Self:
        """Learn a batch of rows by one step.

        Parameters
        ----------
        x : Tensor or array of shape (n, …), or tuple or dict of them
            Rows, as the module takes them: a tuple holds positional arguments of its forward, a
            dict keyword arguments. No rows are learned as nothing.
        y : Tensor or array of shape (n,), or of the shape of the module's answers
            Classes from 0 on for cross entropy; numbers for the squared loss.

        Raises
        ------
        ShapeError, TypeMismatchError, LabelError, NotFiniteError
            If the rows or answers do not fit.
        NumericalError
            If the loss or the step is not finite. The learner is then as it was.
        """
        with torch.inference_mode(mode=False):  # else there would be no derivative
            return self._looked_over(x, y)

    def _looked_over(self, x: RowsLike, y: ArrayLike | Tensor) -> Self:
        rows = self._rows(x, "learn")
        labels = _as_tensor(y, self._like, f"{self._where}.learn")
        if labels.ndim < 1 or len(labels) != len(rows):
            raise ShapeError(
                f"{self._where}.learn: `x` and `y` must have as many rows, got {len(rows)} and "
                f"{labels.shape[0] if labels.ndim else 'a single number'}. Give one answer a row."
            )
        if len(rows):
            first = not self.rows_seen_
            self._learn(plain(rows), labels)
            self._columns = rows.columns if first else self._columns
        return self

    def _rows(self, x: RowsLike, verb: str) -> Batch:
        """Rows; integers are converted to floats if the module refuses integers."""
        where = f"{self._where}.{verb}"
        rows = _as_batch(x, self._like, where, self._columns)
        if not len(rows) or not holds_indices(rows):
            return rows
        real = rows.real(self._like.dtype)
        for each, whole in ((rows, True), (real, False)):
            if self._whole is None:
                with suppress(Exception):
                    predicted(self.module, {}, each[:1], where)
                    self._whole = whole
        return real if self._whole is False else rows

    def predict(self, x: RowsLike, *, classes: Sequence[int] | None = None) -> ArrayOrTensor:
        """Say the class of each row, or its answers.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.
        classes : sequence of int, optional
            Those among which to choose, where the task is known; all, if not given.

        Returns
        -------
        said : Tensor, or ndarray where x holds no tensor
            Classes of shape (n,) for cross entropy, else the module's answers.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        LabelError, ParameterError
            If ``classes`` are none of the module's, or the loss knows none.
        """
        told = self._outputs(x, "predict")
        if classes is not None:
            some = _among(classes, told, self.loss, f"{self._where}.predict")
            told = some[told[:, some].argmax(dim=1)]
        elif self.loss == "cross_entropy":
            told = told.argmax(dim=1)
        return _of_kind(x, told)

    def outputs(self, x: RowsLike) -> ArrayOrTensor:
        """What the module answers, of which ``predict`` says the largest for cross entropy.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.

        Returns
        -------
        said : Tensor of shape (n, …), or ndarray where x holds no tensor

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not fit.
        """
        return _of_kind(x, self._outputs(x, "outputs"))

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        return predicted(self.module, {}, self._rows(x, verb), f"{self._where}.{verb}")

    def after_task(self) -> Self:
        """Be told that a task ended; most learners need not be."""
        return self

    @property
    def rows_repeated_(self) -> int:
        """How often a row was learned again: visits beyond the first; 0 in one pass."""
        return max(0, self.visits_ - self.rows_seen_)

    @property
    def nbytes(self) -> int:
        """Bytes kept from row to row beside the module's own weights."""
        return sum(each.numel() * each.element_size() for each in tensors(self._kept()))

    # -- what a baseline may change --------------------------------------------------------------

    def _kept(self) -> Sequence[Batch | Tensor]:
        """All tensors, and batches of tensors, stored beside the weights."""
        return self.velocity_

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        self._take(self._step(x, y), **self._visited(len(x)))

    def _visited(self, fresh: int, again: int = 0) -> dict[str, int]:
        """The counts after a visit to fresh rows, and to some again."""
        return {
            "rows_seen_": self.rows_seen_ + fresh,
            "visits_": self.visits_ + fresh + again,
        }

    def _answers(self, x: Batch | Tensor, y: Tensor) -> Tensor:
        """The answers as a tensor of one shape a row, to be kept; the loss checks them later."""
        tensor = _as_tensor(y, self._like, f"{self._where}.learn")
        if self.loss == "squared":
            tensor = tensor.to(self._like.dtype)
        elif bool((tensor.long() == tensor).all()):
            tensor = tensor.long()
        return tensor.reshape(len(x)) if tensor.numel() == len(x) else tensor

    def _targets(self, y: Tensor, outputs: Tensor) -> Tensor:
        """The answers as the objective takes them, or a refusal."""
        return answers(y, outputs, self.loss, self._like, f"{self._where}.learn")

    def _objective(self, x: Batch | Tensor, outputs: Tensor, y: Tensor) -> Tensor:
        """L of the batch."""
        del x  # for those that ask another network about the rows
        return loss_of_rows(self.loss, outputs, y).mean()

    def _changing(self) -> list[Tensor]:
        """All tensors that a step writes into."""
        return [*self._learning.values(), *self.module.buffers()]

    def _pulled(self, weights: list[Tensor]) -> list[Tensor]:
        """The weights after (1), as what else is wanted of them would have them."""
        return weights

    # -- one step --------------------------------------------------------------------------------

    @property
    def _like(self) -> torch.nn.Parameter:
        return next(iter(self._learning.values()))

    def _step(self, x: Batch | Tensor, y: Tensor) -> Step:
        """(1), beside the weights."""
        where, weights = f"{self._where}.learn", list(self._learning.values())
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.enable_grad():
            outputs = said(self.module, buffers, x, where)
            answers = self._targets(y, outputs)
            loss = self._objective(x, outputs, answers)
            found = slopes(loss, weights)
        with torch.no_grad():
            ways = found
            if self.velocity_:
                ways = [self.momentum * v + g for v, g in zip(self.velocity_, found, strict=True)]
            fresh = self._pulled(
                [w.sub(v, alpha=self.step_size) for w, v in zip(weights, ways, strict=True)]
            )
            self._refuse_nonfinite(loss, fresh, buffers, where)
        return Step(fresh, ways if self.momentum else [], list(buffers.values()), found)

    def _refuse_nonfinite(
        self, loss: Tensor, fresh: list[Tensor], buffers: dict[str, Tensor], where: str
    ) -> None:
        # what is not finite makes a sum so, which is quicker; a sum of large numbers may overflow
        every = (loss, *fresh, *buffers.values())
        if bool(torch.isfinite(torch.stack([t.sum().float() for t in every]).sum())):
            return
        # a buffer that was not finite before, such as a mask of -inf, may stay so
        was = dict(self.module.named_buffers())
        seen = [torch.isfinite(b) | ~torch.isfinite(was[name]) for name, b in buffers.items()]
        good = torch.stack([t.all() for t in (*map(torch.isfinite, (loss, *fresh)), *seen)])
        # the one look at the device: nothing that is not finite may reach the weights
        if bool(good.all()):
            return
        bad = [
            name
            for name, fine in zip([*self._learning, *buffers], good[1:].tolist(), strict=True)
            if not fine
        ]
        raise NumericalError(
            f"{where}: the loss and the step must be finite, got a loss of {float(loss):g} and no "
            f"finite step of {', '.join(bad) or 'no weight'}. Nothing was learned of these rows. "
            "Lower `step_size`, or scale the rows."
        )

    def _take(self, step: Step, **learned: object) -> None:
        """Copy a step into the module; what else was learned comes with it."""
        with torch.no_grad():
            torch._foreach_copy_(self._changing(), [*step.weights, *step.buffers])
        self.__dict__.update(velocity_=step.velocity, **learned)


def _of_kind(x: RowsLike, found: Tensor) -> ArrayOrTensor:
    """Predictions as a tensor if x holds tensors, else as an array."""
    return found.cpu().numpy() if next(tensors(x), None) is None else found


class Tasked(Learner):
    """A learner of tasks.

    Parameters
    ----------
    module, loss, step_size, momentum
        As of Learner.
    epochs : int
        Passes over the rows of a task.
    batch : int
        Rows a step where there are several passes.
    seed : int
        Draws the order of rows in each pass.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName,
        step_size: float,
        momentum: float,
        epochs: int,
        batch: int,
        seed: int,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.epochs = validation.whole(epochs, "epochs", self._where, low=1)
        self.batch = validation.whole(batch, "batch", self._where, low=1)
        self.seed = validation.whole(seed, "seed", self._where, low=0)
        self.task_batches_: list[tuple[Batch | Tensor, Tensor]] = []
        self.rows_of_task_ = 0
        self.tasks_ = 0

    def after_task(self) -> Self:
        """End a task: learn the rows that were held, if any, and let them go.

        A task of no rows is none.

        Raises
        ------
        NumericalError
            If a step is not finite. The learner is then as it was.
        """
        if self.rows_of_task_:
            with torch.inference_mode(mode=False), all_or_nothing(self, self._changing()):
                rows = None
                if self.task_batches_:
                    rows = tuple(joined(parts) for parts in zip(*self.task_batches_, strict=True))
                    self._learn_held(*rows)
                self._end(rows)
                kept = self.rows_stored_ - sum(len(x) for x, _ in self.task_batches_)
                self.__dict__.update(
                    task_batches_=[], rows_stored_=kept, rows_of_task_=0, tasks_=self.tasks_ + 1
                )
        return self

    # -- what a baseline may change --------------------------------------------------------------

    def _learn_batch(self, x: Batch | Tensor, y: Tensor, **counts: int) -> None:
        """Learn a batch by a step, and take the counts with it."""
        self._take(self._step(x, y), **counts)

    def _end(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        """What is to be remembered of a task, whose rows are there if they were held."""

    def _learn_held(self, x: Batch | Tensor, y: Tensor) -> None:
        """Go over the rows of a task."""
        self._go_over(x, y)

    # -- passes ----------------------------------------------------------------------------------

    def _go_over(self, x: Batch | Tensor, y: Tensor) -> None:
        rng = np.random.default_rng([self.seed, self.tasks_])
        for _ in range(self.epochs):
            order = torch.from_numpy(rng.permutation(len(x))).to(self._like.device)
            for rows in order.split(self.batch):
                self._learn_batch(x[rows], y[rows])
        self.visits_ = self.visits_ + self.epochs * len(x)

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        counts = {"rows_of_task_": self.rows_of_task_ + len(x)}
        if self._holds:
            self._hold(x, y)
            self.__dict__.update(counts, rows_seen_=self.rows_seen_ + len(x))
        else:
            self._learn_batch(x, y, **counts, **self._visited(len(x)))

    @property
    def _holds(self) -> bool:
        return self.epochs > 1

    def _hold(self, x: Batch | Tensor, y: Tensor) -> None:
        """Keep rows till the task ends; those that do not fit are refused now."""
        if self.task_batches_ and self.task_batches_[0][0].shape[1:] != x.shape[1:]:
            raise ShapeError(
                f"{self._where}.learn: `x` must be of shape {('n', *self.task_batches_[0][0].shape[1:])}, "
                f"as the rows before, got {tuple(x.shape)}. Give rows of one shape."
            )
        first = predicted(self.module, {}, x[:1], f"{self._where}.learn")
        answers = self._targets(y, first.expand(len(x), *first.shape[1:]))
        kept = self.rows_stored_ + len(x)
        self.__dict__.update(
            task_batches_=[*self.task_batches_, (x.clone(), answers.clone())],
            rows_stored_=kept,
            max_rows_stored_=max(kept, self.max_rows_stored_),
        )

    def _kept(self) -> list[Batch | Tensor]:
        return [*self.velocity_, *(part for pair in self.task_batches_ for part in pair)]
