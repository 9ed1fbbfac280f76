"""DEN, dynamically expandable network: retrain what a task needs, grow, and split what drifts.

The first task is learned with μ ‖w‖₁ on all weights. For each later task t, of weights w before it:

    1  the weights of its classes alone, with μ ‖w‖₁; the units from which a path of weights
       other than 0 leads to them; these units' weights with μ₂/2 ‖w‖²           (3) (4), Alg. 2
    2  if the loss is then above τ: k units more in each hidden layer, whose weights alone are
       learned, with μ ‖w‖₁ + γ Σ_g ‖w_g‖; those whose weights are all 0 go again     (5), Alg. 3
    3  all weights, with λ/2 ‖w − w^{t−1}‖²; a unit that moved by more than σ is split: a copy
       for this task keeps its new weights, itself gets the old ones back; learned again so
                                                                                 (6), Alg. 4
    4  a class is answered by the units that were there when its task came             3.4

Here the classes of all tasks answer together, as in class-incremental learning, where the paper
asks each task's alone. What leads from a copy goes to copies, new units and the task's classes;
earlier units are not led to, which the paper leaves open. A class that comes again belongs to the
last task that had it. The layers and their fit are in :mod:`onepass.baselines.den_layers`.

Cost: rows of the task are held until it ends; up to 5 · epochs passes over them.

J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong learning with dynamically expandable networks",
ICLR 2018.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from onepass import validation
from onepass.baselines import intake
from onepass.baselines.den_layers import Freedom, Layers, fitted
from onepass.baselines.den_units import (
    all_free,
    last_free,
    linear_layers,
    new_free,
    path_free,
    split,
)
from onepass.baselines.tasked import Tasked
from onepass.errors import NotFittedError, NumericalError, TypeMismatchError
from onepass.nn.batch import Batch

__all__ = ["DEN"]


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
    rows_kept_, most_rows_kept_ : int
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
    >>> import onepass as op
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    >>> model = op.baselines.DEN(module, epochs=40, batch=2, loss_threshold=0.0, units=3)
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
        module: Any,
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
        self._linear = linear_layers(module, self._where)
        where = {"device": self._like.device, "dtype": torch.long}
        hidden = [layer.out_features for layer in self._linear[:-1]]
        self.stamps_ = tuple(torch.ones(k, **where) for k in hidden)
        self.heads_ = torch.zeros(self._linear[-1].out_features, **where)
        self.units_added_ = 0
        self.units_split_ = 0

    # -- answers ---------------------------------------------------------------------------------

    def _rows(self, x: Any, verb: str) -> Batch:
        rows = super()._rows(x, verb)
        if intake.plain(rows) is rows:
            raise TypeMismatchError(
                f"{self._where}.{verb}: `x` must be one tensor or array, which a perceptron takes, "
                f"got a {type(x).__name__}. Give the rows themselves."
            )
        return rows

    def _outputs(self, x: Any, verb: str) -> Any:
        where = f"{self._where}.{verb}"
        rows = intake.plain(self._rows(x, verb))
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

    def _learn_held(self, x: Any, y: Any) -> None:
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

    def _fitted(self, layers: Layers, rows: Any, freedom: Freedom) -> Layers:
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

    def _retrained(self, layers: Layers, rows: Any) -> Layers:
        """Step 1: the classes' weights, and then those of the units that they need."""
        task = self.tasks_ + 1
        free = replace(last_free(layers, task), sparsity=self.sparsity)
        layers = self._fitted(layers, rows, free)
        free = replace(path_free(layers, task), shrinkage=self.shrinkage)
        return self._fitted(layers, rows, free)

    def _expanded(self, layers: Layers, rows: Any) -> Layers:
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

    def _split(self, layers: Layers, before: Layers, rows: Any) -> Layers:
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
            _learning=intake.learning(self.module, self._where),
        )

    def _kept(self) -> list[Any]:
        return [*super()._kept(), *self.stamps_, self.heads_]
