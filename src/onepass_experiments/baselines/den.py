"""DEN, dynamically expandable network: selective retraining, expansion, and splitting of units.

The first task is learned with μ ‖w‖₁ on all weights. For each later task t, of weights w before it:

    1  the weights of its classes alone, with μ ‖w‖₁; the units from which a path of weights
       other than 0 leads to them; these units' weights with μ₂/2 ‖w‖²           (3) (4), Alg. 2
    2  if the loss is then above τ: k units more in each hidden layer, whose weights alone are
       learned, with μ ‖w‖₁ + γ Σ_g ‖w_g‖; those whose weights are all 0 are removed  (5), Alg. 3
    3  all weights, with λ/2 ‖w − w^{t−1}‖²; a unit that moved by more than σ is split: a copy
       for this task keeps its new weights, the unit itself gets its old ones back; then learned
       again                                                                     (6), Alg. 4
    4  a class is predicted by the units that existed when its task came               3.4

A unit of stamp s serves the classes of tasks from s on: a class of task t is predicted by the units
of stamp <= t alone, so that later units do not change it ([1] 3.4). The paper predicts each task
alone; here the classes of all tasks are predicted together, as in class-incremental learning. The
outputs of a copy go to copies, new units and the task's classes, and not to earlier units, which
the paper leaves open. A class that comes again belongs to the last task that had it.

A fit is proximal stochastic gradient descent. With u the weights after a step of size η on the mean
cross entropy over the task's classes, its free weights become in turn

    w = soft(u, η μ)                        for  μ ‖w‖₁, so that weights become 0
    w = u / (1 + η μ₂)                      for  μ₂/2 ‖w‖²
    w_g = u_g max(0, 1 − η γ / ‖u_g‖)       for  γ Σ ‖w_g‖, a group the weights into a unit
    w = (u + η λ a) / (1 + η λ)             for  λ/2 ‖w − a‖²

Cost: rows of the task are held until it ends; up to 5 · epochs passes over them.

[1] J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong learning with dynamically expandable networks",
    ICLR 2018.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from onepass import validation
from onepass.errors import NotFittedError, NumericalError, ParameterError, TypeMismatchError
from onepass.nn.batch import Batch, RowsLike
from onepass_experiments.baselines import learner
from onepass_experiments.baselines.learner import Tasked

__all__ = [
    "DEN",
    "Freedom",
    "Layers",
    "all_free",
    "fitted",
    "needed",
    "new_free",
    "path_free",
    "split",
]


@dataclass(frozen=True, eq=False)
class Layers:
    """The weights of a perceptron with ReLU between its layers.

    Parameters
    ----------
    weights : tuple of Tensor
        (out, in) of each layer, the last to the classes.
    biases : tuple of Tensor
        (out,) of each.
    stamps : tuple of Tensor
        Of each hidden layer the task for which each unit came, from 1 on.
    heads : Tensor of shape (c,)
        The last task that had the class; 0 where none had.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    stamps: tuple[Tensor, ...]
    heads: Tensor

    def say(self, x: Tensor, task: int | None = None) -> Tensor:
        """Outputs (n, c), of all units or of those that a task knows."""
        for i, stamps in enumerate(self.stamps):
            x = functional.linear(x, self.weights[i], self.biases[i]).relu()
            if task is not None:
                x = x * (stamps <= task)
        return functional.linear(x, self.weights[-1], self.biases[-1])

    def answer(self, x: Tensor) -> Tensor:
        """Outputs (n, c), each class by its own task's units; −∞ of those that no task had."""
        told = x.new_full((len(x), len(self.heads)), -torch.inf)
        for task in self.heads[self.heads > 0].unique().tolist():
            there = self.heads == task
            told[:, there] = self.say(x, task)[:, there]
        return told

    def grown(self, units: tuple[int, ...], task: int, seed: int) -> "Layers":
        """With so many units more in each hidden layer, of small random weights."""
        generator = torch.Generator().manual_seed(seed)
        weights, biases, stamps = [], [], []
        before = 0
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            after = units[i] if i < len(units) else 0
            old, width = w.shape[0], w.shape[1] + before
            # as torch starts a Linear, by the unit's width
            fresh = (2 * torch.rand(old + after, width, generator=generator) - 1) / width**0.5
            fresh = fresh.to(w)
            fresh[:old, : w.shape[1]] = w
            if i == len(units):  # no class of another task is led to
                fresh[self.heads != task, w.shape[1] :] = 0.0
            weights.append(fresh)
            biases.append(torch.cat([b, b.new_zeros(after)]))
            before = after
        for s, more in zip(self.stamps, units, strict=True):
            stamps.append(torch.cat([s, s.new_full((more,), task)]))
        return replace(self, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps))

    def without(self, kept: tuple[Tensor, ...]) -> "Layers":
        """With the units of each hidden layer that are to be kept, (units,) of bool each."""
        weights = list(self.weights)
        for i, some in enumerate(kept):
            weights[i], weights[i + 1] = weights[i][some], weights[i + 1][:, some]
        return Layers(
            tuple(weights),
            (*(b[some] for b, some in zip(self.biases, kept, strict=False)), self.biases[-1]),
            tuple(s[some] for s, some in zip(self.stamps, kept, strict=True)),
            self.heads,
        )


