"""Base classes of the baselines: input checks, losses, one step of SGD, and learners with tasks.

The step on a batch with mean loss L, velocity v, step size η and momentum μ [1]:

    v ← μ v + ∇L(w),   w ← w − η v                                                           (1)

is computed on copies and copied into the module only if it is finite; on errors the learner is
unchanged. The module learns in its current mode: BatchNorm in training mode uses statistics of the
batch, or its running statistics for a batch of one row. Predictions are made in eval mode, and the
mode is restored.

Rows become tensors on the module's device and in its precision. NumPy arrays are moved to the
device; a tensor on another device raises an error, since moving it would be a hidden cost per step.

The loss of a batch is the mean over its rows of

    cross_entropy   −log softmax(f(x; w))_y
    squared         ½ ‖y − f(x; w)‖²

the negative log-likelihood of a class, and of targets with noise of variance 1.

Learners with tasks are notified when a task ends. With ``epochs=1`` every batch is one step and is
then discarded. With more, as in the papers, rows of the current task are stored until
``after_task``, which makes ``epochs`` passes over them in batches, each in a new order. Every visit
is counted.

[1] B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the
    form of I. Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013, with η outside of v.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from onepass import validation
from onepass.errors import (
    LabelError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    ShapeError,
    TypeMismatchError,
    public,
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
from onepass.nn.loaders import batches
from onepass.types import ArrayLike, ArrayOrTensor


def trainable_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that require a gradient, by name; shared ones once.

    Raises
    ------
    TypeMismatchError
        If ``module`` is not a torch.nn.Module.
    ParameterError
        If no parameter requires a gradient, parameters are on several devices, or the module
        rescales its own weights (``max_norm``).
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeMismatchError(
            f"`module` must be a torch.nn.Module, got {type(module).__name__}. Wrap it in a module."
        )
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    devices = sorted({str(p.device) for p in module.parameters()})
    if not found or len(devices) > 1:
        received = (
            f"parameters on {', '.join(devices)}" if found else "none that requires a gradient"
        )
        raise ParameterError(
            f"`module` must have parameters to learn, on one device, got {received}. "
            "Call module.requires_grad_(True), or module.to(device)."
        )
    refuse_max_norm(module)
    return found


def _as_batch(x: RowsLike, like: Tensor, columns: Mapping[str, list[str]] | None = None) -> Batch:
    """Convert rows for the module, as in op.nn; a list is one array of rows."""
    if isinstance(x, list):
        x = numbers(x, "x").to(like.device)
    found = batch(x, like.dtype, like.device, columns)
    if any(each.is_complex() for each in found.tensors):
        raise TypeMismatchError(
            "`x` must be real, got complex numbers. Pass real and imaginary parts as "
            "separate columns."
        )
    return found


def unwrap(found: Batch) -> Batch | Tensor:
    """Return the tensor of a batch with a single tensor; otherwise the batch."""
    single = len(found.args) == 1 and not found.kwargs and isinstance(found.args[0], torch.Tensor)
    return found.args[0] if single else found


def check_targets(y: ArrayLike | Tensor, outputs: Tensor, loss: str, like: Tensor) -> Tensor:
    """Check targets and convert them for the loss: classes (n,), or the shape of the outputs.

    Parameters
    ----------
    y : Tensor or array-like
        Classes >= 0 of shape (n,) for cross entropy; numbers for the squared loss.
    outputs : Tensor of shape (n, …)
        Outputs of the module.
    loss : {"cross_entropy", "squared"}
        Loss.
    like : Tensor
        A parameter of the module.

    Raises
    ------
    ShapeError
        If there is not one target per row and output.
    LabelError
        If a class is not a whole number from 0 to c − 1.
    TypeMismatchError
        If targets are not numbers, or on another device.
    NotFiniteError
        If a target is nan or infinite.
    """
    tensor = _as_tensor(y, like)
    if loss == "squared":
        if tensor.numel() != outputs.numel() or len(tensor) != len(outputs):
            raise ShapeError(
                f"`y` must be of shape {tuple(outputs.shape)}, as the module's outputs, got "
                f"{tuple(tensor.shape)}. Pass one number for each output of each row."
            )
        return tensor.to(like.dtype).reshape(outputs.shape)
    if outputs.ndim != 2 or tensor.shape not in {outputs.shape[:1], (len(outputs), 1)}:
        raise ShapeError(
            "for cross entropy the module must return shape (n, c) and `y` must be of shape "
            f"({len(outputs)},), got {tuple(outputs.shape)} and {tuple(tensor.shape)}. Pass one "
            "class per row, and use a module with one output per class."
        )
    labels = tensor.reshape(-1).long()
    # one synchronisation: an invalid class would abort the whole CUDA context
    bad = (labels < 0) | (labels >= outputs.shape[1]) | (labels != tensor.reshape(-1))
    if bool(bad.any()):
        invalid = np.unique(tensor.reshape(-1)[bad].cpu().numpy()).tolist()
        raise LabelError(
            f"`y` must contain classes 0 … {outputs.shape[1] - 1}, one for each output, got "
            f"{invalid}. Number the classes from 0, or use a module with more outputs."
        )
    return labels


def _among(classes: Sequence[int], outputs: Tensor, loss: str) -> Tensor:
    """Check ``classes`` and return them as a tensor of output indices."""
    if loss != "cross_entropy":
        raise ParameterError(
            f"`classes` must be omitted for the loss {loss!r}, got {classes!r}. Remove "
            "it, or use cross entropy."
        )
    some = np.asarray(classes)
    right = some.ndim == 1 and some.size and some.dtype.kind in "iu"
    if not right or some.min() < 0 or some.max() >= outputs.shape[1]:
        raise LabelError(
            f"`classes` must be some of 0 … {outputs.shape[1] - 1}, got {classes!r}. "
            "Pass the classes of the task."
        )
    return torch.from_numpy(some.astype(np.int64)).to(outputs.device)


def _as_tensor(y: ArrayLike | Tensor, like: Tensor) -> Tensor:
    """Convert targets to a tensor on the device of the module, finite in its precision."""
    tensor = numbers(y, "y").to(like.device)
    tensor = tensor.clone() if tensor.is_inference() else tensor
    good = torch.isfinite(tensor.to(like.dtype))
    if not bool(good.all()):  # one synchronisation per block, before the weights change
        row = int((~good.reshape(len(tensor), -1).all(dim=1)).nonzero()[0])
        raise NotFiniteError(
            "`y` must be finite",
            got="nan or infinity",
            remedy="Drop the row, or impute it before learning.",
            row=row,
        )
    return tensor  # not rounded: half precision would change large class numbers


def forward(module: torch.nn.Module, tensors: Mapping[str, Tensor], rows: Batch) -> Any:
    """Return the outputs of a module with the named parameters and buffers replaced."""
    known = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = {id(known[name]): each for name, each in tensors.items()}
    with substituted(list(module.modules()), given):
        return module(*rows.args, **rows.kwargs)


def module_outputs(
    module: torch.nn.Module, buffers: dict[str, Tensor], x: Batch | Tensor, where: str
) -> Tensor:
    """Return the outputs (n, …) of a module with the given buffers.

    Batch normalisation uses its running statistics for a batch of one row.
    """
    rows = x if isinstance(x, Batch) else Batch((x,), {}, len(x), len(x))
    with module_errors(rows, lambda: None):
        try:
            outputs = forward(module, buffers, rows)
        except ValueError:
            norms = [each for each in module.modules() if isinstance(each, NORMS) and each.training]
            if len(x) > 1 or not norms or any(each.running_mean is None for each in norms):
                raise
            fresh = {name: b.clone() for name, b in module.named_buffers() if name in buffers}
            buffers.update(fresh)  # earlier layers have modified the given buffers
            with evaluation_mode(norms):
                outputs = forward(module, buffers, rows)
        outputs = chosen(outputs)
    if outputs.ndim and len(outputs) == len(x):
        return outputs
    raise ShapeError(
        f"`module` must return a tensor with one row for each of the {len(x)} rows, got "
        f"{tuple(outputs.shape)}. Wrap it in a module that returns such a tensor.",
        where,
    )


def eval_outputs(
    module: torch.nn.Module, buffers: dict[str, Tensor], x: Batch | Tensor, where: str
) -> Tensor:
    """Return the outputs of a module in evaluation mode, without a gradient."""
    with evaluation_mode(module.modules()), torch.no_grad():
        return module_outputs(module, buffers, x, where).detach()  # scripted modules ignore no_grad


def gradients(loss: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return ∇L, with zeros for weights that the loss does not depend on."""
    if not loss.requires_grad:  # the outputs do not depend on any weight
        return [torch.zeros_like(w) for w in weights]
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@contextmanager
def all_or_nothing(learner: Learner, tensors: list[Tensor]) -> Iterator[None]:
    """Restore the learner and its module if an exception is raised in the context.

    Parameters
    ----------
    learner : Learner
        Learner whose attributes are reassigned, not modified in place.
    tensors : list of Tensor
        Tensors that may be modified in place, such as weights.
    """
    before, attributes = [t.detach().clone() for t in tensors], dict(learner.__dict__)
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, was in zip(tensors, before, strict=True):
                tensor.copy_(was)
        learner.__dict__.clear()
        learner.__dict__.update(attributes)
        raise


