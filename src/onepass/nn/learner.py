"""Base class of the network learners: rows are learned one after the other, in place.

A step evaluates the outputs of a row and their Jacobian at the current weights, computes the errors
and gradients of the loss (:mod:`onepass.nn.losses`), and applies the update of the learner. Weights
and memory are updated in place, so each step is atomic: interrupts, and copies or pickles made in
other threads, wait for its end, and all rows are checked before the first step
(:mod:`onepass.nn.trial`). For a module in half precision, which cannot represent small steps, a
copy of w is stored in float32 and rounded into the module.

A row whose errors, gradients or step are not finite is not learned. Such rows are counted, and
reported in a warning after the call. On an accelerator they are masked and counted without
synchronisation. Warnings are issued between steps, so that a warning raised as an error does not
interrupt a step.

With P the covariance of the weights, and g the gradient of an output,

    std = √(gᵀ P g)                                                                         (1)

is the uncertainty of the output of the linearised network due to the weights. It does not include
the noise of a target, which lies within √(std² + noise) of the prediction.
"""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from onepass import linalg, validation
from onepass.errors import (
    MemoryFullWarning,
    MergeError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
    TaskWarning,
    WorseThanTrivialWarning,
    public,
)
from onepass.estimators import available_if
from onepass.linalg import calibration
from onepass.linalg.interrupt import Interrupt
from onepass.nn.batch import Batch, RowsLike, numbers, refuse_width
from onepass.nn.example import describe
from onepass.nn.function import plain_mode
from onepass.nn.loaders import batches
from onepass.nn.losses import CLASSES, TOKENS, Loss, RowLoss, Watch, check
from onepass.nn.module import Network
from onepass.nn.saving import arguments_of, save
from onepass.nn.selection import find_nonfinite
from onepass.nn.trial import check_all_rows, locate_failure, prepare_rows
from onepass.types import ArrayLike, ArrayOrTensor

_VERBS = {
    "learn_one": "use learn(X[k:k+1], y[k:k+1])",
    "predict_one": "use predict(X[k:k+1])[0]",
    "partial_fit": "use learn(X, y), which continues from the current weights",
    "fit": "use learn(X, y) of a new learner with a new module",
    "predict_proba": (
        "only classifiers have probabilities; for regression, predict(X, return_std=True) returns "
        "the uncertainty"
    ),
}
_CHECKED_ROWS = 16  # rows on which a callable loss is checked
_AT_ONCE = 1 << 22  # max entries of a Jacobian computed at once for standard deviations


def full_memory_message(memory: Any, p: int, remedy: str) -> str | None:
    """Return the message for a full memory; None if the memory is not full.

    Parameters
    ----------
    memory : state of a memory, or None
    p : int
        Number of weights.
    remedy : str
        The last sentence of the message.
    """
    if memory is None or memory.rank < p:
        return None
    return (
        f"the memory should contain fewer directions than the module has weights, got all {p}: "
        f"further rows cannot be learned. {remedy}"
    )


