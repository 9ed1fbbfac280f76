"""EWC, elastic weight consolidation: SGD with a quadratic penalty on changes of important weights.

After each task t its weights w*_t are stored, with the diagonal F_t of the Fisher information on
its rows. The loss L of the next task gets a penalty:

    tasks    L + λ/2 Σ_t F_t (w − w*_t)²                                              [1] (3) (1)
    online   L + λ/2 F̃ (w − w*)²,   F̃ ← γ F̃ + F_t,   w* the last weights                 [2] (2)

The gradient of the sum (1) depends only on ΣF_t and ΣF_t w*_t, so it takes no more memory than (2)
for any number of tasks. A step of SGD leads to u; the penalty is then evaluated at the weights
after the step, where it cannot overshoot for any λ:

    w = (u + η λ ΣF_t w*_t) / (1 + η λ ΣF_t)                                                 (3)

The diagonal of the Fisher information is a mean over rows, with one gradient per row:

    F = E_x E_y (∂ log p(y | x; w) / ∂w)²                                                    (4)

``sampled``: y is drawn from the model's own distribution, once per row: an unbiased estimate [3,
4]. ``empirical``: y is the target. This saves a forward pass and is not the Fisher information,
though it is often used instead [4].

In one pass F_t is the mean over the task's rows, each at the weights before its step. With
``epochs`` > 1 rows of the task are stored until it ends, learned in that many passes, and evaluated
once more for F_t at w*_t, as in the papers.

Cost: that of SGD, and a backward pass per row, vectorised over chunks of rows by vmap. In a
perceptron the gradient of a row by W is δ aᵀ, with a the layer's input and δ the gradient by its
output, so

    Σ (δ aᵀ)² = Σ δ² (a²)ᵀ                                                                   (5)

is one matrix product for all rows, without the gradient of any single row [5].

[1] J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 2017.
[2] J. Schwarz et al., "Progress & compress", ICML 2018, section 3; F. Huszár, "Note on the
    quadratic penalties in elastic weight consolidation", PNAS 2018.
[3] J. Martens, "New insights and perspectives on the natural gradient method", JMLR 2020, 9.
[4] F. Kunstner, L. Balles, P. Hennig, "Limitations of the empirical Fisher approximation for
    natural gradient descent", NeurIPS 2019.
[5] F. Dangel, F. Kunstner, P. Hennig, "BackPACK: packing more into backprop", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from onepass import validation
from onepass.errors import NumericalError, ParameterError, public
from onepass.nn.batch import Batch, chosen
from onepass.nn.function import evaluation_mode
from onepass_experiments.baselines.learner import (
    LossName,
    Tasked,
    eval_outputs,
    forward,
    loss_of_rows,
)

_SCRATCH = 1 << 24  # max numbers in the gradients of a chunk
_PLAIN = (
    torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.GELU, torch.nn.SiLU,
    torch.nn.Softplus, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.Identity, torch.nn.Flatten,
)  # fmt: skip
"""Layers without weights that treat rows independently."""


def _sampled_targets(outputs: Tensor, loss: LossName, seed: int) -> Tensor:
    """Sample a target for each row from the distribution that the outputs define."""
    generator = torch.Generator(outputs.device).manual_seed(seed)
    if loss == "squared":
        noise = torch.randn(
            outputs.shape, generator=generator, device=outputs.device, dtype=outputs.dtype
        )
        return outputs + noise
    return torch.multinomial(outputs.softmax(dim=1), 1, generator=generator)[:, 0]


def _squared_gradients(
    module: torch.nn.Module,
    parameters: Mapping[str, Tensor],
    loss: LossName,
    x: Batch | Tensor,
    y: Tensor,
) -> list[Tensor]:
    """Return Σ over rows of (∂ loss of the row / ∂w)², a tensor per parameter, in eval mode."""
    layers = _perceptron(module, parameters) if isinstance(x, torch.Tensor) else None
    quick = None if layers is None else _perceptron_squares(layers, parameters, loss, x, y)
    if quick is not None:
        return quick
    weights = {name: w.detach() for name, w in parameters.items()}
    rows = x if isinstance(x, Batch) else Batch((x,), {}, len(x))

    def of_row(given: Mapping[str, Tensor], target: Tensor, *leaves: Tensor) -> Tensor:
        row = rows.with_tensors((leaf[None] for leaf in leaves), 1)
        outputs = chosen(forward(module, given, row))
        return loss_of_rows(loss, outputs, target[None])[0]

    gradient = torch.func.grad(of_row)
    gradients = torch.func.vmap(gradient, in_dims=(None, 0, *(0 for _ in rows.tensors)))
    total = [torch.zeros_like(w) for w in weights.values()]
    step = max(1, _SCRATCH // sum(w.numel() for w in weights.values()))
    with evaluation_mode(module.modules()):
        for begin in range(0, len(x), step):
            piece = y[begin : begin + step], *rows[begin : begin + step].tensors
            try:
                found = gradients(weights, *piece)
            except RuntimeError:  # an operation that vmap does not support
                each = [gradient(weights, *row) for row in zip(*piece, strict=True)]
                found = {name: torch.stack([one[name] for one in each]) for name in weights}
            for sum_so_far, name in zip(total, weights, strict=True):
                sum_so_far.add_(found[name].square().sum(dim=0))
    return total


def _perceptron(
    module: torch.nn.Module, parameters: Mapping[str, Tensor]
) -> list[tuple[str, torch.nn.Module]] | None:
    """Return the layers of a plain perceptron with their names; None for other modules."""
    if type(module) is not torch.nn.Sequential or _is_hooked(module):
        return None
    layers = list(module.named_children())
    linear = [layer for _, layer in layers if type(layer) is torch.nn.Linear]
    others = [layer for _, layer in layers if type(layer) is not torch.nn.Linear]
    plain = all(type(one) in _PLAIN and not getattr(one, "inplace", False) for one in others)
    alone = len(list(module.parameters())) == sum(len(list(one.parameters())) for one in linear)
    names = {f"{name}.{part}" for name, _ in layers for part in ("weight", "bias")}
    whole = plain and alone and len(layers) == len(module) and set(parameters) <= names
    return None if not whole or any(_is_hooked(layer) for _, layer in layers) else layers


def _is_hooked(module: torch.nn.Module) -> bool:
    """Return whether the module has hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind, None) for kind in kinds)


