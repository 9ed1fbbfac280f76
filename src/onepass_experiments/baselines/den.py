"""DEN, dynamically expandable network: selective retraining, expansion, and splitting of units.

The first task is learned with μ ‖w‖₁ on all weights. For each later task t, of weights w before it:

    1  learn the output weights of its classes only, with μ ‖w‖₁; select the units connected to
       them by a path of nonzero weights; learn these units' weights with μ₂/2 ‖w‖²
                                                                                 (3) (4), Alg. 2
    2  if the loss is still above τ: add k units to each hidden layer and learn only their weights
       with μ ‖w‖₁ + γ Σ_g ‖w_g‖; remove units whose weights are all 0            (5), Alg. 3
    3  learn all weights with λ/2 ‖w − w^{t−1}‖²; split a unit that moved by more than σ: a copy
       for this task keeps the new weights and the unit gets its old weights back; learn again
                                                                                 (6), Alg. 4
    4  a class is predicted by the units that existed during its task                 3.4

A unit with stamp s is used for the classes of tasks t >= s: a class of task t is predicted only by
units with stamp <= t, so that later units do not change its prediction ([1] 3.4). The paper
predicts each task separately; here the classes of all tasks are predicted together, as in
class-incremental learning. The outputs of a copy go to copies, new units and the task's classes,
but not to earlier units; the paper leaves this open. A class that recurs belongs to the last task
that had it.

A fit is proximal stochastic gradient descent. With u the weights after a step of size η on the mean
cross entropy over the task's classes, the trainable weights become in sequence

    w = soft(u, η μ)                        for  μ ‖w‖₁, so that weights become 0
    w = u / (1 + η μ₂)                      for  μ₂/2 ‖w‖²
    w_g = u_g max(0, 1 − η γ / ‖u_g‖)       for  γ Σ ‖w_g‖, a group: weights into a unit
    w = (u + η λ a) / (1 + η λ)             for  λ/2 ‖w − a‖²

Cost: rows of the task are stored until it ends; up to 5 · epochs passes over them.

[1] J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong learning with dynamically expandable networks",
    ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onepass import validation
from onepass.errors import NotFittedError, NumericalError, ParameterError, TypeMismatchError, public
from onepass.nn.batch import Batch, RowsLike
from onepass_experiments.baselines import learner
from onepass_experiments.baselines.learner import Tasked


@dataclass(frozen=True, eq=False)
class Layers:
    """Weights of a perceptron with ReLU between its layers.

    Parameters
    ----------
    weights : tuple of Tensor
        (out, in) of each layer; the last has one output per class.
    biases : tuple of Tensor
        (out,) of each layer.
    stamps : tuple of Tensor
        Task of each unit of each hidden layer, from 1.
    heads : Tensor of shape (c,)
        Last task that had the class; 0 if none had.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    stamps: tuple[Tensor, ...]
    heads: Tensor

    def forward(self, x: Tensor, task: int | None = None) -> Tensor:
        """Return outputs (n, c) of all units, or of those with stamp <= ``task``."""
        for i, stamps in enumerate(self.stamps):
            x = functional.linear(x, self.weights[i], self.biases[i]).relu()
            if task is not None:
                x = x * (stamps <= task)
        return functional.linear(x, self.weights[-1], self.biases[-1])

    def class_outputs(self, x: Tensor) -> Tensor:
        """Return outputs (n, c), each class by the units of its task; −∞ for unseen classes."""
        outputs = x.new_full((len(x), len(self.heads)), -torch.inf)
        for task in self.heads[self.heads > 0].unique().tolist():
            there = self.heads == task
            outputs[:, there] = self.forward(x, task)[:, there]
        return outputs

    def with_new_units(self, units: tuple[int, ...], task: int, seed: int) -> Layers:
        """Add units with small random weights to each hidden layer."""
        generator = torch.Generator().manual_seed(seed)
        weights, biases, stamps = [], [], []
        before = 0
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            after = units[i] if i < len(units) else 0
            old, width = w.shape[0], w.shape[1] + before
            # initialised as torch.nn.Linear, by the number of inputs
            fresh = (2 * torch.rand(old + after, width, generator=generator) - 1) / width**0.5
            fresh = fresh.to(w)
            fresh[:old, : w.shape[1]] = w
            if i == len(units):  # no connections to classes of other tasks
                fresh[self.heads != task, w.shape[1] :] = 0.0
            weights.append(fresh)
            biases.append(torch.cat([b, b.new_zeros(after)]))
            before = after
        for s, more in zip(self.stamps, units, strict=True):
            stamps.append(torch.cat([s, s.new_full((more,), task)]))
        return replace(self, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps))

    def without(self, retained: tuple[Tensor, ...]) -> Layers:
        """Select units of each hidden layer by masks of shape (units,)."""
        weights = list(self.weights)
        for i, some in enumerate(retained):
            weights[i], weights[i + 1] = weights[i][some], weights[i + 1][:, some]
        return Layers(
            tuple(weights),
            (*(b[some] for b, some in zip(self.biases, retained, strict=False)), self.biases[-1]),
            tuple(s[some] for s, some in zip(self.stamps, retained, strict=True)),
            self.heads,
        )


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Trainable weights and penalties of a fit.

    Parameters
    ----------
    weights, biases : tuple of Tensor of bool
        Masks of the trainable weights and biases.
    sparsity, shrinkage, drift : float
        Penalties μ, μ₂ and λ.
    group : float
        Penalty γ, for units of the current task.
    anchors : tuple of Tensor, or empty
        a, for the leading rows and columns of each hidden layer's weights.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    sparsity: float = 0.0
    shrinkage: float = 0.0
    drift: float = 0.0
    group: float = 0.0
    anchors: tuple[Tensor, ...] = ()