@dataclass(frozen=True, eq=False)
class Freedom:
    """What of the layers a fit may change, and what it pays for it.

    Parameters
    ----------
    weights, biases : tuple of Tensor of bool
        Which are free.
    sparsity, shrinkage, drift : float
        μ, μ₂ and λ.
    group : float
        γ, of units of this task.
    anchors : tuple of Tensor, or empty
        a of the leading rows and columns of each hidden layer's weights.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    sparsity: float = 0.0
    shrinkage: float = 0.0
    drift: float = 0.0
    group: float = 0.0
    anchors: tuple[Tensor, ...] = ()


def fitted(
    layers: Layers,
    rows: tuple[Tensor, Tensor],
    freedom: Freedom,
    *,
    task: int,
    step_size: float,
    epochs: int,
    batch: int,
    rng: np.random.Generator,
) -> Layers:
    """The layers after some passes over the rows of a task.

    Parameters
    ----------
    layers : Layers
    rows : tuple of Tensor
        x (n, d) and classes (n,).
    freedom : Freedom
    task : int
        t, from 1 on; its classes are those whose head has it.
    step_size : float
        η.
    epochs, batch : int
        Passes, and rows a step.
    rng : Generator
        Draws the order of rows.
    """
    x, y = rows
    classes = torch.nonzero(layers.heads == task)[:, 0]
    labels = torch.searchsorted(classes, y)
    depth = len(layers.weights)
    free = [*freedom.weights, *freedom.biases]
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
        for chosen in order.split(batch):
            held = [w.detach().requires_grad_() for w in (*layers.weights, *layers.biases)]
            now = replace(layers, weights=tuple(held[:depth]), biases=tuple(held[depth:]))
            with torch.enable_grad():
                said = now.say(x[chosen])[:, classes]
                slopes = torch.autograd.grad(functional.cross_entropy(said, labels[chosen]), held)
            with torch.no_grad():
                moved = [
                    w - step_size * g * some for w, g, some in zip(held, slopes, free, strict=True)
                ]
                weights = tuple(
                    _paid(u, i, layers, freedom, step_size, task)
                    for i, u in enumerate(moved[:depth])
                )
            layers = replace(layers, weights=weights, biases=tuple(moved[depth:]))
    return layers


def _paid(
    u: Tensor, i: int, layers: Layers, freedom: Freedom, step_size: float, task: int
) -> Tensor:
    """The weights of a layer after what is paid for them, in turn."""
    some = freedom.weights[i]
    if freedom.sparsity:
        u = torch.where(some, functional.softshrink(u, step_size * freedom.sparsity), u)
    if freedom.shrinkage:
        u = torch.where(some, u / (1.0 + step_size * freedom.shrinkage), u)
    if freedom.group and i < len(layers.stamps):
        norm = u.norm(dim=1, keepdim=True)
        less = (1.0 - step_size * freedom.group / norm.clamp(min=1e-30)).clamp(min=0.0)
        u = torch.where((layers.stamps[i] == task)[:, None], u * less, u)
    if freedom.drift and i < len(freedom.anchors):
        anchor, pull = freedom.anchors[i], step_size * freedom.drift
        a, b = anchor.shape
        u = u.clone()
        u[:a, :b] = (u[:a, :b] + pull * anchor) / (1.0 + pull)
    return u


def _linear_layers(module: torch.nn.Module, where: str) -> list[torch.nn.Linear]:
    """The Linear layers of a perceptron."""
    if not isinstance(module, torch.nn.Sequential):
        raise TypeMismatchError(
            f"{where}: `module` must be a torch.nn.Sequential, got {type(module).__name__}. Put "
            "the layers into one."
        )
    wanted = [torch.nn.Linear, torch.nn.ReLU] * (len(module) // 2) + [torch.nn.Linear]
    right = len(wanted) == len(module) and all(
        type(part) is kind for part, kind in zip(module, wanted, strict=True)
    )
    linear = [part for part in module if isinstance(part, torch.nn.Linear)]
    alone = len(list(module.parameters())) == 2 * len(linear)  # no layer is shared
    if not right or not alone or any(part.bias is None for part in linear):
        raise ParameterError(
            f"{where}: `module` must be Linear layers with biases, none shared, and ReLU "
            f"between them, got {', '.join(type(part).__name__ for part in module)}. Make such a "
            "perceptron; pictures are given flat."
        )
    if not all(w.requires_grad for w in module.parameters()):
        raise ParameterError(
            f"{where}: all weights of `module` must learn, got some that require no gradient. "
            "Call module.requires_grad_(True)."
        )
    return linear


def all_free(layers: Layers, task: int) -> Freedom:
    """All weights but those to classes of other tasks."""
    there = layers.heads == task
    return Freedom(
        (
            *(torch.ones_like(w, dtype=torch.bool) for w in layers.weights[:-1]),
            there[:, None].expand_as(layers.weights[-1]),
        ),
        (*(torch.ones_like(b, dtype=torch.bool) for b in layers.biases[:-1]), there),
    )


def _last_free(layers: Layers, task: int) -> Freedom:
    """The weights to the task's classes alone, step 1."""
    every = all_free(layers, task)
    return Freedom(
        (*(torch.zeros_like(w) for w in every.weights[:-1]), every.weights[-1]),
        (*(torch.zeros_like(b) for b in every.biases[:-1]), every.biases[-1]),
    )