class Learner(ABC):
    """Base class of learners that train a torch module on a stream, each row once.

    Parameters
    ----------
    module : torch.nn.Module
        Updated in place. See :class:`~onepass.nn.module.Network` for the requirements.
    loss : {"squared", "one_hot", "cross_entropy"} or callable
        ``"squared"`` for regression; ``"one_hot"`` or ``"cross_entropy"`` for classes 0 … c − 1. Or
        a loss of PyTorch, such as ``torch.nn.HuberLoss()``; or a function of the outputs (1, c) of
        one row and its target, (1, c) numbers or a class (1,), which returns a number. It must be
        convex and twice differentiable in the outputs, and requires ``noise`` > 0. The loss of a
        row is not divided by class weights. Save such a learner's module instead of the learner.
    noise : float
        Noise variance R >= 0.
    learns : str or sequence of str
        Parameters to train.
    block_update : bool
        Whether to learn the rows of one call as one augmented row, linearised at the same weights.
        This is a different algorithm from row-by-row learning, suited to small steps.
    """

    _state_attributes: ClassVar[tuple[str, ...]] = (
        "rows_seen_", "_outputs", "_refused", "_wide", "_shape", "network.columns", "calibration_",
        "_example",
    )  # fmt: skip
    """Attributes (dotted paths allowed) with learned state other than the weights."""
    merging: ClassVar[str] = "refused"
    _fits: ClassVar[bool] = True
    """Whether a row is fitted in one step, exactly if there is no noise."""
    _saves_itself: ClassVar[bool] = True
    """Whether ``op.save`` calls the learner's own ``save``."""
    _refusal: ClassVar[tuple[str, str]] = ("with nan or infinity", "noise > 0")
    """Description of rejected rows, and the remedy, for the warning."""
    _advice: ClassVar[str] = (
        "Scale features and targets to mean 0 and variance 1, set noise > 0, such as 1.0, or a "
        "smaller `prior`, such as 0.01."
    )
    """Remedy if the predictions are worse than a trivial baseline."""
    _merge_requirement: ClassVar[tuple[str, str]] = (
        "the memory must be mergeable, which only that of op.nn.ORFit is",
        "Learn all rows with one learner, or use op.nn.ORFit.",
    )
    """Unmet requirement of a merge, and the remedy, for the error."""

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: Loss = "squared",
        noise: float = 0.0,
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
    ) -> None:
        self._where = type(self).__name__
        self.module = module
        self.loss = loss
        self.noise = validation.in_range(noise, "noise", low=0.0)
        check(loss, self.noise if self._fits else 1.0)
        self._row_loss = RowLoss(loss)
        self._watch = Watch()
        self.learns = learns
        self.block_update = bool(block_update)
        self.network = self._network_class(module)(module, learns)
        self.rows_seen_ = 0
        self.calibration_: Any = None  # (4 + 2 c,) as in onepass.linalg.calibration
        self._outputs: int | None = None
        self._shape: tuple[int, ...] | None = None  # of one learned target
        self._example: Any = None  # form of the learned rows
        self._refused: Any = 0
        self._masked: Any = 0  # rows rejected before the current step
        self._space: Tensor | None = None  # reused buffer for the Jacobian
        self._wide: Tensor | None = None  # w in float32, for modules in half precision
        self._full = False  # whether MemoryFullWarning was issued
        self._refuse_broken()

    # -- hooks -----------------------------------------------------------------------------------

    @property
    def _keeps_all(self) -> bool:
        """Whether the order of the rows has no effect."""
        return False

    def _network_class(self, module: object) -> type[Network]:
        """Return the class of the network of a module."""
        del module
        return Network

    @abstractmethod
    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        """Take the step for rows with errors e (n, c) in float64 and gradients J (n·c, p)."""

    def _full_message(self) -> str | None:
        """Return a message if no direction is free any more; None otherwise."""
        return None

    def _check_restored(self) -> None:
        """Check state read from a file; any exception means that the file is damaged."""
        counts = (self.rows_seen_, self._refused, (self._outputs or 1) - 1)
        if not all(type(each) is int and each >= 0 for each in counts):
            raise ValueError("counts must be non-negative integers")
        if self.calibration_ is not None:
            self.calibration_.reshape(4 + 2 * (self._outputs or 0))
        if self._shape is not None:
            self._row_loss.predictions(
                self.network.like.new_zeros(1, self._outputs or 1), self._shape
            )
        if self._wide is not None:
            self._wide.reshape(self.network.p)  # sharded modules have none
        for names in (self.network.columns or {}).values():
            "".join(names)  # raises TypeError unless they are text

    # -- learning and prediction -------------------------------------------------------------------

    @public
    def learn(
        self,
        x: RowsLike | DataLoader[Any] | Dataset[Any] | Iterator[Any],
        y: ArrayLike | Tensor | None = None,
        sample_weight: ArrayLike | Tensor | None = None,
    ) -> Self:
        """Learn rows, one after the other, or as one augmented row with ``block_update``.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them; or DataLoader, Dataset or iterator
            n rows, in the form that the module's ``forward`` accepts. The batches of a DataLoader
            or an iterator, and the items of a Dataset, are pairs (x, y), or dicts with the targets
            as ``labels``, ``label``, ``targets``, ``target`` or ``y``; further elements, such as
            the task labels of Avalanche, are ignored. They are learned in one pass, and tensors are
            moved to the module's device.
        y : Tensor or array of shape (n,), (n, c) or (n, …)
            Targets: c numbers for each row, or a class in 0 … c − 1 for each row, or for each token
            of a row. Predictions have the same shape. Omit it for batches.
        sample_weight : Tensor or array of shape (n,), optional
            Weights s >= 0: a row has the noise variance noise / s, and of OGD s times the loss.
            Rows of weight 0, and those that the loss ignores, are predicted but not learned.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError, LabelError, ParameterError
            If the rows or targets are invalid. Nothing is learned, even if only one value is nan;
            the message names its row.
        NumericalError
            If the weights that learn contain nan or infinity.
        ModuleError
            If the module's ``forward`` raises for a row. Nothing is learned, unless the failure
            depends on weights changed by earlier rows of the call; the message contains the number
            of rows learned.

        Warns
        -----
        RowsRefusedWarning
            If the error or gradient of a row is not finite. The row is skipped.
        WorseThanTrivialWarning
            Once, if after 300, 400, 500, … rows the errors of all predictions exceed those of the
            mean of the targets, or of the most frequent class.
        TaskWarning
            Once, if classes come one after the other, and the learner forgets the earlier ones.
        """
        for each in batches(x, y, sample_weight, self.network.device):
            for _ in self._steps(*each):
                pass
        return self

    @public
    def test_then_train(
        self,
        x: RowsLike | DataLoader[Any] | Dataset[Any] | Iterator[Any],
        y: ArrayLike | Tensor | None = None,
        sample_weight: ArrayLike | Tensor | None = None,
    ) -> Tensor:
        """Return prequential predictions: each row is predicted before it is learned.

        With ``block_update`` all rows of the call are predicted before the block is learned.

        Parameters
        ----------
        x, y, sample_weight
            As in ``learn``.

        Returns
        -------
        predictions : Tensor of the shape of y, of all batches
        """
        outputs = [
            found
            for each in batches(x, y, sample_weight, self.network.device)
            for found in self._steps(*each)
        ]
        if not outputs and y is None:  # no batches
            return self.network.like.new_zeros(0)
        return self._predictions(torch.cat(outputs)) if outputs else self.predict(x)

    @public
    def predict(self, x: RowsLike, *, return_std: bool = False) -> Any:
        """Predict numbers or classes, in the shape of the targets last learned.

        Before learning, predictions of the initial weights have shape (n, c), or (n,) if the module
        has one output; classes have shape (n,).

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows.
        return_std : bool, default=False
            Whether to also return the standard deviation of each output due to the uncertainty of
            the weights.

        Returns
        -------
        predictions : Tensor of shape (n,) or (n, …)
            Of the shape of the targets; (n, 1) if they had shape (n, 1).
        std : Tensor of the shape of the predictions
            Only if ``return_std``; see (1) of :mod:`onepass.nn.learner`.

        Raises
        ------
        ParameterError
            If ``return_std`` is True for classes, or for a learner without a covariance.
        NumericalError
            If outputs of a classifier are nan. For regression, nan is returned unchanged.
        """
        if return_std:
            with self.network.lock:
                outputs, std = self._deviations(x, self._variances())
            return self._predictions(outputs), self._predictions(std)
        outputs = self.network.outputs(self.network.prepare(x))
        if self._row_loss.has_classes:
            bad = outputs.isnan().any(dim=1)
            if bool(bad.any()):  # synchronises with an accelerator
                raise NumericalError(
                    "outputs must not be nan for classification",
                    got="nan",
                    remedy=(
                        "Check that row and the module's weights; `outputs` returns "
                        "the raw outputs."
                    ),
                    row=int(bad.nonzero()[0]),
                )
        return self._predictions(outputs)

    @available_if(lambda self: self._row_loss.has_classes)
    @public
    def predict_proba(self, x: RowsLike) -> Tensor:
        """Predict probabilities, in float64.

        Of classes 0 … c − 1, (n, c): the softmax of the outputs. Of a label 0 or 1, (n, 2), and of
        several independent labels, (n, c), as with ``torch.nn.BCEWithLogitsLoss``: the sigmoid. Of
        tokens, (n, tokens, classes). With ``loss="one_hot"``, the softmax of
        the outputs multiplied by a scale, plus an offset for each class, which minimise the log
        loss of the outputs before their rows were learned (:mod:`onepass.linalg.calibration`).

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows.
        """
        outputs = self.network.outputs(self.network.prepare(x))
        if self.loss == "one_hot" and self.calibration_ is not None:
            fitted = outputs.new_tensor(
                calibration.scale_and_offsets(self.calibration_), dtype=torch.float64
            )
            outputs = fitted[0] * outputs.double() + fitted[1:]
        return self._row_loss.probabilities(outputs, math.prod(self._shape or (1,)))

    @public
    def outputs(self, x: RowsLike) -> Tensor:
        """Return the module's outputs (n, c), without a graph, in evaluation mode."""
        return self.network.outputs(self.network.prepare(x))

    @public
    def merge(
        self, other: Learner, rows: tuple[RowsLike, ArrayLike | Tensor] | None = None
    ) -> Self:
        """Merge another learner of the same kind and the same initial weights into this one.

        Raises
        ------
        MergeError
            If this kind of learner cannot be merged, or the two are incompatible.
        """
        del other, rows
        requirement, remedy = self._merge_requirement
        raise MergeError(f"{requirement}, got {type(self).__name__}. {remedy}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save arguments, weights, buffers and memory to one safetensors file.

        ``op.nn.load(path, module)`` restores the learner, which then continues bit for bit. The
        module's code is not saved: pass a module of the same architecture to ``load``.

        Parameters
        ----------
        path : path-like
            An existing file is replaced atomically. For weights that are split over processes, a
            directory, in which each process writes one file; all of them must call this.

        Raises
        ------
        CheckpointError
            If weights or buffers contain nan, or the file cannot be written.
        """
        with self.network.lock:
            save(self, path)

    # -- attributes and measures -------------------------------------------------------------------

    @property
    def rows_refused_(self) -> int:
        """Number of rows not learned because their errors or gradients were not finite."""
        return int(self._refused)

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes, without the weights."""
        return 0

    @public
    def drift(self, x: RowsLike, predictions: ArrayLike | Tensor) -> float:
        """Measure the change of predictions: √(Σ (outputs now − outputs then)²) over all rows.

        Unlike ``forgetting_bound_``, which bounds the effect of directions that the memory
        discarded, this includes every cause of change.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            Rows that were learned earlier.
        predictions : Tensor or array of shape (n,) or (n, c)
            The result of ``outputs`` for each row just after it was learned.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If ``predictions`` is not of the shape of the outputs, or not finite.
        """
        current = self.network.outputs(self.network.prepare(x)).double()
        remedy = "Pass the result of `outputs` for these rows from just after they were learned."
        earlier = numbers(predictions, "predictions").to(current.device).double()
        if earlier.ndim < 1 or earlier.numel() != current.numel() or len(earlier) != len(current):
            raise ShapeError(
                f"`predictions` must contain {current.shape[1]} number(s) for each of "
                f"{len(current)} rows, got shape {tuple(earlier.shape)}. {remedy}"
            )
        if not bool(earlier.isfinite().all()):
            raise NotFiniteError(
                "`predictions` must be finite, got nan or infinity. Drop these rows."
            )
        return float(torch.linalg.vector_norm(current - earlier.reshape(current.shape)))

    def __repr__(self) -> str:
        """Return one line with the module, the non-default arguments and the size."""
        given = [type(self.module).__name__]
        for name, default in arguments_of(type(self)).items():
            if (value := getattr(self, name)) != default:
                given.append(f"{name}={value!r}")
        name, p = type(self).__name__, self.network.p
        return f"<{name}({', '.join(given)}), p={p}, rows_seen_={self.rows_seen_}>"

    if not TYPE_CHECKING:  # a __getattr__ would make every name valid for type checkers

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the replacement for a method of other learners."""
            if name in _VERBS:
                raise AttributeError(
                    f"{self._where}: the method must be one of a network learner, got {name!r}: "
                    f"{_VERBS[name]}.",
                    name=name,
                    obj=self,
                )
            return object.__getattribute__(self, name)  # raises the usual AttributeError

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: classifier or regressor."""
        classes = self._row_loss.has_classes
        return Tags(
            estimator_type="classifier" if classes else "regressor",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classes else None,
            regressor_tags=None if classes else RegressorTags(),
        )

    # -- copies and pickles, made between two steps ------------------------------------------------

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        with self.network.lock:
            vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return a deep copy, so that pickling can continue after the lock is released."""
        with self.network.lock:
            return copy.deepcopy(vars(self), {id(self): self})

    # -- helpers -----------------------------------------------------------------

    def _predictions(self, outputs: Tensor) -> Tensor:
        """Convert outputs (n, c) to predictions of the shape of the learned targets."""
        refuse_width(outputs.shape[1], self._outputs or outputs.shape[1])
        return self._row_loss.predictions(outputs, self._shape)

    def _variances(self) -> Any:
        """Return a function from gradients G (p, n·c) to the variances (n·c,) of outputs."""
        raise ParameterError(
            f"`return_std` must be False, as {type(self).__name__} has no covariance of "
            "the weights, got True. Use op.nn.EKF, op.nn.NTKRLS or op.nn.LoFi, or "
            "op.nn.ORFit with memory=None or op.memory.Principal(m)."
        )

    def _deviations(
        self, x: RowsLike, variances: Callable[[Tensor], ArrayOrTensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (n, c) and their standard deviations (1)."""
        net = self.network
        if self._row_loss.has_classes:
            raise ParameterError(
                "`return_std` must be False for classes, got True with "
                f"loss={self.loss!r}. A class has no standard deviation: use `outputs`."
            )
        rows = net.prepare(x)
        outputs = net.outputs(rows)
        n, c = outputs.shape
        width = max(_AT_ONCE // max(net.p * c, 1), 1)
        std = torch.zeros_like(outputs)
        for i in range(0, n, width):
            with plain_mode(net.device, net.p):
                J = linalg.widened(net.jacobian(rows[i : i + width])[1])
                found = torch.as_tensor(variances(J.T), device=std.device).clamp_min(0.0).sqrt()
            std[i : i + width] = found.reshape(-1, c).to(std.dtype)
        return outputs, std

    # -- weights ---------------------------------------------------------------------------------

    @property
    def _weights(self) -> Tensor:
        """Weights w (p,) in the working precision, float32 for modules in half precision.

        A weight that was changed in the module since the last step is read from the module.
        """
        w, dtype = self.network.weights(), self.network.like.dtype
        if w.dtype == dtype:
            self._wide = None
            return w
        now, stored = w.to(dtype), self._wide
        self._wide = now if stored is None else torch.where(stored.to(w.dtype) == w, stored, now)
        return self._wide

    def _set_weights(self, w: Tensor) -> None:
        """Write weights (p,) into the module."""
        self.network.set_weights(w.to(self.network.dtype))
        if self._wide is not None:
            self._wide = w

    def _is_finite(self, w: Tensor) -> Tensor:
        """Return whether weights (p,) are finite in the module's precision."""
        return linalg.rows_are_finite(w.to(self.network.dtype)[None])[0]

    def _refuse_frozen(self) -> None:
        """Check that the parameters that learn still require grad."""
        for name, each in zip(self.network.names, self.network.parameters, strict=True):
            if not each.requires_grad:
                raise ParameterError(
                    f"the parameters that learn must require grad, but {name!r} was "
                    "frozen after the learner was created. Call requires_grad_(True) "
                    "on it, or create a new learner, which does not train it."
                )

    def _refuse_broken(self) -> None:
        """Check that the weights that learn are finite: on creation, and when rows fail."""
        named = zip(self.network.names, self.network.parameters, strict=True)
        problem = find_nonfinite(named)
        if problem is not None:
            raise NumericalError(
                f"the weights that learn must be finite, but {problem}. Restore earlier "
                "weights, or initialise them again."
            )

    # -- steps -----------------------------------------------------------------------------------

    def _checked_weights(
        self, weights: ArrayLike | Tensor | None, n: int, like: Tensor
    ) -> Tensor | None:
        """Return the weights of rows (n,) in float64."""
        if weights is None:
            return None
        found = numbers(weights, "sample_weight").to(like.device).double()
        if found.shape != (n,) or not bool((found.isfinite() & (found >= 0.0)).all()):
            raise ParameterError(
                f"`sample_weight` must contain one finite number >= 0 for each of {n} rows, got "
                f"shape {tuple(found.shape)}. Pass one weight per row."
            )
        return found

    def _steps(
        self, x: RowsLike, y: ArrayLike | Tensor, sample_weight: ArrayLike | Tensor | None = None
    ) -> Iterator[Tensor]:
        """Take the steps; yield the outputs (n, c) before each step."""
        net = self.network
        rows = prepare_rows(net, x)
        y = numbers(y, "y")
        self._refuse_frozen()
        n = len(rows)
        width = max(self._rows_a_step(n), 1)
        c, like = self._outputs_a_row(rows), self.network.like.to(net.dtype)
        kind = self._row_loss.kind
        try:
            target = self._row_loss.targets(y, n, c, like)
            weights = self._row_loss.used(target, self._checked_weights(sample_weight, n, like))
            if callable(self.loss) and n and not self.rows_seen_:
                self._row_loss.check(net.outputs(rows[:_CHECKED_ROWS]), target[:_CHECKED_ROWS])
        except BaseException:
            self._row_loss.kind = kind  # nothing was learned
            raise
        if n > width:
            check_all_rows(net, rows, c)
        before = self._refused
        found, classes = set[str](), self._row_loss.kind in {CLASSES, TOKENS}
        first = not self.rows_seen_
        if self._example is None and n:
            self._example = describe(rows)
        for i in range(0, n, width):
            with self._exclusively():
                outputs = self._atomic_step(rows, target, weights, i, width)
                self._shape = tuple(y.shape[1:])
                net.columns = rows.columns if first else net.columns
            self._warn_if_full(5)
            f, y_part = outputs, target[i : i + width]
            if weights is not None:
                used = weights[i : i + width] > 0.0
                f, y_part = f[used], y_part[used]
            if len(f):
                found |= self._watch.findings(*self._row_loss.watched(f, y_part), classes=classes)
            yield outputs
        if "sorted" in found and not self._keeps_all:
            noise = " and noise=1.0" if self._fits else ""
            warnings.warn(
                f"{self._where}: classes should recur, but in the last {self._watch.ROWS} rows new "
                "classes came while earlier ones did not recur, and this learner forgets classes "
                "that come one after the other. Shuffle the rows, or use op.nn.ORFit with "
                f"learns='last'{noise}, a wide last layer and loss='one_hot' or 'cross_entropy'.",
                TaskWarning,
                stacklevel=4,
            )
        if "worse" in found:
            trivial = "the most frequent class" if classes else "the mean of earlier targets"
            warnings.warn(
                f"{self._where}: predictions must have smaller errors than {trivial}, got larger "
                f"ones over the first {self.rows_seen_:,} rows. {self._advice}",
                WorseThanTrivialWarning,
                stacklevel=4,
            )
        self._warn(before)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Context of a step: other threads wait, and an interrupt is raised at its end."""
        net, interrupt = self.network, Interrupt()
        with net.lock, interrupt.held(), plain_mode(net.device, net.p):
            yield
        interrupt.raise_pending()

    def _outputs_a_row(self, rows: Batch) -> int:
        """Return the number of outputs per row: that of earlier calls, or of the first row."""
        if self._outputs is not None or not rows.n:
            return self._outputs or 1
        try:
            return int(self.network.outputs(rows[:1]).shape[1])
        except Exception as error:
            locate_failure(self.network, rows, error, 0, 1)
            raise

    def _atomic_step(
        self, rows: Batch, target: Tensor, weights: Tensor | None, i: int, width: int
    ) -> Tensor:
        """Take the step for rows i to i + width; add the number of learned rows to errors."""
        stored, self._outputs = self._outputs, self._outputs_a_row(rows)
        part = slice(i, i + width)
        step, y, s = rows[part], target[part], None if weights is None else weights[part]
        if s is not None and not bool((s > 0.0).all()):  # those of weight 0 are only predicted
            predicted, used = self.network.outputs(step), s > 0.0
            if bool(used.any()):
                self._atomic_step(step[used], y[used], s[used], 0, width)
            return predicted
        first = self.rows_seen_
        try:
            outputs = self._step(step, y, s)
        except BaseException as error:
            self._outputs = stored
            if isinstance(error, Exception):
                locate_failure(self.network, rows, error, i, len(y))
            raise
        at = list(calibration.rows(first, len(y))) if self.loss == "one_hot" else []
        if at:
            scores, labels = outputs[at].double().cpu().numpy(), y[at].argmax(dim=1)
            state = self.calibration_
            state = calibration.start(scores.shape[1]) if state is None else state
            self.calibration_, _ = calibration.updated(state, scores, labels.cpu().numpy())
        return outputs

    def _rows_a_step(self, n: int) -> int:
        """Return how many of n rows are learned in one step."""
        return n if self.block_update else 1

    def _step(self, rows: Batch, y: Tensor, weights: Tensor | None) -> Tensor:
        self._masked = self._refused
        outputs, J = self._derived(rows, self._outputs or 1)
        e, G = self._row_loss.rows(outputs, y, linalg.widened(J), weights)
        good = e.to(G.dtype).isfinite() & linalg.rows_are_finite(G).reshape(len(e), -1)
        good = good.all(dim=1)
        on_device = linalg.on_device(good)
        if on_device or not bool(good.all()):
            self._refused = self._refused + (~good).sum()
            e = torch.where(good[:, None], e, 0.0)
            G = torch.where(good.repeat_interleave(len(G) // len(e))[:, None], G, 0.0)
        try:
            if on_device or bool(good.any()):
                self._learn(rows, e, G)
            if not on_device and self._refused is not self._masked:
                self._refuse_broken()
        except BaseException:
            self._refused = self._masked
            raise
        self.rows_seen_ += len(rows)
        return outputs

    def _derived(self, rows: Batch, c: int) -> tuple[Tensor, Tensor]:
        """Return the outputs (n, c), and J (n·c, p) in reused memory."""
        space, net = self._space, self.network
        if space is not None:  # the module may have moved to another device
            alike = (space.dtype, space.device) == (net.dtype, net.device)
            space = space if alike and len(space) >= len(rows) * c else None
        outputs, J = net.jacobian(rows, out=space, c=c)
        self._space = J if space is None else space
        return outputs, J

    def _warn_if_full(self, stacklevel: int) -> None:
        """Warn once, between steps, when the memory is full."""
        message = None if self._full else self._full_message()
        if message is not None:
            self._full = True
            warnings.warn(f"{self._where}: {message}", MemoryFullWarning, stacklevel=stacklevel)

    def _warn(self, before: int | Tensor) -> None:
        """Warn of rows rejected in this call; the only synchronisation with an accelerator."""
        if self._refused is before:
            return
        count = int(self._refused - before)
        if count:
            self._refuse_broken()
            frozen = find_nonfinite(self.network.module.named_parameters())
            description, remedy = self._refusal
            grown = f"have grown too large (use {remedy} for smaller steps)"
            reason = grown if frozen is None else f"do not learn: {frozen}"
            warnings.warn(
                f"{self._where}: the module's outputs, their gradients and the steps that fit them "
                f"must be finite, got {count} row(s) {description}; these rows were not learned, "
                f"all other rows were. Check their inputs, and weights that {reason}.",
                RowsRefusedWarning,
                stacklevel=5,
            )