def fit_layers(
    layers: Layers,
    rows: tuple[Tensor, Tensor],
    options: FitOptions,
    *,
    task: int,
    step_size: float,
    epochs: int,
    batch: int,
    rng: np.random.Generator,
) -> Layers:
    """Fit the layers in ``epochs`` passes over the rows of a task.

    Parameters
    ----------
    layers : Layers
    rows : tuple of Tensor
        x (n, d) and classes (n,).
    options : FitOptions
    task : int
        t >= 1; its classes have this number in ``heads``.
    step_size : float
        η.
    epochs, batch : int
        Number of passes, and rows per step.
    rng : Generator
        Generator of the order of rows.
    """
    x, y = rows
    classes = torch.nonzero(layers.heads == task)[:, 0]
    labels = torch.searchsorted(classes, y)
    depth = len(layers.weights)
    free = [*options.weights, *options.biases]
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        for chosen in order.split(batch):
            trained = [w.detach().requires_grad_() for w in (*layers.weights, *layers.biases)]
            now = replace(layers, weights=tuple(trained[:depth]), biases=tuple(trained[depth:]))
            with torch.enable_grad():
                outputs = now.forward(x[chosen])[:, classes]
                gradients = torch.autograd.grad(
                    functional.cross_entropy(outputs, labels[chosen]), trained
                )
            with torch.no_grad():
                moved = [
                    w - step_size * g * some
                    for w, g, some in zip(trained, gradients, free, strict=True)
                ]
                weights = tuple(
                    _proximal_step(u, i, layers, options, step_size, task)
                    for i, u in enumerate(moved[:depth])
                )
            layers = replace(layers, weights=weights, biases=tuple(moved[depth:]))
    return layers