def path_free(layers: Layers, task: int) -> Freedom:
    """The weights between units that the task needs, step 1."""
    afters = needed(layers, task)
    inputs = torch.ones(layers.weights[0].shape[1], dtype=torch.bool, device=afters[0].device)
    earlier = (inputs, *afters[:-1])
    return Freedom(
        tuple(a[:, None] & b[None] for a, b in zip(afters, earlier, strict=True)), afters
    )


def new_free(layers: Layers, task: int) -> Freedom:
    """The weights into and out of units that came for the task, step 2."""
    every = all_free(layers, task)
    fresh = [s == task for s in layers.stamps]
    inputs = torch.zeros(layers.weights[0].shape[1], dtype=torch.bool, device=fresh[0].device)
    outs, ins = [*fresh, torch.zeros_like(every.biases[-1])], [inputs, *fresh]
    pairs = zip(every.weights, outs, ins, strict=True)
    return Freedom(
        tuple(w & (a[:, None] | b[None]) for w, a, b in pairs), (*fresh, every.biases[-1])
    )


def needed(layers: Layers, task: int) -> tuple[Tensor, ...]:
    """The units of each layer from which a path of weights other than 0 leads to a task's classes.

    Parameters
    ----------
    layers : Layers
    task : int

    Returns
    -------
    units : tuple of Tensor of bool
        Of each layer, the classes of the task at last.
    """
    found = [layers.heads == task]
    for w in reversed(layers.weights[1:]):
        found.append((w[found[-1]] != 0).any(dim=0))
    return tuple(reversed(found))


def split(layers: Layers, before: Layers, task: int, threshold: float) -> tuple[Layers, int]:
    """Copies for this task of the units that drifted, which get their old weights back.

    Parameters
    ----------
    layers, before : Layers
        After and before the task.
    task : int
    threshold : float
        σ: how far the weights into a unit may move.

    Returns
    -------
    layers : Layers
    copies : int
        How many units were split, over all hidden layers.
    """
    weights, biases, stamps = list(layers.weights), list(layers.biases), list(layers.stamps)
    past = torch.zeros(0, dtype=torch.long, device=layers.heads.device)  # split in the layer below
    copies = 0
    for i, w in enumerate(layers.weights):
        last = i == len(layers.stamps)
        fresh = layers.heads == task if last else layers.stamps[i] == task
        apart = past[:0]
        if not last:
            old = before.weights[i]
            a, b = old.shape
            apart = torch.nonzero((w[:a, :b] - old).norm(dim=1) > threshold)[:, 0]
            restored = w.clone()
            restored[apart] = 0.0
            restored[apart, :b] = old[apart]
            bias = biases[i].clone()
            bias[apart] = before.biases[i][apart]
            biases[i] = torch.cat([bias, biases[i][apart]])
            stamps[i] = torch.cat([stamps[i], stamps[i].new_full((len(apart),), task)])
            w = torch.cat([restored, w[apart]])  # noqa: PLW2901
            fresh = torch.cat([fresh, fresh.new_ones(len(apart))])
        weights[i] = _led_from_copies(w, past, fresh)
        past, copies = apart, copies + len(apart)
    return replace(
        layers, weights=tuple(weights), biases=tuple(biases), stamps=tuple(stamps)
    ), copies


