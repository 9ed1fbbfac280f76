"""Metrics of predictions: one pass, bounded memory, mergeable, equal to the batch formula.

A metric is updated with targets y and predictions ŷ in blocks of any size. Its value over all rows
so far does not depend on the block sizes or the order of merging, up to the last digits of float64.
For rows t = 1 … n:

====================  ================================================  =================
``mae``               1/n Σ |yₜ − ŷₜ|                                   unit of y
``rmse``              √(1/n Σ (yₜ − ŷₜ)²)                               unit of y
``r2``                1 − Σ (yₜ − ŷₜ)² / Σ (yₜ − ȳ)²                    none
``mean_loss``         Lₙ = 1/n Σ ℓ(ŷₜ, yₜ), [1] (1)                     as the loss
``cumulative_loss``   Lₙ = Σ ℓ(ŷₜ, yₜ), [1] (2)                         as the loss
``accuracy``          1/n #{ŷₜ = yₜ}                                    none
``macro_f1``          mean over classes k of 2 tpₖ / (#{yₜ=k} + #{ŷₜ=k})  none
``log_loss``          1/n Σ −log pₜ of the label                        nats
``brier``             1/n Σ ½ Σₖ (pₜₖ − [yₜ=k])²                        none
``roc_auc``           area under the ROC curve, two labels              none
``average_precision`` area under the precision-recall curve, two labels none
====================  ================================================  =================

ȳ is the mean of *all* targets so far, so ``r2`` is scikit-learn's ``r2_score`` over all rows. The
loss ℓ is (ŷ − y)² for regression and 0 or 1 for classification. For several outputs, metrics are
averaged uniformly over outputs. ``None``, which classifiers predict before the first class, is a
wrong prediction but not a class.

To add a metric, write a class and add one line to :data:`METRICS`.

[1] "Online Learning", lecture notes, equations (1) and (2).
"""

from __future__ import annotations

from collections.abc import Mapping

from onepass.evaluate.choice import check_choice
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
from onepass.evaluate.metrics.probability import (
    ROCAUC,
    AveragePrecision,
    Brier,
    LogLoss,
    ProbabilityMetric,
    row_probabilities,
)
from onepass.serialization.codec import Role, register

__all__ = [
    "MAE",
    "METRICS",
    "R2",
    "RMSE",
    "ROCAUC",
    "Accuracy",
    "AveragePrecision",
    "Brier",
    "LogLoss",
    "MacroF1",
    "MeanSquaredLoss",
    "MeanZeroOneLoss",
    "Metric",
    "ProbabilityMetric",
    "SquaredLoss",
    "ZeroOneLoss",
    "metric_class",
    "row_probabilities",
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
        "log_loss": LogLoss,
        "brier": Brier,
        "roc_auc": ROCAUC,
        "average_precision": AveragePrecision,
    },
}
"""Task -> name -> metric."""


def metric_class(name: str, task: str) -> type[Metric]:
    """Return the class of a metric by name.

    Parameters
    ----------
    name : str
        A key of ``METRICS[task]``.
    task : {"regression", "classification"}
        The task of the learners.

    Raises
    ------
    ParameterError
        If the task has no such metric.
    """
    known = METRICS[task]
    check_choice(name, known, f"a metric of {task}")
    # including metrics of users, so that checkpoints can store them
    register(Role.METRIC, known[name])
    return known[name]
