"""EWC, elastic weight consolidation: SGD that is drawn back to what mattered for earlier tasks.

After each task t its weights w*_t are remembered, with the diagonal F_t of the Fisher information
on its rows (:mod:`onepass.baselines.fisher`). The next task's loss L is joined by

    tasks    L + λ/2 Σ_t F_t (w − w*_t)²                                              [1] (3) (1)
    online   L + λ/2 F̃ (w − w*)²,   F̃ ← γ F̃ + F_t,   w* the last weights                 [2] (2)

Of the sum (1) only ΣF_t and ΣF_t w*_t make a difference to its gradient, so that it takes no more
memory than (2), however many tasks there are. A step of SGD leads to u; the penalty is then taken
at the weights after the step, where it cannot overshoot, whatever λ:

    w = (u + η λ ΣF_t w*_t) / (1 + η λ ΣF_t)                                                 (3)

In one pass F_t is the mean over the task's rows at the weights with which each was met. With
``epochs`` > 1 rows of the task are held till it ends, learned so many times, and gone through once
more for F_t at w*_t, as the papers do. Cost: SGD's, and a gradient of each row alone.

[1] J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017.
[2] J. Schwarz et al., "Progress & compress", ICML 2018, section 3; F. Huszár, "Note on the
    quadratic penalties in elastic weight consolidation", PNAS 2018.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch

from onepass import validation
from onepass.baselines.fisher import drawn, squared_slopes
from onepass.baselines.forward import predicted
from onepass.baselines.loss import LossName
from onepass.baselines.tasked import Tasked
from onepass.errors import NumericalError, ParameterError

__all__ = ["EWC"]

_Mode: TypeAlias = Literal["tasks", "online"]
_Fisher: TypeAlias = Literal["sampled", "empirical"]


class EWC(Tasked):
    """SGD with a quadratic penalty on leaving what earlier tasks needed.

    Where tasks bring new classes (class-incremental), EWC is known to forget nearly as SGD does.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place, in the mode it is in; parameters that require no gradient stay.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        What is lowered: −log softmax, or half the squared error; the mean over the batch.
    step_size : float, default=0.01
        η > 0.
    momentum : float, default=0.0
        μ in [0, 1].
    penalty : float, default=100.0
        λ >= 0; 0 is SGD.
    mode : {"tasks", "online"}, default="tasks"
        A penalty for each task (1), or one for the last weights (2).
    decay : float, default=1.0
        γ in (0, 1] of (2).
    fisher : {"sampled", "empirical"}, default="sampled"
        Whose answers F_t is of: drawn from the model, or those that came.
    epochs : int, default=1
        Passes over the rows of a task. With more than one they are held till ``after_task``.
    batch : int, default=32
        Rows a step where there are several passes.
    seed : int, default=0
        Draws the answers, and the order of rows in several passes.

    Attributes
    ----------
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; how often a row was gone through; and that beyond once.
    rows_kept_, most_rows_kept_ : int
        Rows held now, and at most.
    tasks_ : int
        Tasks that ended.
    importance_ : list of Tensor
        ΣF_t, or F̃, a tensor a parameter; empty before the first task ended.
    anchor_ : list of Tensor
        ΣF_t w*_t, or F̃ w*.
    passing_ : list of Tensor
        Σ of squared gradients of the present task's rows.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.

    Examples
    --------
    >>> import torch
    >>> import onepass as op
    >>> line = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = op.baselines.EWC(line, loss="squared", step_size=0.5, penalty=1e9)
    >>> model = model.learn([[1.0, 0.0]], [4.0]).after_task()  # the first feature matters
    >>> model = model.learn([[1.0, 1.0]], [8.0])
    >>> line.weight.detach().round(decimals=3).tolist()
    [[2.0, 3.0]]
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "known to forget nearly as SGD does where tasks bring new classes: the penalty "
        "holds weights, but nothing holds the scores of old classes apart from new ones"
    }
    """Settings in which it is known not to work, and why."""

    def __init__(
        self,
        module: Any,
        *,
        loss: LossName = "cross_entropy",
        step_size: float = 0.01,
        momentum: float = 0.0,
        penalty: float = 100.0,
        mode: _Mode = "tasks",
        decay: float = 1.0,
        fisher: _Fisher = "sampled",
        epochs: int = 1,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(
            module,
            loss=loss,
            step_size=step_size,
            momentum=momentum,
            epochs=epochs,
            batch=batch,
            seed=seed,
        )
        self.penalty = validation.in_range(penalty, "penalty", self._where, low=0.0)
        self.mode = _one_of(mode, ("tasks", "online"), "mode", self._where)
        self.decay = validation.in_range(decay, "decay", self._where, above=0.0, high=1.0)
        self.fisher = _one_of(fisher, ("sampled", "empirical"), "fisher", self._where)
        self.importance_: list[Any] = []
        self.anchor_: list[Any] = []
        self.passing_: list[Any] = []

    def _end(self, rows: tuple[Any, ...] | None) -> None:
        """Hold on to the weights from now on, each as much as it mattered."""
        passing = self.passing_
        if rows is not None:
            passing = self._squares(*rows)
            self.visits_ = self.visits_ + len(rows[0])
        with torch.no_grad():
            weights = list(self._learning.values())
            importance = [f / self.rows_of_task_ for f in passing]
            anchor = [f * w for f, w in zip(importance, weights, strict=True)]
            if self.importance_:
                kept = self.decay if self.mode == "online" else 1.0
                past = self.importance_
                importance = [kept * p + f for p, f in zip(past, importance, strict=True)]
                anchor = [a + b for a, b in zip(self.anchor_, anchor, strict=True)]
            if self.mode == "online":
                anchor = [f * w for f, w in zip(importance, weights, strict=True)]
        self.__dict__.update(importance_=importance, anchor_=anchor, passing_=[])

    def _learn_batch(self, x: Any, y: Any, **counts: int) -> None:
        step = self._step(x, y)
        passing = self.passing_
        if not self._holds:
            passing = self._squares(x, y)
            if self.passing_:
                passing = [a + b for a, b in zip(self.passing_, passing, strict=True)]
        self._take(step, passing_=passing, **counts)

    def _squares(self, x: Any, y: Any) -> list[Any]:
        """Σ over rows of the squares in the mean F_t, at the weights before the step."""
        outputs = predicted(self.module, {}, x, f"{self._where}.learn")
        if self.fisher == "empirical":
            answers = self._targets(y, outputs)
        else:
            # from the rows seen alone: learning again after a refusal draws the same
            words = np.random.SeedSequence([self.seed, self.rows_seen_]).generate_state(2)
            answers = drawn(outputs, self.loss, int(words[0]) << 31 | int(words[1]) >> 1)
        squares = squared_slopes(self.module, self._learning, self.loss, x, answers)
        if not bool(torch.stack([torch.isfinite(s).all() for s in squares]).all()):
            raise NumericalError(
                f"{self._where}.learn: the squared gradients of the rows must be finite, got some "
                "that are not. Nothing was learned of these rows. Scale the rows."
            )
        return squares

    def _pulled(self, weights: list[Any]) -> list[Any]:
        if not self.importance_:
            return weights
        pull = self.step_size * self.penalty
        return [
            (u + pull * a) / (1.0 + pull * f)  # (3)
            for u, a, f in zip(weights, self.anchor_, self.importance_, strict=True)
        ]

    def _kept(self) -> list[Any]:
        return [*super()._kept(), *self.importance_, *self.anchor_, *self.passing_]


def _one_of(value: Any, known: tuple[str, ...], name: str, where: str) -> Any:
    if value not in known:
        raise ParameterError(
            f"{where}: `{name}` must be one of {', '.join(known)}, got {value!r}. "
            "Choose one of them."
        )
    return value
