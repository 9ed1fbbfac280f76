"""iCaRL: classification by the nearest mean of stored exemplars.

With φ(x) the features of the last layer, of length one, and P_y = (p_1, p_2, …) the exemplars of
class y, in the order in which they were chosen,

    prediction  argmin_y ‖φ(x) − μ_y‖,   μ_y = mean of φ(p), of length one          Algorithm 1
    learning    on the task's rows and all exemplars, with g the sigmoid of an output and q the
                sigmoid of the output before the task divided by T: mean over rows of
                −Σ_new [y] log g_y + [not y] log(1 − g_y)
                −Σ_old q_y log g_y + (1 − q_y) log(1 − g_y)                         Algorithm 3
    herding     p_k = argmin_x ‖μ − (φ(x) + Σ_{j<k} φ(p_j)) / k‖, x not yet chosen   Algorithm 4
    budget      the first ⌊K / classes⌋ of each class                               Algorithm 5

With T = 1, as in the paper, a new row that resembles an old class has to retain that class's
probability, so the difference between the two is not learned. T = 2 softens the former outputs as
in distillation [2]. In [2] the outputs of the student are softened too; here they are not, so they
shrink from task to task, which does not affect the means of features.

iCaRL stores exemplars, and the rows of the current task until the task ends, and makes ``epochs``
passes over all of them: it is not a one-pass learner, but a bound for methods that may store rows.
A class that recurs in a later task is learned as a new class from its new rows and its exemplars,
from which new exemplars are chosen.

Cost: epochs · (rows of the task + K) per task; herding takes m · n · features per class.

[1] S.-A. Rebuffi, A. Kolesnikov, G. Sperl, C. H. Lampert, "iCaRL: incremental classifier and
    representation learning", CVPR 2017: algorithms 1 to 5.
[2] G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onepass import validation
from onepass.errors import NotFittedError, ParameterError, public
from onepass.nn.batch import Batch, RowsLike, joined
from onepass_experiments.baselines.learner import Tasked, eval_outputs


class ICaRL(Tasked):
    """Nearest mean of exemplars, in features learned with distillation.

    Predictions cover completed tasks only: ``after_task`` learns.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place. The inputs of its last ``torch.nn.Linear`` are the features, and its
        outputs are one per class.
    step_size : float, default=0.1
        η > 0.
    momentum : float, default=0.0
        μ in [0, 1].
    capacity : int, default=2000
        K, max number of exemplars in total.
    temperature : float, default=1.0
        T > 0, divisor of the former outputs in the distillation targets.
    epochs : int, default=10
        Passes over the rows of a task and the exemplars when the task ends.
    batch : int, default=32
        Rows per step.
    seed : int, default=0
        Seed of the order of rows in each pass.

    Attributes
    ----------
    classes_ : tuple of int
        Classes of completed tasks.
    exemplars_ : tuple of Tensor
        Exemplars of each class (m, …), the best first.
    means_ : Tensor of shape (classes, features)
        μ.
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; visits to rows and exemplars; and visits beyond the first.
    rows_stored_, max_rows_stored_ : int
        Exemplars and rows stored now, and the maximum so far.
    tasks_ : int
        Number of completed tasks.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is invalid, or there is no Linear layer.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> module = torch.nn.Linear(2, 4)
    >>> model = baselines.ICaRL(module, capacity=6)
    >>> for a, b in ((0, 1), (2, 3)):  # four points on a circle, two per task
    ...     turn = torch.tensor([a, a, a, b, b, b])
    ...     x = torch.stack([torch.cos(1.5 * turn), torch.sin(1.5 * turn)], dim=1)
    ...     model = model.learn(x, turn).after_task()
    >>> model.predict([[1.0, 0.1], [-0.2, 1.0], [-1.0, 0.1], [-0.1, -1.0]]).tolist()
    [0, 1, 2, 3]
    >>> model.rows_stored_, model.rows_repeated_
    (4, 168)
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        step_size: float = 0.1,
        momentum: float = 0.0,
        capacity: int = 2000,
        temperature: float = 1.0,
        epochs: int = 10,
        batch: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(
            module,
            loss="cross_entropy",
            step_size=step_size,
            momentum=momentum,
            epochs=epochs,
            batch=batch,
            seed=seed,
        )
        self.capacity = validation.whole(capacity, "capacity", low=1)
        self.temperature = validation.in_range(temperature, "temperature", above=0.0)
        layers = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
        if not layers:
            raise ParameterError(
                "`module` must have a torch.nn.Linear, whose inputs are the features, "
                f"got {type(module).__name__} without one. Add one as the last layer.",
                self._where,
            )
        self._head = layers[-1]
        self._passing = False
        self.classes_: tuple[int, ...] = ()
        self.exemplars_: tuple[Batch | Tensor, ...] = ()
        self.means_: Any = None

    # -- prediction ------------------------------------------------------------------------------

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        """Return −‖φ(x) − μ_y‖ for the classes of completed tasks, −∞ for others."""
        where = f"{self._where}.{verb}"
        rows = self._rows(x, verb)
        if self.means_ is None:
            raise NotFittedError(
                "a task must have ended before prediction, got none. Call learn(x, y), "
                "then after_task().",
                where,
            )
        near = self._like.new_full((len(rows), self._head.out_features), -torch.inf)
        if len(rows):
            wide = torch.promote_types(
                near.dtype, torch.float32
            )  # cdist supports no lower precision
            away = torch.cdist(self._features(rows).to(wide), self.means_.to(wide))
            near[:, list(self.classes_)] = -away.to(near.dtype)
        return near

    def _features(self, x: Batch | Tensor) -> Tensor:
        """Return φ(x), (n, features), of length one."""
        caught: list[tuple[Tensor, Tensor]] = []
        hook = self._head.register_forward_hook(lambda _, given, z: caught.append((given[0], z)))
        try:
            outputs = eval_outputs(self.module, {}, x, self._where)
        finally:
            hook.remove()
        if not caught or not torch.equal(caught[-1][1], outputs):
            raise ParameterError(
                "the torch.nn.Linear that was created last in `module` must produce its outputs, "
                "got outputs of another layer. Create the output layer last.",
                self._where,
            )
        return functional.normalize(caught[-1][0].reshape(len(x), -1), dim=1)

    # -- learning --------------------------------------------------------------------------------

    @property
    def _stores_rows(self) -> bool:
        return True

    def _learn_stored(self, x: Batch | Tensor, y: Tensor) -> None:
        """Run Algorithm 3, then choose exemplars."""
        fresh = sorted(set(y.tolist()))
        old = [k for k in self.classes_ if k not in fresh]
        classes = tuple(sorted({*fresh, *old}))
        if len(classes) > self.capacity:
            raise ParameterError(
                f"`capacity` must be at least one row per class, got {self.capacity} "
                f"for {len(classes)} classes. Increase it.",
                f"{self._where}.after_task",
            )
        rows = joined([x, *self.exemplars_])
        pairs = zip(self.classes_, self.exemplars_, strict=True)
        y = torch.cat([y, *(torch.full((len(p),), k).to(y) for k, p in pairs)])
        targets = self._output_targets(rows, y, old, classes)
        self._passing = True
        self._run_epochs(rows, targets)
        self._passing = False
        self._choose(rows, y, classes, self.capacity // len(classes), fresh)

    def _output_targets(
        self, x: Batch | Tensor, y: Tensor, old: list[int], classes: tuple[int, ...]
    ) -> Tensor:
        """Return the target of each output; nan for classes not seen yet."""
        targets = self._like.new_full((len(x), self._head.out_features), torch.nan)
        targets[:, list(classes)] = 0.0
        targets[torch.arange(len(x)), y] = 1.0
        if old:
            before = eval_outputs(self.module, {}, x, self._where)[:, old]
            targets[:, old] = (before / self.temperature).sigmoid()
        return targets

    def _targets(self, y: Tensor, outputs: Tensor) -> Tensor:
        # during the passes, y contains one target per output
        return y if self._passing else super()._targets(y, outputs)

    def _objective(self, x: Batch | Tensor, outputs: Tensor, y: Tensor) -> Tensor:
        there = ~y[0].isnan()
        loss = functional.binary_cross_entropy_with_logits(
            outputs[:, there], y[:, there], reduction="sum"
        )
        return loss / len(x)

    def _choose(
        self, x: Batch | Tensor, y: Tensor, classes: tuple[int, ...], m: int, fresh: list[int]
    ) -> None:
        """Run Algorithms 4 and 5, and compute the means of the exemplars."""
        before = dict(zip(self.classes_, self.exemplars_, strict=True))
        exemplars = []
        for label in classes:
            if label in fresh:
                rows = x[y == label]
                features = self._features(rows)
                exemplars.append(rows[herded(features, _mean(features), m)])
            else:
                exemplars.append(before[label][:m].clone())
        means = [_mean(self._features(p)) for p in exemplars]
        count = sum(map(len, exemplars))
        waiting = sum(len(rows) for rows, _ in self.task_batches_)
        self.__dict__.update(
            classes_=classes,
            exemplars_=tuple(exemplars),
            means_=torch.stack(means),
            rows_stored_=count + waiting,
            max_rows_stored_=max(self.max_rows_stored_, count + waiting),
        )

    def _stored(self) -> list[Batch | Tensor]:
        means = [] if self.means_ is None else [self.means_]
        return [*super()._stored(), *self.exemplars_, *means]


def _mean(features: Tensor) -> Tensor:
    return functional.normalize(features.mean(dim=0), dim=0)


def herded(features: Tensor, mean: Tensor, m: int) -> Tensor:
    """Choose the rows whose running mean is nearest to the mean of all rows (Algorithm 4).

    Parameters
    ----------
    features : Tensor of shape (n, k)
        φ(x) for the rows of a class.
    mean : Tensor of shape (k,)
        μ.
    m : int
        Max number of rows.

    Returns
    -------
    chosen : Tensor of shape (min(m, n),)
        Distinct row indices, the best first.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> herded(x, x.mean(dim=0), 3).tolist()
    [2, 1, 3]
    """
    total, lengths = torch.zeros_like(mean), features.square().sum(dim=1)
    left = torch.ones(len(features), dtype=torch.bool, device=features.device)
    chosen = []
    for k in range(1, min(m, len(features)) + 1):
        # k² ‖μ − (φ + Σ) / k‖² minus ‖k μ − Σ‖², which is equal for all rows
        away = lengths - 2.0 * (features @ (k * mean - total))
        best = int(away.masked_fill(~left, torch.inf).argmin())
        chosen.append(best)
        left[best] = False
        total = total + features[best]
    return torch.tensor(chosen, device=features.device)
