"""Base class of the learners of networks: rows are learned one after the other, in the module.

A row is one step: its outputs and their Jacobian at the present weights, the errors and gradients
of the loss (:mod:`onepass.nn.losses`), and the update that the learner makes of them. Weights and
memory are written in place, so a step is taken whole or not at all: an interrupt waits for its
end, as do copies and pickles from other threads, and rows are checked before the first step
(:mod:`onepass.nn.trial`). Half precision cannot represent steps that are small beside the weights:
beside such a module w is kept in float32, and rounded into it.

A row whose errors, gradients or step are not finite is not learned. Such rows are counted, and
reported by a warning after the call; on a device they are masked and counted there, so that no
step waits for it. Warnings are issued between steps: one that is raised as an error leaves no step
half taken.

With P the covariance of the weights, and g the gradient of an output,

    std = √(gᵀ P g)                                                                         (1)

is the uncertainty of the output of the linearised network due to the weights. It does not include
the noise of a target, which lies within √(std² + noise) of the prediction.
"""

import copy
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags
from torch import Tensor

from onepass import linalg, validation
from onepass.errors import (
    MemoryFullWarning,
    MergeError,
    NotFiniteError,
    NumericalError,
    ParameterError,
    RowsRefusedWarning,
    ShapeError,
)
from onepass.linalg.interrupt import Interrupt
from onepass.nn.batch import Batch, RowsLike, numbers, refuse_width
from onepass.nn.function import plainly
from onepass.nn.losses import LossName, answers, as_rows, check, shape_of, targets
from onepass.nn.module import Network
from onepass.nn.saving import save
from onepass.nn.selection import broken
from onepass.nn.trial import Call, prepared, tried, untold
from onepass.types import ArrayLike, ArrayOrTensor

__all__ = ["Learner", "filled"]


_VERBS = {
    "learn_one": "use learn(X[k:k+1], y[k:k+1])",
    "predict_one": "use predict(X[k:k+1])[0]",
    "partial_fit": "use learn(X, y), which goes on from what was learned before",
    "fit": "use learn(X, y) of a new learner around a new module",
    "predict_proba": (
        "use outputs(X).softmax(1), which are probabilities with loss='cross_entropy'; of numbers "
        "predict(X, return_std=True) says how sure it is"
    ),
}
_AT_ONCE = 1 << 22  # numbers of a Jacobian that are made at once for standard deviations


def filled(memory: Any, p: int, remedy: str) -> str | None:
    """What is wrong with a memory that holds all directions, None with another.

    Parameters
    ----------
    memory : state of a memory, or None
    p : int
        Weights.
    remedy : str
        What to do, as a sentence.
    """
    if memory is None or memory.rank < p:
        return None
    return (
        f"the memory should hold fewer directions than there are weights, got all {p}: nothing "
        f"more can be learned. {remedy}"
    )


