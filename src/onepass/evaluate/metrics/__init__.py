"""Metrics of predictions: one pass, bounded memory, mergeable, equal to the batch formula.

A metric is updated with targets y and predictions ŷ in blocks of any size, and its value is that
over all rows so far. However the rows are cut, and in whatever order parts are merged, the value is
the same up to the last digits of float64. Over t = 1 … n rows:

====================  ================================================  =================
``mae``               1/n Σ |yₜ − ŷₜ|                                   unit of y
``rmse``              √(1/n Σ (yₜ − ŷₜ)²)                               unit of y
``r2``                1 − Σ (yₜ − ŷₜ)² / Σ (yₜ − ȳ)²                    none
``mean_loss``         Lₙ = 1/n Σ ℓ(ŷₜ, yₜ), [1] (1)                     as the loss
``cumulative_loss``   Lₙ = Σ ℓ(ŷₜ, yₜ), [1] (2)                         as the loss
``accuracy``          1/n #{ŷₜ = yₜ}                                    none
``macro_f1``          mean over classes k of 2 tpₖ / (#{yₜ=k} + #{ŷₜ=k})  none
====================  ================================================  =================

ȳ is the mean of *all* targets so far, so ``r2`` is scikit-learn's ``r2_score`` over all rows. The
loss ℓ is (ŷ − y)² for regression and 0 or 1 for classification. Metrics of several outputs are
computed for each and averaged uniformly. ``None``, predicted by a classifier before its first
class, is wrong; it is not counted as a class.

A new metric is one class and one line in :data:`METRICS`.

[1] "Online Learning", lecture notes, equations (1) and (2).
"""

from collections.abc import Mapping

from onepass.errors import ParameterError, did_you_mean
from onepass.evaluate.metrics.metric import (
    MAE,
    R2,
    RMSE,
    Accuracy,
    MacroF1,
    MeanSquaredLoss,
    MeanZeroOneLoss,
    Metric,
    SquaredLoss,
    ZeroOneLoss,
)
from onepass.serialization.codec import Role, register

__all__ = [
    "MAE",
    "METRICS",
    "R2",
    "RMSE",
    "Accuracy",
    "MacroF1",
    "MeanSquaredLoss",
    "MeanZeroOneLoss",
    "Metric",
    "SquaredLoss",
    "ZeroOneLoss",
    "metric_class",
]

METRICS: Mapping[str, Mapping[str, type[Metric]]] = {
    "regression": {
        "mae": MAE,
        "rmse": RMSE,
        "r2": R2,
        "mean_loss": MeanSquaredLoss,
        "cumulative_loss": SquaredLoss,
    },
    "classification": {
        "accuracy": Accuracy,
        "macro_f1": MacroF1,
        "mean_loss": MeanZeroOneLoss,
        "cumulative_loss": ZeroOneLoss,
    },
}
"""Task -> name -> metric."""


def metric_class(name: str, task: str, where: str) -> type[Metric]:
    """The metric of this name.

    Parameters
    ----------
    name : str
        A key of ``METRICS[task]``.
    task : {"regression", "classification"}
        What the learners do.
    where : str
        The public call, for the message.

    Raises
    ------
    ParameterError
        If the task has no such metric.
    """
    known = METRICS[task]
    if name not in known:
        raise ParameterError(
            f"{where}: a metric of {task} must be one of {', '.join(known)}, got {name!r}."
            f"{did_you_mean(name, known) or ' Choose from these.'}"
        )
    register(Role.METRIC, known[name])  # a user's metric too, so that a checkpoint can store it
    return known[name]