def _proximal_step(
    u: Tensor, i: int, layers: Layers, options: FitOptions, step_size: float, task: int
) -> Tensor:
    """Apply the proximal operators of the penalties to the weights of a layer, in sequence."""
    some = options.weights[i]
    if options.sparsity:
        u = torch.where(some, functional.softshrink(u, step_size * options.sparsity), u)
    if options.shrinkage:
        u = torch.where(some, u / (1.0 + step_size * options.shrinkage), u)
    if options.group and i < len(layers.stamps):
        norm = u.norm(dim=1, keepdim=True)
        less = (1.0 - step_size * options.group / norm.clamp(min=1e-30)).clamp(min=0.0)
        u = torch.where((layers.stamps[i] == task)[:, None], u * less, u)
    if options.drift and i < len(options.anchors):
        anchor, pull = options.anchors[i], step_size * options.drift
        a, b = anchor.shape
        u = u.clone()
        u[:a, :b] = (u[:a, :b] + pull * anchor) / (1.0 + pull)
    return u


def _linear_layers(module: torch.nn.Module) -> list[torch.nn.Linear]:
    """Check that the module is a perceptron and return its Linear layers."""
    if not isinstance(module, torch.nn.Sequential):
        raise TypeMismatchError(
            f"`module` must be a torch.nn.Sequential, got {type(module).__name__}. Wrap "
            "the layers in a Sequential."
        )
    wanted = [torch.nn.Linear, torch.nn.ReLU] * (len(module) // 2) + [torch.nn.Linear]
    right = len(wanted) == len(module) and all(
        type(part) is kind for part, kind in zip(module, wanted, strict=True)
    )
    linear = [part for part in module if isinstance(part, torch.nn.Linear)]
    alone = len(list(module.parameters())) == 2 * len(linear)  # no layer is shared
    if not right or not alone or any(part.bias is None for part in linear):
        raise ParameterError(
            "`module` must be Linear layers with biases, none shared, and ReLU between "
            f"them, got {', '.join(type(part).__name__ for part in module)}. Build such "
            "a perceptron and flatten images beforehand."
        )
    if not all(w.requires_grad for w in module.parameters()):
        raise ParameterError(
            "all weights of `module` must be trainable, got some that do not require a "
            "gradient. Call module.requires_grad_(True)."
        )
    return linear


def all_weights(layers: Layers, task: int) -> FitOptions:
    """Train all weights except those to classes of other tasks."""
    there = layers.heads == task
    return FitOptions(
        (
            *(torch.ones_like(w, dtype=torch.bool) for w in layers.weights[:-1]),
            there[:, None].expand_as(layers.weights[-1]),
        ),
        (*(torch.ones_like(b, dtype=torch.bool) for b in layers.biases[:-1]), there),
    )


def _output_weights(layers: Layers, task: int) -> FitOptions:
    """Train only the weights to the task's classes (step 1)."""
    every = all_weights(layers, task)
    return FitOptions(
        (*(torch.zeros_like(w) for w in every.weights[:-1]), every.weights[-1]),
        (*(torch.zeros_like(b) for b in every.biases[:-1]), every.biases[-1]),
    )


def path_weights(layers: Layers, task: int) -> FitOptions:
    """Train the weights between units that the task needs (step 1)."""
    afters = needed_units(layers, task)
    inputs = torch.ones(layers.weights[0].shape[1], dtype=torch.bool, device=afters[0].device)
    earlier = (inputs, *afters[:-1])
    return FitOptions(
        tuple(a[:, None] & b[None] for a, b in zip(afters, earlier, strict=True)), afters
    )


def new_unit_weights(layers: Layers, task: int) -> FitOptions:
    """Train the weights into and out of units added for the task (step 2)."""
    every = all_weights(layers, task)
    fresh = [s == task for s in layers.stamps]
    inputs = torch.zeros(layers.weights[0].shape[1], dtype=torch.bool, device=fresh[0].device)
    outs, ins = [*fresh, torch.zeros_like(every.biases[-1])], [inputs, *fresh]
    pairs = zip(every.weights, outs, ins, strict=True)
    return FitOptions(
        tuple(w & (a[:, None] | b[None]) for w, a, b in pairs), (*fresh, every.biases[-1])
    )


def needed_units(layers: Layers, task: int) -> tuple[Tensor, ...]:
    """Select the units of each layer with a path of nonzero weights to a task's classes.

    Parameters
    ----------
    layers : Layers
    task : int

    Returns
    -------
    units : tuple of Tensor of bool
        Mask for each layer; the last one selects the classes of the task.
    """
    found = [layers.heads == task]
    for w in reversed(layers.weights[1:]):
        found.append((w[found[-1]] != 0).any(dim=0))
    return tuple(reversed(found))


def split(layers: Layers, before: Layers, task: int, threshold: float) -> tuple[Layers, int]:
    """Split drifted units: copies keep the new weights, the units get their old weights back.

    Parameters
    ----------
    layers, before : Layers
        Layers after and before the task.
    task : int
    threshold : float
        σ: max distance that the weights into a unit may move.

    Returns
    -------
    layers : Layers
    copies : int
        Number of split units over all hidden layers.
    """
    weights, biases, stamps = list(layers.weights), list(layers.biases), list(layers.stamps)
    lower_split = torch.zeros(
        0, dtype=torch.long, device=layers.heads.device
    )  # units split in the layer below
    copies = 0
    for i, w in enumerate(layers.weights):
        last = i == len(layers.stamps)
        fresh = layers.heads == task if last else layers.stamps[i] == task
        drifted = lower_split[:0]
        if not last:
            old = before.weights[i]
            a, b = old.shape
            drifted = torch.nonzero((w[:a, :b] - old).norm(dim=1) > threshold)[:, 0]
            restored = w.clone()
            restored[drifted] = 0.0
            restored[drifted, :b] = old[drifted]
            bias = biases[i].clone()
            bias[drifted] = before.biases[i][drifted]
            biases[i] = torch.cat([bias, biases[i][drifted]])
            stamps[i] = torch.cat([stamps[i], stamps[i].new_full((len(drifted),), task)])
            w = torch.cat([restored, w[drifted]])  # noqa: PLW2901
            fresh = torch.cat([fresh, fresh.new_ones(len(drifted))])
        weights[i] = _rewire_copies(w, lower_split, fresh)
        lower_split, copies = drifted, copies + len(drifted)
    return replace(
        layers, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps)
    ), copies