def _perceptron_squares(
    layers: list[tuple[str, torch.nn.Module]],
    parameters: Mapping[str, Tensor],
    loss: LossName,
    x: Tensor,
    y: Tensor,
) -> list[Tensor] | None:
    """Return Σ of squares by (5); None if a layer receives more than one vector per row."""
    given: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.enable_grad():
        outputs = x.detach()
        for name, layer in layers:
            inputs, outputs = outputs, layer(outputs)
            if type(layer) is torch.nn.Linear:
                if inputs.shape[:-1] != (len(x),):
                    return None
                outputs = (
                    outputs.detach().requires_grad_() if not outputs.requires_grad else outputs
                )
                given[name] = inputs.detach(), outputs
        total = loss_of_rows(loss, outputs, y).sum()
        gradients = torch.autograd.grad(total, [one for _, one in given.values()])
    squares = {}
    for (name, (inputs, _)), gradient in zip(given.items(), gradients, strict=True):
        squares[f"{name}.weight"] = gradient.square().T @ inputs.square()
        squares[f"{name}.bias"] = gradient.square().sum(dim=0)
    return [squares[name] for name in parameters]


_Mode: TypeAlias = Literal["tasks", "online"]
_Fisher: TypeAlias = Literal["sampled", "empirical"]
_Choice = TypeVar("_Choice", bound=str)