LossName: TypeAlias = Literal["cross_entropy", "squared"]
LOSSES = ("cross_entropy", "squared")

_STEP_SIZE = 0.1  # for cross entropy, which has no unit


def loss_of_rows(name: LossName, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each row.

    Parameters
    ----------
    name : {"cross_entropy", "squared"}
        Loss.
    outputs : Tensor of shape (n, c), or (n,) for the squared loss
        Outputs of the module.
    y : Tensor of shape (n,) of classes, or of the shape of outputs
        Targets.

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
    """A computed step that is not yet applied.

    Parameters
    ----------
    weights : list of Tensor
        New values of the trainable parameters, in their order.
    velocity : list of Tensor
        v of (1); empty without momentum.
    buffers : list of Tensor
        Buffers of the module after the forward pass.
    gradients : list of Tensor
        ∇L, without momentum.
    """

    weights: list[Tensor]
    velocity: list[Tensor]
    buffers: list[Tensor]
    gradients: list[Tensor]


class Learner:
    """Base class of learners that train a module with one step (1) per batch.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}
        Loss.
    step_size : float
        η > 0.
    momentum : float
        μ in [0, 1].

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
        momentum: float = 0.0,
    ) -> None:
        self._where = f"baselines.{type(self).__name__}"
        if loss not in LOSSES:
            raise ParameterError(
                f"`loss` must be one of {', '.join(LOSSES)}, got {loss!r}. Pass one of these.",
                self._where,
            )
        self.module = module
        self.loss = loss
        if step_size is None and loss == "squared":
            raise ParameterError(
                "`step_size` must be given with loss='squared', since it depends on "
                "the units of features and targets, got None. Scale both to mean 0 and "
                "variance 1, and set step_size=0.01.",
                self._where,
            )
        step_size = _STEP_SIZE if step_size is None else step_size
        self.step_size = validation.in_range(step_size, "step_size", above=0.0)
        self.momentum = validation.in_range(momentum, "momentum", low=0.0, high=1.0)
        self._trainable = trainable_parameters(module)
        self._columns: Any = None
        self._whole: bool | None = None  # whether the module accepts integers; None if unknown
        self.velocity_: list[Tensor] = []
        self.rows_seen_ = 0
        self.visits_ = 0
        self.rows_stored_ = 0
        self.max_rows_stored_ = 0

    # -- public methods --------------------------------------------------------------------------

    @public
    def learn(
        self, x: RowsLike | DataLoader[Any] | Dataset[Any], y: ArrayLike | Tensor | None = None
    ) -> Self:
        """Learn a batch of rows with one step, or each batch of a loader.

        Parameters
        ----------
        x : Tensor or array of shape (n, …), or tuple or dict of them
            Inputs of the module: a tuple contains positional arguments of forward, a dict keyword
            arguments. An empty batch has no effect. Or a DataLoader or Dataset of pairs (x, y).
        y : Tensor or array of shape (n,), or of the shape of the module's outputs
            Classes >= 0 for cross entropy; numbers for the squared loss. Omit it for a loader.

        Raises
        ------
        ShapeError, TypeMismatchError, LabelError, NotFiniteError
            If the rows or targets do not match the module.
        NumericalError
            If the loss or the step is not finite. The learner is then unchanged.
        """
        with torch.inference_mode(mode=False):  # otherwise there would be no gradient
            for rows, labels, _ in batches(x, y, None, self._like.device):
                self._learn_checked(rows, labels)
        return self

    def _learn_checked(self, x: RowsLike, y: ArrayLike | Tensor) -> None:
        rows = self._rows(x, "learn")
        labels = _as_tensor(y, self._like)
        if labels.ndim < 1 or len(labels) != len(rows):
            raise ShapeError(
                f"`x` and `y` must have the same number of rows, got {len(rows)} and "
                f"{labels.shape[0] if labels.ndim else 'a single number'}. Pass one "
                "target per row.",
                f"{self._where}.learn",
            )
        if len(rows):
            first = not self.rows_seen_
            self._learn(unwrap(rows), labels)
            self._columns = rows.columns if first else self._columns

    def _rows(self, x: RowsLike, verb: str) -> Batch:
        """Convert rows; integers become floats if the module does not accept integers."""
        where = f"{self._where}.{verb}"
        rows = _as_batch(x, self._like, self._columns)
        if not len(rows) or not holds_indices(rows):
            return rows
        real = rows.real(self._like.dtype)
        for each, whole in ((rows, True), (real, False)):
            if self._whole is None:
                with suppress(Exception):
                    eval_outputs(self.module, {}, each[:1], where)
                    self._whole = whole
        return real if self._whole is False else rows

    @public
    def predict(self, x: RowsLike, *, classes: Sequence[int] | None = None) -> ArrayOrTensor:
        """Predict the class of each row, or its targets.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.
        classes : sequence of int, optional
            Classes to choose from, if the task is known; by default all.

        Returns
        -------
        predictions : Tensor, or ndarray if x contains no tensor
            Classes of shape (n,) for cross entropy, otherwise the module's outputs.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not match the module.
        LabelError, ParameterError
            If ``classes`` are not classes of the module, or the loss has no classes.
        """
        outputs = self._outputs(x, "predict")
        if classes is not None:
            some = _among(classes, outputs, self.loss)
            outputs = some[outputs[:, some].argmax(dim=1)]
        elif self.loss == "cross_entropy":
            outputs = outputs.argmax(dim=1)
        return _as_input_type(x, outputs)

    def outputs(self, x: RowsLike) -> ArrayOrTensor:
        """Return the outputs of the module; for cross entropy ``predict`` takes their argmax.

        Parameters
        ----------
        x : Tensor or array of shape (n, …)
            Rows.

        Returns
        -------
        outputs : Tensor of shape (n, …), or ndarray if x contains no tensor

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If the rows do not match the module.
        """
        return _as_input_type(x, self._outputs(x, "outputs"))

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        return eval_outputs(self.module, {}, self._rows(x, verb), f"{self._where}.{verb}")

    def after_task(self) -> Self:
        """Notify the learner that a task has ended. Does nothing by default."""
        return self

    @property
    def rows_repeated_(self) -> int:
        """Number of visits to rows beyond the first; 0 in one pass."""
        return max(0, self.visits_ - self.rows_seen_)

    @property
    def nbytes(self) -> int:
        """Size of the state besides the module's weights, in bytes."""
        return sum(each.numel() * each.element_size() for each in tensors(self._stored()))

    # -- hooks of baselines ----------------------------------------------------------------------

    def _stored(self) -> Sequence[Batch | Tensor]:
        """Return all tensors and batches stored besides the weights."""
        return self.velocity_

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        self._apply(self._step(x, y), **self._visit_counts(len(x)))

    def _visit_counts(self, fresh: int, again: int = 0) -> dict[str, int]:
        """Return the counters after a visit to new rows and to repeated rows."""
        return {
            "rows_seen_": self.rows_seen_ + fresh,
            "visits_": self.visits_ + fresh + again,
        }

    def _stored_targets(self, x: Batch | Tensor, y: Tensor) -> Tensor:
        """Convert targets to a tensor for storage; the loss checks them later."""
        tensor = _as_tensor(y, self._like)
        if self.loss == "squared":
            tensor = tensor.to(self._like.dtype)
        elif bool((tensor.long() == tensor).all()):
            tensor = tensor.long()
        return tensor.reshape(len(x)) if tensor.numel() == len(x) else tensor

    def _targets(self, y: Tensor, outputs: Tensor) -> Tensor:
        """Check targets and convert them for the objective."""
        return check_targets(y, outputs, self.loss, self._like)

    def _objective(self, x: Batch | Tensor, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss L of the batch."""
        del x  # for baselines that evaluate another network on the rows
        return loss_of_rows(self.loss, outputs, y).mean()

    def _mutable_tensors(self) -> list[Tensor]:
        """Return all tensors that a step modifies."""
        return [*self._trainable.values(), *self.module.buffers()]

    def _penalized(self, weights: list[Tensor]) -> list[Tensor]:
        """Return the weights of (1) after a penalty; unchanged by default."""
        return weights

    # -- one step --------------------------------------------------------------------------------

    @property
    def _like(self) -> torch.nn.Parameter:
        return next(iter(self._trainable.values()))

    def _step(self, x: Batch | Tensor, y: Tensor) -> Step:
        """Compute (1) without modifying the module."""
        where, weights = f"{self._where}.learn", list(self._trainable.values())
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.enable_grad():
            outputs = module_outputs(self.module, buffers, x, where)
            targets = self._targets(y, outputs)
            loss = self._objective(x, outputs, targets)
            found = gradients(loss, weights)
        with torch.no_grad():
            ways = found
            if self.velocity_:
                ways = [self.momentum * v + g for v, g in zip(self.velocity_, found, strict=True)]
            fresh = self._penalized(
                [w.sub(v, alpha=self.step_size) for w, v in zip(weights, ways, strict=True)]
            )
            self._refuse_nonfinite(loss, fresh, buffers)
        return Step(fresh, ways if self.momentum else [], list(buffers.values()), found)

    def _refuse_nonfinite(
        self, loss: Tensor, fresh: list[Tensor], buffers: dict[str, Tensor]
    ) -> None:
        # fast check: sums of non-finite values are not finite, but large finite sums may overflow
        every = (loss, *fresh, *buffers.values())
        if bool(torch.isfinite(torch.stack([t.sum().float() for t in every]).sum())):
            return
        # a buffer that was not finite before, such as a mask of -inf, may stay so
        was = dict(self.module.named_buffers())
        seen = [torch.isfinite(b) | ~torch.isfinite(was[name]) for name, b in buffers.items()]
        good = torch.stack([t.all() for t in (*map(torch.isfinite, (loss, *fresh)), *seen)])
        # one synchronisation with the device, before the weights change
        if bool(good.all()):
            return
        bad = [
            name
            for name, fine in zip([*self._trainable, *buffers], good[1:].tolist(), strict=True)
            if not fine
        ]
        raise NumericalError(
            f"the loss and the step must be finite, got a loss of {float(loss):g} and "
            f"no finite step of {', '.join(bad) or 'no weight'}. These rows were not "
            "learned. Lower `step_size`, or scale the rows."
        )

    def _apply(self, step: Step, **learned: object) -> None:
        """Copy a step into the module and update the given attributes."""
        with torch.no_grad():
            torch._foreach_copy_(self._mutable_tensors(), [*step.weights, *step.buffers])
        self.__dict__.update(velocity_=step.velocity, **learned)


def _as_input_type(x: RowsLike, found: Tensor) -> ArrayOrTensor:
    """Convert predictions to a tensor if x contains tensors, else to an array."""
    return found if tensors(x) else found.cpu().numpy()


class Tasked(Learner):
    """Base class of learners that use task boundaries.

    Parameters
    ----------
    module, loss, step_size, momentum
        As for :class:`Learner`.
    epochs : int
        Passes over the rows of a task.
    batch : int
        Rows per step if there are several passes.
    seed : int
        Seed of the order of rows in each pass.
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName,
        step_size: float | None,
        momentum: float,
        epochs: int,
        batch: int,
        seed: int,
    ) -> None:
        super().__init__(module, loss=loss, step_size=step_size, momentum=momentum)
        self.epochs = validation.whole(epochs, "epochs", low=1)
        self.batch = validation.whole(batch, "batch", low=1)
        self.seed = validation.whole(seed, "seed", low=0)
        self.task_batches_: list[tuple[Batch | Tensor, Tensor]] = []
        self.rows_of_task_ = 0
        self.tasks_ = 0

    def after_task(self) -> Self:
        """End a task: learn the stored rows, if any, and discard them.

        A task without rows is not counted.

        Raises
        ------
        NumericalError
            If a step is not finite. The learner is then unchanged.
        """
        if self.rows_of_task_:
            with torch.inference_mode(mode=False), all_or_nothing(self, self._mutable_tensors()):
                rows = None
                if self.task_batches_:
                    rows = tuple(joined(parts) for parts in zip(*self.task_batches_, strict=True))
                    self._learn_stored(*rows)
                self._end_task(rows)
                stored = self.rows_stored_ - sum(len(x) for x, _ in self.task_batches_)
                self.__dict__.update(
                    task_batches_=[], rows_stored_=stored, rows_of_task_=0, tasks_=self.tasks_ + 1
                )
        return self

    # -- hooks of baselines ----------------------------------------------------------------------

    def _learn_batch(self, x: Batch | Tensor, y: Tensor, **counts: int) -> None:
        """Learn a batch with one step and update the counters."""
        self._apply(self._step(x, y), **counts)

    def _end_task(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        """Update the state at the end of a task; ``rows`` are its stored rows, if any."""

    def _learn_stored(self, x: Batch | Tensor, y: Tensor) -> None:
        """Learn the stored rows of a task."""
        self._run_epochs(x, y)

    # -- passes ----------------------------------------------------------------------------------

    def _run_epochs(self, x: Batch | Tensor, y: Tensor) -> None:
        rng = np.random.default_rng([self.seed, self.tasks_])
        for _ in range(self.epochs):
            order = torch.from_numpy(rng.permutation(len(x))).to(self._like.device)
            for rows in order.split(self.batch):
                self._learn_batch(x[rows], y[rows])
        self.visits_ = self.visits_ + self.epochs * len(x)

    def _learn(self, x: Batch | Tensor, y: Tensor) -> None:
        counts = {"rows_of_task_": self.rows_of_task_ + len(x)}
        if self._stores_rows:
            self._store(x, y)
            self.__dict__.update(counts, rows_seen_=self.rows_seen_ + len(x))
        else:
            self._learn_batch(x, y, **counts, **self._visit_counts(len(x)))

    @property
    def _stores_rows(self) -> bool:
        return self.epochs > 1

    def _store(self, x: Batch | Tensor, y: Tensor) -> None:
        """Store rows until the task ends; raise an error now if they do not match the module."""
        if self.task_batches_ and self.task_batches_[0][0].shape[1:] != x.shape[1:]:
            shape = ("n", *self.task_batches_[0][0].shape[1:])
            raise ShapeError(
                f"`x` must be of shape {shape}, as earlier rows, got {tuple(x.shape)}. "
                "Pass rows of one shape.",
                f"{self._where}.learn",
            )
        first = eval_outputs(self.module, {}, x[:1], f"{self._where}.learn")
        targets = self._targets(y, first.expand(len(x), *first.shape[1:]))
        stored = self.rows_stored_ + len(x)
        self.__dict__.update(
            task_batches_=[*self.task_batches_, (x.clone(), targets.clone())],
            rows_stored_=stored,
            max_rows_stored_=max(stored, self.max_rows_stored_),
        )

    def _stored(self) -> list[Batch | Tensor]:
        return [*self.velocity_, *(part for pair in self.task_batches_ for part in pair)]