class Learner(ABC):
    """A module that learns a stream, each row once.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place. See :class:`~onepass.nn.module.Network` for what a module may be.
    loss : {"squared", "one_hot", "cross_entropy"}
        ``"squared"`` for numbers; ``"one_hot"`` and ``"cross_entropy"`` for classes 0 … c − 1.
    noise : float
        R >= 0.
    learns : str or sequence of str
        Which parameters learn.
    block_update : bool
        Whether rows given together are learned as one augmented row, all linearised at the weights
        before them: another algorithm, that suits blocks of steps so small that it does not matter.
    chunk : int, optional
        How many rows of a Jacobian are computed at once.
    """

    arguments: ClassVar[tuple[str, ...]] = ("loss", "noise", "learns", "block_update", "chunk")
    """The constructor's, but for the module."""
    kept: ClassVar[tuple[str, ...]] = (
        "rows_seen_", "_outputs", "_refused", "_wide", "_shape", "network.columns",
    )  # fmt: skip
    """The attributes, a path with dots if need be, that hold what was learned beside weights."""
    merging: ClassVar[str] = "refused"
    fits: ClassVar[bool] = True
    """Whether a row is fitted in one step: exactly, where there is no noise."""
    saves_itself: ClassVar[bool] = True
    """For ``op.save``."""
    _untaken: ClassVar[tuple[str, str]] = ("where they are not", "noise > 0")
    """Which rows are left out, and what makes them fewer."""
    _unmerged: ClassVar[tuple[str, str]] = (
        "the memory must say what its rows would have taught, which that of op.nn.ORFit alone does",
        "Let one learner see all rows, or use op.nn.ORFit.",
    )
    """What a merge needs that the learner lacks, and the remedy."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "squared",
        noise: float = 0.0,
        learns: str | Sequence[str] = "all",
        block_update: bool = False,
        chunk: int | None = None,
    ) -> None:
        self._where = f"op.nn.{type(self).__name__}"
        self.module = module
        self.loss = loss
        self.noise = validation.in_range(noise, "noise", self._where, low=0.0)
        check(loss, self.noise if self.fits else 1.0, self._where)
        self.learns = learns
        self.block_update = bool(block_update)
        self.chunk = chunk
        self.network = Network(module, learns, chunk=chunk, where=self._where)
        self.rows_seen_ = 0
        self._outputs: int | None = None
        self._shape: tuple[int, ...] | None = None  # of an answer, as it was learned
        self._refused: Any = 0
        self._masked: Any = 0  # rows refused before those of the step
        self._space: Tensor | None = None  # for the Jacobian, used again
        self._wide: Tensor | None = None  # w of a module of half precision
        self._full = False  # whether it was told that no direction is free
        self._refuse_broken()

    def __init_subclass__(cls) -> None:
        """List the constructor's arguments, unless the class lists them in another order."""
        super().__init_subclass__()
        if "arguments" not in vars(cls):
            cls.arguments = tuple(inspect.signature(cls).parameters)[1:]

    # -- hooks -----------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: Batch, e: Tensor, J: Tensor) -> None:
        """Take the step of rows with errors e (n, c) in float64 and gradients J (n·c, p)."""

    def _filled(self) -> str | None:
        """What is wrong if no direction is free any more, None while one is."""
        return None

    def _tried(self) -> None:
        """Use what is remembered, which was read from a file; whatever is raised, it is damaged."""
        counts = (self.rows_seen_, self._refused, (self._outputs or 1) - 1)
        if not all(type(each) is int and each >= 0 for each in counts):
            raise ValueError("what it has counted are no counts")
        if self._shape is not None:
            answers(self.loss, self._like.new_zeros(1, self._outputs or 1), self._shape)
        if self._wide is not None:
            self._wide.reshape(self.network.p)
        for names in (self.network.columns or {}).values():
            "".join(names)  # raises TypeError unless they are text

    # -- verbs -----------------------------------------------------------------------------------

    def learn(self, x: RowsLike, y: ArrayLike | Tensor) -> Self:
        """Learn rows, one after the other, or as one augmented row if ``block_update``.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            n rows, as the module takes them.
        y : Tensor or array of shape (n,), (n, c) or (n, …)
            Numbers, c in all for each row; or a class of 0 … c − 1 for each row. Answers are then
            given in the shape of these.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError, LabelError, ParameterError
            If the rows or answers do not fit: then nothing was learned. One nan among them refuses
            them all, and the message says in which row it stands.
        NumericalError
            If somebody has written nan or infinity into the weights that learn.
        ModuleError
            If the module's forward raises at a row: nothing was learned; or, if it does so because
            of what rows before it have taught, those rows. The message says which.

        Warns
        -----
        RowsRefusedWarning
            If the error or gradient of a row was not finite: it was left out.
        """
        for _ in self._steps(x, y, "learn"):
            pass
        return self

    def test_then_train(self, x: RowsLike, y: ArrayLike | Tensor) -> Tensor:
        """Learn rows; return what would have been said of each just before learning it.

        With ``block_update``, what would have been said just before learning the block.

        Parameters
        ----------
        x, y
            As in ``learn``.

        Returns
        -------
        said : Tensor of the shape of y
        """
        said = list(self._steps(x, y, "test_then_train"))
        return self._said(torch.cat(said)) if said else self.predict(x)

    def predict(self, x: RowsLike, *, return_std: bool = False) -> Any:
        """Numbers or classes, each answer of the shape that answers had when last learned.

        Before learning, what the module says by its initial weights: numbers (n, c), or (n,) if it
        has one output; or classes (n,).

        Parameters
        ----------
        x : rows, as the module takes them
        return_std : bool, default=False
            Whether to give as well how far each output is unknown because the weights are, where
            the learner knows.

        Returns
        -------
        said : Tensor of shape (n,) or (n, …)
            (n, 1) if y was (n, 1), of any number of axes if y had them.
        std : Tensor of the shape of said
            If ``return_std``: see :mod:`onepass.nn.learner`.

        Raises
        ------
        ParameterError
            If a standard deviation is asked of classes, or of a learner that knows none.
        NumericalError
            If an output is nan that is to name a class. Numbers are said as the module says them.
        """
        where = f"{self._where}.predict"
        if return_std:
            with self.network.turn:
                said, std = self._deviations(x, self._variances(where), where)
            return self._said(said), self._said(std)
        said = self.network.outputs(self.network.prepare(x, where))
        if self.loss != "squared":
            bad = said.isnan().any(dim=1)
            if bool(bad.any()):  # a device is waited for
                raise NumericalError(
                    f"{where}: outputs must be numbers to name a class, got nan in row "
                    f"{int(bad.nonzero()[0])}. Look at that row, and at the module's weights; "
                    "`outputs` gives all of them as they are."
                )
        return self._said(said)

    def outputs(self, x: RowsLike) -> Tensor:
        """The module's outputs (n, c), without a derivative, in evaluation mode."""
        return self.network.outputs(self.network.prepare(x, f"{self._where}.outputs"))

    def merge(
        self, other: "Learner", rows: tuple[RowsLike, ArrayLike | Tensor] | None = None
    ) -> Self:
        """Learn what another learner of the same kind has learned, from the same beginning.

        Raises
        ------
        MergeError
            If this learner cannot be merged, or not with the other.
        """
        del other, rows
        wanted, remedy = self._unmerged
        raise MergeError(f"{self._where}.merge: {wanted}, got {type(self).__name__}. {remedy}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it to one safetensors file: arguments, weights, buffers, what is remembered.

        ``op.nn.load(path, module)`` gives it back, and it goes on as it would have, to the last
        bit. The module's code is not saved: a module made alike is given to ``load``.

        Parameters
        ----------
        path : path-like
            The file; one that is there is replaced, whole or not at all.

        Raises
        ------
        CheckpointError
            If weights or buffers hold nan, or the file cannot be written.
        """
        with self.network.turn:
            save(self, path)

    # -- what is told ----------------------------------------------------------------------------

    @property
    def rows_refused_(self) -> int:
        """Rows that were left out, their errors or gradients not being finite."""
        return int(self._refused)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept beside the weights."""
        return 0

    def drift(self, x: RowsLike, said: ArrayLike | Tensor) -> float:
        """By how much answers have moved: √(Σ (outputs now − outputs then)²), over all rows.

        It counts all that has moved them, whereas a certificate counts what the memory let go.

        Parameters
        ----------
        x : Tensor, array, or tuple, list or dict of them
            Rows that were learned, set aside to measure with.
        said : Tensor or array of shape (n,) or (n, c)
            ``outputs`` of each just after it was learned.

        Raises
        ------
        ShapeError, TypeMismatchError, NotFiniteError
            If these are not as many finite numbers as there are outputs.
        """
        where = f"{self._where}.drift"
        now = self.network.outputs(self.network.prepare(x, where)).double()
        remedy = "Give what `outputs` said of these rows just after each was learned."
        then = numbers(said, "said", where, remedy).to(now.device).double()
        if then.ndim < 1 or then.numel() != now.numel() or len(then) != len(now):
            raise ShapeError(
                f"{where}: `said` must hold {now.shape[1]} number(s) for each of {len(now)} rows, "
                f"got shape {tuple(then.shape)}. {remedy}"
            )
        if not bool(then.isfinite().all()):
            raise NotFiniteError(
                f"{where}: `said` must be finite, got nan or infinity. From what was no number "
                "nothing has moved by so much: leave these rows out."
            )
        return float(torch.linalg.vector_norm(now - then.reshape(now.shape)))

    def __repr__(self) -> str:
        """One line: the module, the arguments that are not the defaults, the size."""
        defaults = inspect.signature(type(self)).parameters
        given = [type(self.module).__name__]
        for name in self.arguments:
            value = getattr(self, name)
            if value != defaults[name].default:
                given.append(f"{name}={value!r}")
        name, p = type(self).__name__, self.network.p
        return f"<{name}({', '.join(given)}), p={p}, rows_seen_={self.rows_seen_}>"

    if not TYPE_CHECKING:  # to whom all names would be known

        def __getattr__(self, name: str) -> Any:
            """Say of other learners' verbs, which a network has not, what to use in their place."""
            if name in _VERBS:
                raise AttributeError(
                    f"{self._where}: the verb must be one of networks, got {name!r}: "
                    f"{_VERBS[name]}.",
                    name=name,
                    obj=self,
                )
            return object.__getattribute__(self, name)  # raises as ever, a property as it did

    def __sklearn_tags__(self) -> Tags:
        """Whether it classifies or regresses, for scikit-learn."""
        classes = self.loss != "squared"
        return Tags(
            estimator_type="classifier" if classes else "regressor",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classes else None,
            regressor_tags=None if classes else RegressorTags(),
        )

    # -- copies and pickles, between two steps: other threads wait, or are waited for -------------

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        with self.network.turn:
            vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """A copy, with a module of its own: pickling goes on after the lock is released."""
        with self.network.turn:
            return copy.deepcopy(vars(self), {id(self): self})

    # -- what stands behind them -----------------------------------------------------------------

    def _said(self, outputs: Tensor) -> Tensor:
        """Outputs (n, c) as answers, of the shape that answers were learned in."""
        refuse_width(outputs.shape[1], self._outputs or outputs.shape[1], f"{self._where}.predict")
        return answers(self.loss, outputs, self._shape)

    def _variances(self, where: str) -> Any:
        """What gives the variances (n·c,) of outputs by gradients G (p, n·c), if it is known."""
        raise ParameterError(
            f"{where}: `return_std` must be False, as {type(self).__name__} keeps nothing that "
            "tells how sure it is, got True. Use op.nn.EKF, op.nn.NTKRLS or op.nn.LoFi, or "
            "op.nn.ORFit with memory=None or op.memory.Principal(m)."
        )

    def _deviations(
        self, x: RowsLike, variances: Callable[[Tensor], ArrayOrTensor], where: str
    ) -> tuple[Tensor, Tensor]:
        """Outputs (n, c), and (1) of each, by the variances (n·c,) of gradients (p, n·c)."""
        net = self.network
        if self.loss != "squared":
            raise ParameterError(
                f"{where}: `return_std` must be False for classes, got True with "
                f"loss={self.loss!r}. A class has no standard deviation: see `outputs`."
            )
        rows = net.prepare(x, where)
        said = net.outputs(rows)
        n, c = said.shape
        width = max(_AT_ONCE // max(net.p * c, 1), 1)
        std = torch.zeros_like(said)
        for i in range(0, n, width):
            with plainly(net.device, net.p):
                J = linalg.widened(net.jacobian(rows[i : i + width])[1])
                found = torch.as_tensor(variances(J.T), device=std.device).clamp_min(0.0).sqrt()
            std[i : i + width] = found.reshape(-1, c).to(std.dtype)
        return said, std

    # -- weights ---------------------------------------------------------------------------------

    @property
    def _like(self) -> Tensor:
        """An empty tensor of the precision that is computed in, on the module's device."""
        return linalg.widened(torch.empty(0, dtype=self.network.dtype, device=self.network.device))

    @property
    def _weights(self) -> Tensor:
        """W (p,) in the precision that is computed in: half precision could not take in a step.

        Where a weight of the module is not what was written into it, it is what it has become.
        """
        said, dtype = self.network.weights(), self._like.dtype
        if said.dtype == dtype:
            self._wide = None
            return said
        now, known = said.to(dtype), self._wide
        self._wide = now if known is None else torch.where(known.to(said.dtype) == said, known, now)
        return self._wide

    def _take(self, w: Tensor) -> None:
        """Let the module have these weights (p,)."""
        self.network.set_weights(w.to(self.network.dtype))
        if self._wide is not None:
            self._wide = w

    def _sound(self, w: Tensor) -> Tensor:
        """Whether weights (p,) are finite in the module's precision."""
        return linalg.rows_are_finite(w.to(self.network.dtype)[None])[0]

    def _refuse_frozen(self, where: str) -> None:
        """Refuse to write into what was frozen since the learner was made."""
        for name, each in zip(self.network.names, self.network.parameters, strict=True):
            if not each.requires_grad:
                raise ParameterError(
                    f"{where}: what learns must require grad, but {name!r} was frozen since. Thaw "
                    "it with requires_grad_(True), or make a new learner, which leaves it be."
                )

    def _refuse_broken(self) -> None:
        """Refuse to learn from weights that are no numbers: told at first, and where rows fail.

        Where a device would have to be waited for, it is looked for after the call.
        """
        named = zip(self.network.names, self.network.parameters, strict=True)
        lost = broken(named)
        if lost is not None:
            raise NumericalError(
                f"{self._where}: the weights that learn must be finite, but {lost}. No row can be "
                "learned from there: load them as they were before, or write numbers into them."
            )

    # -- steps -----------------------------------------------------------------------------------

    def _steps(self, x: RowsLike, y: ArrayLike | Tensor, verb: str) -> Iterator[Tensor]:
        """Take the steps; yield the outputs (n, c) just before each."""
        where = f"{self._where}.{verb}"
        net = self.network
        rows = prepared(net, x, where)
        self._refuse_frozen(where)
        n, call = len(rows), Call(net, rows, where)
        width = max(self._rows_a_step(n), 1)
        c, like = self._outputs_a_row(call), self._like.to(net.dtype)
        wanted = targets(y, n, c, self.loss, like, where)
        if n > width:
            tried(call, c)
        interrupt, before, shape = Interrupt(), self._refused, shape_of(y)
        first = not self.rows_seen_
        for i in range(0, n, width):
            with net.turn, interrupt.held(), plainly(net.device, net.p):
                said = self._whole_step(call, wanted, i, width)
                self._shape = shape
                net.columns = rows.columns if first else net.columns
            interrupt.raise_pending()
            self._tell_if_full(4)
            yield said
        self._warn(before, where)

    def _outputs_a_row(self, call: Call) -> int:
        """The outputs of a row: as many as when rows were learned first, or as the first has."""
        if self._outputs is not None or not call.rows.n:
            return self._outputs or 1
        try:
            return int(self.network.outputs(call.rows[:1]).shape[1])
        except Exception as wrong:
            untold(call, wrong, 0, 1)
            raise

    def _whole_step(self, call: Call, wanted: Tensor, i: int, width: int) -> Tensor:
        """The step of rows i to i + width of a call; where it fails it is told how far one came."""
        known, self._outputs = self._outputs, wanted.shape[1]
        try:
            return self._step(call.rows[i : i + width], wanted[i : i + width])
        except BaseException as wrong:
            self._outputs = known
            if isinstance(wrong, Exception):
                untold(call, wrong, i, min(width, call.rows.n - i))
            raise

    def _rows_a_step(self, n: int) -> int:
        """How many of n rows given are learned together."""
        return n if self.block_update else 1

    def _step(self, rows: Batch, y: Tensor) -> Tensor:
        self._masked = self._refused
        said, J = self._derived(rows, y.shape[1])
        e, G = as_rows(self.loss, said, y, linalg.widened(J))
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
        return said

    def _derived(self, rows: Batch, c: int) -> tuple[Tensor, Tensor]:
        """Outputs (n, c), and J (n·c, p) in reused memory."""
        space, net = self._space, self.network
        if space is not None:  # the module may have moved to another device
            alike = (space.dtype, space.device) == (net.dtype, net.device)
            space = space if alike and len(space) >= len(rows) * c else None
        said, J = net.jacobian(rows, out=space, c=c)
        self._space = J if space is None else space
        return said, J

    def _tell_if_full(self, stacklevel: int) -> None:
        """Warn once, between steps, when no direction is free any more."""
        said = None if self._full else self._filled()
        if said is not None:
            self._full = True
            warnings.warn(f"{self._where}: {said}", MemoryFullWarning, stacklevel=stacklevel)

    def _warn(self, before: int | Tensor, where: str) -> None:
        """Tell of rows that were left out since then; once a call, the only wait for a device."""
        if self._refused is before:
            return
        count = int(self._refused) - int(before)
        if count:
            self._refuse_broken()
            frozen = broken(self.network.module.named_parameters())
            bad, tames = self._untaken
            grown = f"have grown too large ({tames} tames steps)"
            said = grown if frozen is None else f"do not learn: {frozen}"
            warnings.warn(
                f"{where}: the module's outputs, their gradients and the steps that fit them must "
                f"be finite, got {count} row(s) {bad}; these were not learned, all others "
                f"were. Look at their inputs, or at weights that {said}.",
                RowsRefusedWarning,
                stacklevel=4,
            )