def _led_from_copies(w: Tensor, past: Tensor, fresh: Tensor) -> Tensor:
    """With columns for copies, which lead to what is of this task in the originals' place."""
    from_copies = torch.where(fresh[:, None], w[:, past], torch.zeros_like(w[:, past]))
    w = w.clone()
    w[:, past] = torch.where(fresh[:, None], torch.zeros_like(w[:, past]), w[:, past])
    return torch.cat([w, from_copies], dim=1)


class DEN(Tasked):
    """A perceptron that grows with its tasks.

    Answers are those of ended tasks: ``after_task`` learns.

    Parameters
    ----------
    module : torch.nn.Sequential
        Linear layers with ReLU between them, the last with an output a class; learns in place,
        and its hidden layers grow.
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
        k, units more in each hidden layer, at most, in step 2.
    epochs : int, default=5
        Passes over the rows of a task in each step.
    batch : int, default=32
        Rows a step.
    seed : int, default=0
        Draws the order of rows, and new weights.

    Attributes
    ----------
    stamps_ : tuple of Tensor
        Of each hidden layer, the task for which each unit came, from 1 on.
    heads_ : Tensor of shape (c,)
        The last task that had each class; 0 where none had.
    units_added_, units_split_ : int
        Units that stayed of step 2, and copies of step 3.
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; how often a row was gone through; and that beyond once.
    rows_stored_, max_rows_stored_ : int
        Rows held now, and at most.
    tasks_ : int
        Tasks that ended.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> model = baselines.DEN(module, epochs=40, batch=2, loss_threshold=0.0, units=3)
    >>> for k in (0, 2):  # two of four points of a circle a task
    ...     turn = torch.tensor([k, k + 1])
    ...     x = torch.stack([torch.cos(1.5 * turn), torch.sin(1.5 * turn)], dim=1)
    ...     model = model.learn(x, turn).after_task()
    >>> model.predict(x, classes=[2, 3]).tolist()
    [2, 3]
    >>> module[0].out_features == 8 + model.units_added_ + model.units_split_
    True
    """

    limits: ClassVar[Mapping[str, str]] = {
        "class": "made for tasks that are known when it answers: where they bring new classes, no "
        "loss compares classes of different tasks"
    }
    """Settings in which it is known not to work, and why."""

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
            return validation.in_range(value, name, self._where, low=0.0)

        self.sparsity = limit(sparsity, "sparsity")
        self.shrinkage = limit(shrinkage, "shrinkage")
        self.group = limit(group, "group")
        self.drift = limit(drift, "drift")
        self.loss_threshold = limit(loss_threshold, "loss_threshold")
        self.drift_threshold = limit(drift_threshold, "drift_threshold")
        self.units = validation.whole(units, "units", self._where, low=0)
        self._linear = _linear_layers(module, self._where)
        where = {"device": self._like.device, "dtype": torch.long}
        hidden = [layer.out_features for layer in self._linear[:-1]]
        self.stamps_ = tuple(torch.ones(k, **where) for k in hidden)
        self.heads_ = torch.zeros(self._linear[-1].out_features, **where)
        self.units_added_ = 0
        self.units_split_ = 0

    # -- answers ---------------------------------------------------------------------------------

    def _rows(self, x: RowsLike, verb: str) -> Batch:
        rows = super()._rows(x, verb)
        if learner.plain(rows) is rows:
            raise TypeMismatchError(
                f"{self._where}.{verb}: `x` must be one tensor or array, which a perceptron takes, "
                f"got a {type(x).__name__}. Give the rows themselves."
            )
        return rows

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        where = f"{self._where}.{verb}"
        rows = learner.plain(self._rows(x, verb))
        if not self.tasks_:
            raise NotFittedError(
                f"{where}: a task must have ended before answers, got none. Call learn(x, y), "
                "then after_task()."
            )
        super()._outputs(x, verb)  # rows that do not fit are refused in its words
        with torch.no_grad():
            return self._layers().answer(rows)

    def _layers(self) -> Layers:
        return Layers(
            tuple(layer.weight.detach() for layer in self._linear),
            tuple(layer.bias.detach() for layer in self._linear),
            self.stamps_,
            self.heads_,
        )

    # -- learning --------------------------------------------------------------------------------

    @property
    def _holds(self) -> bool:
        return True

    def _learn_held(self, x: Tensor, y: Tensor) -> None:
        task = self.tasks_ + 1
        before = self._layers()
        heads = before.heads.clone()
        heads[y.unique()] = task
        layers = replace(before, heads=heads)
        rows = (x, y)
        if task == 1:
            every = all_free(layers, task)
            layers = self._fitted(layers, rows, replace(every, sparsity=self.sparsity))
        else:
            layers = self._retrained(layers, rows)
            layers = self._expanded(layers, rows)
            layers = self._split(layers, before, rows)
        if not all(bool(torch.isfinite(w).all()) for w in (*layers.weights, *layers.biases)):
            raise NumericalError(
                f"{self._where}.after_task: weights must be finite, got some that are not. Nothing "
                "was learned of this task. Lower `step_size`, or scale the rows."
            )
        self._install(layers)

    def _fitted(self, layers: Layers, rows: tuple[Tensor, Tensor], freedom: Freedom) -> Layers:
        # from the visits so far alone: no fit has the order of another
        rng = np.random.default_rng([self.seed, self.visits_])
        self.visits_ = self.visits_ + self.epochs * len(rows[0])
        return fitted(
            layers,
            rows,
            freedom,
            task=self.tasks_ + 1,
            step_size=self.step_size,
            epochs=self.epochs,
            batch=self.batch,
            rng=rng,
        )

    def _retrained(self, layers: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 1: the classes' weights, and then those of the units that they need."""
        task = self.tasks_ + 1
        free = replace(_last_free(layers, task), sparsity=self.sparsity)
        layers = self._fitted(layers, rows, free)
        free = replace(path_free(layers, task), shrinkage=self.shrinkage)
        return self._fitted(layers, rows, free)

    def _expanded(self, layers: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 2: more units, where the loss is not low enough."""
        task, (x, y) = self.tasks_ + 1, rows
        classes = torch.nonzero(layers.heads == task)[:, 0]
        with torch.no_grad():
            said = layers.say(x)[:, classes]
            loss = functional.cross_entropy(said, torch.searchsorted(classes, y))
        if not float(loss) > self.loss_threshold or not self.units or not layers.stamps:
            return layers
        grown = layers.grown((self.units,) * len(layers.stamps), task, self.seed + task)
        free = replace(new_free(grown, task), sparsity=self.sparsity, group=self.group)
        grown = self._fitted(grown, rows, free)
        fresh = [s == task for s in grown.stamps]
        used = [w.abs().sum(dim=1) > 0 for w in grown.weights[:-1]]
        kept = tuple(~new | some for new, some in zip(fresh, used, strict=True))
        self.units_added_ = self.units_added_ + sum(
            int((new & some).sum()) for new, some in zip(fresh, used, strict=True)
        )
        return grown.without(kept)

    def _split(self, layers: Layers, before: Layers, rows: tuple[Tensor, Tensor]) -> Layers:
        """Step 3: what drifted too far is split."""
        anchors = before.weights[:-1]
        free = all_free(layers, self.tasks_ + 1)
        layers = self._fitted(layers, rows, replace(free, drift=self.drift, anchors=anchors))
        layers, copies = split(layers, before, self.tasks_ + 1, self.drift_threshold)
        if copies:
            self.units_split_ = self.units_split_ + copies
            free = all_free(layers, self.tasks_ + 1)
            layers = self._fitted(layers, rows, replace(free, drift=self.drift, anchors=anchors))
        return layers

    def _install(self, layers: Layers) -> None:
        """Write the layers into the module, which may have grown."""
        for part, w, b in zip(self._linear, layers.weights, layers.biases, strict=True):
            for each, fresh in ((part.weight, w), (part.bias, b)):
                each.data, each.grad = fresh.detach().clone(), None
            part.out_features, part.in_features = w.shape
        self.__dict__.update(
            stamps_=layers.stamps,
            heads_=layers.heads,
            _learning=learner.learning(self.module, self._where),
        )

    def _kept(self) -> list[Batch | Tensor]:
        return [*super()._kept(), *self.stamps_, self.heads_]