def _rewire_copies(w: Tensor, lower_split: Tensor, fresh: Tensor) -> Tensor:
    """Add columns for the copies, which replace the originals for units of this task."""
    from_copies = torch.where(
        fresh[:, None], w[:, lower_split], torch.zeros_like(w[:, lower_split])
    )
    w = w.clone()
    w[:, lower_split] = torch.where(
        fresh[:, None], torch.zeros_like(w[:, lower_split]), w[:, lower_split]
    )
    return torch.cat([w, from_copies], dim=1)


class DEN(Tasked):
    """Perceptron that grows with its tasks.

    Predictions cover completed tasks only: ``after_task`` learns.

    Parameters
    ----------
    module : torch.nn.Sequential
        Linear layers with ReLU between them, the last with one output per class. Trained in
        place; its hidden layers grow.
    step_size : float, default=0.1
        η > 0.
    sparsity : float, default=1e-4
        μ >= 0.
    shrinkage : float, default=1e-4
        μ₂ >= 0.
    group : float, default=1e-3
        γ >= 0.
    drift : float, default=1e-3
        λ >= 0.
    loss_threshold : float, default=0.05
        τ >= 0.
    drift_threshold : float, default=0.1
        σ >= 0.
    units : int, default=10
        k, max number of units added to each hidden layer in step 2.
    epochs : int, default=5
        Passes over the rows of a task in each step.
    batch : int, default=32
        Rows per step.
    seed : int, default=0
        Seed of the order of rows and of new weights.

    Attributes
    ----------
    stamps_ : tuple of Tensor
        For each hidden layer, the task in which each unit was added, from 1.
    heads_ : Tensor of shape (c,)
        Last task that had each class; 0 if none had.
    units_added_, units_split_ : int
        Units added in step 2 and retained, and copies made in step 3.
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; visits to rows; and visits beyond the first.
    rows_stored_, max_rows_stored_ : int
        Rows stored now, and the maximum so far.
    tasks_ : int
        Number of completed tasks.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> model = baselines.DEN(module, epochs=40, batch=2, loss_threshold=0.0, units=3)
    >>> for k in (0, 2):  # four points on a circle, two per task
    ...     turn = torch.tensor([k, k + 1])
    ...     x = torch.stack([torch.cos(1.5 * turn), torch.sin(1.5 * turn)], dim=1)
    ...     model = model.learn(x, turn).after_task()
    >>> model.predict(x, classes=[2, 3]).tolist()
    [2, 3]
    >>> module[0].out_features == 8 + model.units_added_ + model.units_split_
    True
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "designed for prediction with known tasks: when tasks introduce new classes, no "
        "loss compares classes of different tasks"
    }
    """Scenarios in which the method is known to fail, and the reason."""

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        step_size: float = 0.1,
        sparsity: float = 1e-4,
        shrinkage: float = 1e-4,
        group: float = 1e-3,
        drift: float = 1e-3,
        loss_threshold: float = 0.05,
        drift_threshold: float = 0.1,
        units: int = 10,
        epochs: int = 5,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(
            module,
            loss="cross_entropy",
            step_size=step_size,
            momentum=0.0,
            epochs=epochs,
            batch=batch,
            seed=seed,
        )

        def limit(value: float, name: str) -> float:
            return validation.in_range(value, name, low=0.0)

        self.sparsity = limit(sparsity, "sparsity")
        self.shrinkage = limit(shrinkage, "shrinkage")
        self.group = limit(group, "group")
        self.drift = limit(drift, "drift")
        self.loss_threshold = limit(loss_threshold, "loss_threshold")
        self.drift_threshold = limit(drift_threshold, "drift_threshold")
        self.units = validation.whole(units, "units", low=0)
        self._linear = _linear_layers(module)
        where = {"device": self._like.device, "dtype": torch.long}
        hidden = [layer.out_features for layer in self._linear[:-1]]
        self.stamps_ = tuple(torch.ones(k, **where) for k in hidden)
        self.heads_ = torch.zeros(self._linear[-1].out_features, **where)
        self.units_added_ = 0
        self.units_split_ = 0

    # -- prediction ------------------------------------------------------------------------------

    def _rows(self, x: RowsLike, verb: str) -> Batch:
        rows = super()._rows(x, verb)
        if learner.unwrap(rows) is rows:
            raise TypeMismatchError(
                f"{self._where}.{verb}: `x` must be one tensor or array, got a "
                f"{type(x).__name__}. Pass the rows themselves."
            )
        return rows

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        where = f"{self._where}.{verb}"
        rows = learner.unwrap(self._rows(x, verb))
        if not self.tasks_:
            raise NotFittedError(
                "a task must have ended before prediction, got none. Call learn(x, y), "
                "then after_task().",
                where,
            )
        super()._outputs(x, verb)  # raises its errors for rows that do not fit
        with torch.no_grad():
            return self._layers().class_outputs(rows)

    def _layers(self) -> Layers:
        return Layers(
            tuple(layer.weight.detach() for layer in self._linear),
            tuple(layer.bias.detach() for layer in self._linear),
            self.stamps_,
            self.heads_,
        )

    # -- learning --------------------------------------------------------------------------------

    @property
    def _stores_rows(self) -> bool:
        return True

    def _learn_stored(self, x: Tensor, y: Tensor) -> None:
        task = self.tasks_ + 1
        before = self._layers()
        heads = before.heads.clone()
        heads[y.unique()] = task
        layers = replace(before, heads=heads)
        rows = (x, y)
        if task == 1:
            every = all_weights(layers, task)
            layers = self._fit(layers, rows, replace(every, sparsity=self.sparsity))
        else:
            layers = self._retrain(layers, rows)
            layers = self._expand(layers, rows)
            layers = self._split(layers, before, rows)
        if not all(bool(torch.isfinite(w).all()) for w in (*layers.weights, *layers.biases)):
            raise NumericalError(
                "weights must be finite, got nan or infinity. This task was not "
                "learned. Lower `step_size`, or scale the rows.",
                f"{self._where}.after_task",
            )
        self._install(layers)

    def _fit(self, layers: Layers, rows: tuple[Tensor, Tensor], options: FitOptions) -> Layers:
        # seeded by the number of visits, so that every fit has its own order
        rng = np.random.default_rng([self.seed, self.visits_])
        self.visits_ = self.visits_ + self.epochs * len(rows[0])
        return fit_layers(
            layers,
            rows,
            options,
            task=self.tasks_ + 1,
            step_size=self.step_size,
            epochs=self.epochs,
            batch=self.batch,
            rng=rng,
        )

    def _retrain(self, layers: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 1: retrain the output weights of the classes, then the units that they need."""
        task = self.tasks_ + 1
        free = replace(_output_weights(layers, task), sparsity=self.sparsity)
        layers = self._fit(layers, rows, free)
        free = replace(path_weights(layers, task), shrinkage=self.shrinkage)
        return self._fit(layers, rows, free)

    def _expand(self, layers: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 2: add units if the loss is above the threshold."""
        task, (x, y) = self.tasks_ + 1, rows
        classes = torch.nonzero(layers.heads == task)[:, 0]
        with torch.no_grad():
            outputs = layers.forward(x)[:, classes]
            loss = functional.cross_entropy(outputs, torch.searchsorted(classes, y))
        if not float(loss) > self.loss_threshold or not self.units or not layers.stamps:
            return layers
        with_new_units = layers.with_new_units(
            (self.units,) * len(layers.stamps), task, self.seed + task
        )
        free = replace(
            new_unit_weights(with_new_units, task), sparsity=self.sparsity, group=self.group
        )
        with_new_units = self._fit(with_new_units, rows, free)
        fresh = [s == task for s in with_new_units.stamps]
        used = [w.abs().sum(dim=1) > 0 for w in with_new_units.weights[:-1]]
        retained = tuple(~new | some for new, some in zip(fresh, used, strict=True))
        self.units_added_ = self.units_added_ + sum(
            int((new & some).sum()) for new, some in zip(fresh, used, strict=True)
        )
        return with_new_units.without(retained)

    def _split(self, layers: Layers, before: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 3: split units that drifted too far."""
        anchors = before.weights[:-1]
        free = all_weights(layers, self.tasks_ + 1)
        layers = self._fit(layers, rows, replace(free, drift=self.drift, anchors=anchors))
        layers, copies = split(layers, before, self.tasks_ + 1, self.drift_threshold)
        if copies:
            self.units_split_ = self.units_split_ + copies
            free = all_weights(layers, self.tasks_ + 1)
            layers = self._fit(layers, rows, replace(free, drift=self.drift, anchors=anchors))
        return layers

    def _install(self, layers: Layers) -> None:
        """Copy the layers into the module, with their new sizes."""
        for part, w, b in zip(self._linear, layers.weights, layers.biases, strict=True):
            for each, fresh in ((part.weight, w), (part.bias, b)):
                each.data, each.grad = fresh.detach().clone(), None
            part.out_features, part.in_features = w.shape
        self.__dict__.update(
            stamps_=layers.stamps,
            heads_=layers.heads,
            _trainable=learner.trainable_parameters(self.module),
        )

    def _stored(self) -> list[Batch | Tensor]:
        return [*super()._stored(), *self.stamps_, self.heads_]
