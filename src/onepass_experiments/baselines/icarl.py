"""iCaRL: classification by the nearest mean of stored exemplars.

With φ(x) the features of the last layer, of length one, and P_y = (p_1, p_2, …) the exemplars of
class y, in the order in which they were chosen,

    prediction  argmin_y ‖φ(x) − μ_y‖,   μ_y = mean of φ(p), of length one          Algorithm 1
    learning    on the task's rows and all exemplars, with g = sigmoid of an output and q the
                sigmoid of what it was before the task, over T: mean over rows of
                −Σ_new [y] log g_y + [not y] log(1 − g_y)
                −Σ_old q_y log g_y + (1 − q_y) log(1 − g_y)                         Algorithm 3
    herding     p_k = argmin_x ‖μ − (φ(x) + Σ_{j<k} φ(p_j)) / k‖, x not yet chosen   Algorithm 4
    budget      of each class the first ⌊K / classes⌋                               Algorithm 5

With T = 1, as in the paper, a new row that resembles an old class must keep that class's
probability, and the difference between the two is not learned. T = 2 softens the former outputs as
in distillation [2]. There the outputs of the student are softened too; here they are not, so they
shrink from task to task, which does not affect the means of features.

It stores exemplars, holds the rows of the current task until it ends, and makes ``epochs`` passes
over all of them: a bound for methods that may store rows, and no one-pass learning. A class that
comes again in a later task is learned as a new one, from its new rows and its exemplars, of which
exemplars are chosen anew.

Cost: epochs · (rows of the task + K) a task; herding takes m · n · features a class.

[1] S.-A. Rebuffi, A. Kolesnikov, G. Sperl, C. H. Lampert, "iCaRL: incremental classifier and
    representation learning", CVPR 2017: algorithms 1 to 5.
[2] G. Hinton, O. Vinyals, J. Dean, "Distilling the knowledge in a neural network", 2015.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onepass import validation
from onepass.errors import NotFittedError, ParameterError
from onepass.nn.batch import Batch, RowsLike, joined
from onepass_experiments.baselines.learner import Tasked, predicted

__all__ = ["ICaRL", "herded"]


class ICaRL(Tasked):
    """Nearest mean of exemplars, in features that are learned with distillation.

    Answers are those of ended tasks: ``after_task`` learns.

    Parameters
    ----------
    module : torch.nn.Module
        Learns in place; what enters the last ``torch.nn.Linear`` in it are the features, what
        leaves it are c outputs, one a class.
    step_size : float, default=0.1
        η > 0.
    momentum : float, default=0.0
        μ in [0, 1].
    capacity : int, default=2000
        K, exemplars that are kept in all.
    temperature : float, default=1.0
        T > 0, by which old outputs are divided when they become what is wanted of new ones.
    epochs : int, default=10
        Passes over the rows of a task and the exemplars, when it ends.
    batch : int, default=32
        Rows a step.
    seed : int, default=0
        Draws the order of rows in each pass.

    Attributes
    ----------
    classes_ : tuple of int
        Classes of ended tasks.
    exemplars_ : tuple of Tensor
        Of each class (m, …), the best first.
    means_ : Tensor of shape (classes, features)
        μ.
    rows_seen_, visits_, rows_repeated_ : int
        Rows learned, each counted once; how often a row, or an exemplar, was gone through; and
        that beyond once.
    rows_stored_, max_rows_stored_ : int
        Exemplars and rows held now, and at most.
    tasks_ : int
        Tasks that ended.

    Raises
    ------
    TypeMismatchError, ParameterError
        If an argument is none of these, or there is no Linear layer.

    Examples
    --------
    >>> import torch
    >>> from onepass_experiments import baselines
    >>> module = torch.nn.Linear(2, 4)
    >>> model = baselines.ICaRL(module, capacity=6)
    >>> for a, b in ((0, 1), (2, 3)):  # four points of a circle, two a task
    ...     turn = torch.tensor([a, a, a, b, b, b])
    ...     x = torch.stack([torch.cos(1.5 * turn), torch.sin(1.5 * turn)], dim=1)
    ...     model = model.learn(x, turn).after_task()
    >>> model.predict([[1.0, 0.1], [-0.2, 1.0], [-1.0, 0.1], [-0.1, -1.0]]).tolist()
    [0, 1, 2, 3]
    >>> model.rows_stored_, model.rows_repeated_
    (4, 168)
    """

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
        self.capacity = validation.whole(capacity, "capacity", self._where, low=1)
        self.temperature = validation.in_range(temperature, "temperature", self._where, above=0.0)
        layers = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
        if not layers:
            raise ParameterError(
                f"{self._where}: `module` must have a torch.nn.Linear, whose input are the "
                f"features, got {type(module).__name__} without one. End it with one."
            )
        self._head = layers[-1]
        self._passing = False
        self.classes_: tuple[int, ...] = ()
        self.exemplars_: tuple[Batch | Tensor, ...] = ()
        self.means_: Any = None

    # -- answers ---------------------------------------------------------------------------------

    def _outputs(self, x: RowsLike, verb: str) -> Tensor:
        """−‖φ(x) − μ_y‖ of the classes of ended tasks, −∞ of others."""
        where = f"{self._where}.{verb}"
        rows = self._rows(x, verb)
        if self.means_ is None:
            raise NotFittedError(
                f"{where}: a task must have ended before answers, got none. Call learn(x, y), "
                "then after_task()."
            )
        near = self._like.new_full((len(rows), self._head.out_features), -torch.inf)
        if len(rows):
            wide = torch.promote_types(near.dtype, torch.float32)  # cdist knows none below
            away = torch.cdist(self._features(rows).to(wide), self.means_.to(wide))
            near[:, list(self.classes_)] = -away.to(near.dtype)
        return near

    def _features(self, x: Batch | Tensor) -> Tensor:
        """φ(x), (n, features) of length one."""
        caught: list[tuple[Tensor, Tensor]] = []
        hook = self._head.register_forward_hook(lambda _, given, z: caught.append((given[0], z)))
        try:
            outputs = predicted(self.module, {}, x, self._where)
        finally:
            hook.remove()
        if not caught or not torch.equal(caught[-1][1], outputs):
            raise ParameterError(
                f"{self._where}: the torch.nn.Linear that was made last in `module` must produce "
                "its outputs, got outputs of another layer. Make the output layer last."
            )
        return functional.normalize(caught[-1][0].reshape(len(x), -1), dim=1)

    # -- learning --------------------------------------------------------------------------------

    @property
    def _holds(self) -> bool:
        return True

    def _learn_held(self, x: Batch | Tensor, y: Tensor) -> None:
        """Algorithm 3, and then exemplars."""
        fresh = sorted(set(y.tolist()))
        old = [k for k in self.classes_ if k not in fresh]
        classes = tuple(sorted({*fresh, *old}))
        if len(classes) > self.capacity:
            raise ParameterError(
                f"{self._where}.after_task: `capacity` must be a row a class at least, got "
                f"{self.capacity} for {len(classes)} classes. Raise it."
            )
        rows = joined([x, *self.exemplars_])
        pairs = zip(self.classes_, self.exemplars_, strict=True)
        y = torch.cat([y, *(torch.full((len(p),), k).to(y) for k, p in pairs)])
        wanted = self._wanted(rows, y, old, classes)
        self._passing = True
        self._go_over(rows, wanted)
        self._passing = False
        self._choose(rows, y, classes, self.capacity // len(classes), fresh)

    def _wanted(
        self, x: Batch | Tensor, y: Tensor, old: list[int], classes: tuple[int, ...]
    ) -> Tensor:
        """What each output is to be; nan for classes that are not there yet."""
        wanted = self._like.new_full((len(x), self._head.out_features), torch.nan)
        wanted[:, list(classes)] = 0.0
        wanted[torch.arange(len(x)), y] = 1.0
        if old:
            before = predicted(self.module, {}, x, self._where)[:, old]
            wanted[:, old] = (before / self.temperature).sigmoid()
        return wanted

    def _targets(self, y: Tensor, outputs: Tensor) -> Tensor:
        # in a pass they were made here, a number an output
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
        """Algorithms 4 and 5, and the means of what is kept."""
        before = dict(zip(self.classes_, self.exemplars_, strict=True))
        kept = []
        for label in classes:
            if label in fresh:
                rows = x[y == label]
                features = self._features(rows)
                kept.append(rows[herded(features, _mean(features), m)])
            else:
                kept.append(before[label][:m].clone())
        means = [_mean(self._features(p)) for p in kept]
        count = sum(map(len, kept))
        held = sum(len(rows) for rows, _ in self.task_batches_)
        self.__dict__.update(
            classes_=classes,
            exemplars_=tuple(kept),
            means_=torch.stack(means),
            rows_stored_=count + held,
            max_rows_stored_=max(self.max_rows_stored_, count + held),
        )

    def _kept(self) -> list[Batch | Tensor]:
        means = [] if self.means_ is None else [self.means_]
        return [*super()._kept(), *self.exemplars_, *means]


def _mean(features: Tensor) -> Tensor:
    return functional.normalize(features.mean(dim=0), dim=0)


def herded(features: Tensor, mean: Tensor, m: int) -> Tensor:
    """The rows whose running mean stays nearest to the mean of all, Algorithm 4.

    Parameters
    ----------
    features : Tensor of shape (n, k)
        φ(x) of the rows of a class.
    mean : Tensor of shape (k,)
        μ.
    m : int
        How many, at most.

    Returns
    -------
    chosen : Tensor of shape (min(m, n),)
        Places of rows, none twice, the best first.

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
        # k² ‖μ − (φ + Σ) / k‖² less ‖k μ − Σ‖², which is the same for all
        away = lengths - 2.0 * (features @ (k * mean - total))
        best = int(away.masked_fill(~left, torch.inf).argmin())
        chosen.append(best)
        left[best] = False
        total = total + features[best]
    return torch.tensor(chosen, device=features.device)