class EWC(Tasked):
    """SGD with a quadratic penalty on changes of weights important for earlier tasks.

    In class-incremental learning, EWC is known to forget nearly as much as SGD.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, in its current mode. Parameters that require no gradient are unchanged.
    loss : {"cross_entropy", "squared"}, default="cross_entropy"
        Loss, averaged over the batch: −log softmax, or half the squared error.
    step_size : float, optional
        η > 0. Default: 0.1 for cross entropy; required for the squared loss.
    momentum : float, default=0.0
        μ in [0, 1].
    penalty : float, default=100.0
        λ >= 0; 0 is SGD.
    mode : {"tasks", "online"}, default="tasks"
        One penalty per task (1), or a single one at the last weights (2).
    decay : float, default=1.0
        γ of (2), in (0, 1].
    fisher : {"sampled", "empirical"}, default="sampled"
        Targets in F_t: sampled from the model, or observed.
    epochs : int, default=1
        Passes over the rows of a task. With more than one, rows are stored until ``after_task``.
    batch : int, default=32
        Rows per step if there are several passes.
    seed : int, default=0
        Seed of the sampled targets and of the order of rows in several passes.

    Attributes
    ----------
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; visits to rows; and visits beyond the first.
    rows_stored_, max_rows_stored_ : int
        Rows stored now, and the maximum so far.
    tasks_ : int
        Number of completed tasks.
    importance_ : list of Tensor
        ΣF_t, or F̃, one tensor per parameter; empty before the first task has ended.
    anchor_ : list of Tensor
        ΣF_t w*_t, or F̃ w*.
    squared_gradients_ : list of Tensor
        Σ of squared gradients over the rows of the current task.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> line = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(line.weight)
    >>> model = baselines.EWC(line, loss="squared", step_size=0.5, penalty=1e9)
    >>> model = model.learn([[1.0, 0.0]], [4.0]).after_task()  # the first feature matters
    >>> model = model.learn([[1.0, 1.0]], [8.0])
    >>> line.weight.detach().round(decimals=3).tolist()
    [[2.0, 3.0]]
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "known to forget nearly as much as SGD when tasks introduce new classes: the "
        "penalty protects weights, but no loss separates old classes from new ones"
    }
    """Scenarios in which the method is known to fail, and the reason."""

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss: LossName = "cross_entropy",
        step_size: float | None = None,
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
        self.penalty = validation.in_range(penalty, "penalty", low=0.0)
        self.mode = _check_choice(mode, ("tasks", "online"), "mode")
        self.decay = validation.in_range(decay, "decay", above=0.0, high=1.0)
        self.fisher = _check_choice(fisher, ("sampled", "empirical"), "fisher")
        self.importance_: list[Tensor] = []
        self.anchor_: list[Tensor] = []
        self.squared_gradients_: list[Tensor] = []

    def _end_task(self, rows: tuple[Batch | Tensor, Tensor] | None) -> None:
        """Add the penalty of the finished task."""
        passing = self.squared_gradients_
        if rows is not None:
            passing = self._squares(*rows)
            self.visits_ = self.visits_ + len(rows[0])
        with torch.no_grad():
            weights = list(self._trainable.values())
            importance = [f / self.rows_of_task_ for f in passing]
            anchor = [f * w for f, w in zip(importance, weights, strict=True)]
            if self.importance_:
                factor = self.decay if self.mode == "online" else 1.0
                past = self.importance_
                importance = [factor * p + f for p, f in zip(past, importance, strict=True)]
                anchor = [a + b for a, b in zip(self.anchor_, anchor, strict=True)]
            if self.mode == "online":
                anchor = [f * w for f, w in zip(importance, weights, strict=True)]
        self.__dict__.update(importance_=importance, anchor_=anchor, squared_gradients_=[])

    def _learn_batch(self, x: Batch | Tensor, y: Tensor, **counts: int) -> None:
        step = self._step(x, y)
        passing = self.squared_gradients_
        if not self._stores_rows:
            passing = self._squares(x, y)
            if self.squared_gradients_:
                passing = [a + b for a, b in zip(self.squared_gradients_, passing, strict=True)]
        self._apply(step, squared_gradients_=passing, **counts)

    def _squares(self, x: Batch | Tensor, y: Tensor) -> list[Tensor]:
        """Return the sum over rows in F_t, at the weights before the step."""
        outputs = eval_outputs(self.module, {}, x, f"{self._where}.learn")
        if self.fisher == "empirical":
            targets = self._targets(y, outputs)
        else:
            # depends only on rows_seen_: retrying after an error samples the same targets
            words = np.random.SeedSequence([self.seed, self.rows_seen_]).generate_state(2)
            targets = _sampled_targets(outputs, self.loss, int(words[0]) << 31 | int(words[1]) >> 1)
        squares = _squared_gradients(self.module, self._trainable, self.loss, x, targets)
        if not bool(torch.stack([torch.isfinite(s).all() for s in squares]).all()):
            raise NumericalError(
                "the squared gradients of the rows must be finite, got nan or "
                "infinity. These rows were not learned. Scale the rows.",
                f"{self._where}.learn",
            )
        return squares

    def _penalized(self, weights: list[Tensor]) -> list[Tensor]:
        if not self.importance_:
            return weights
        pull = self.step_size * self.penalty
        return [
            (u + pull * a) / (1.0 + pull * f)  # (3)
            for u, a, f in zip(weights, self.anchor_, self.importance_, strict=True)
        ]

    def _stored(self) -> list[Batch | Tensor]:
        return [*super()._stored(), *self.importance_, *self.anchor_, *self.squared_gradients_]


def _check_choice(value: _Choice, known: tuple[str, ...], name: str) -> _Choice:
    if value not in known:
        raise ParameterError(
            f"`{name}` must be one of {', '.join(known)}, got {value!r}. Pass one of these."
        )
    return value
