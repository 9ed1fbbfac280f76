"""Continual pairs: whether one learner is better than another, by a paired t-test over seeds.

With differences d_s of the seeds s = 1 … n that two learners share, t = d̄ √n / sd(d) has Student's
distribution with n − 1 degrees of freedom if they do not differ. Seeds draw the same rows and order
for both, so that what these make harder or easier is no part of the difference. Of m tests the
k-th smallest p is multiplied by m − k + 1 [1], so that the chance of any false alarm stays p.
Where seeds change nothing of either learner there is one run of each, whatever their number, and so
no t and no p.

[1] S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student

from onepass.errors import Floats, ParameterError

if TYPE_CHECKING:
    from onepass.evaluate.continual_report import ContinualReport

__all__ = ["pairs"]

_WHERE = "ContinualReport.compare"


def pairs(
    report: "ContinualReport", measure: str = "average", against: str | None = None
) -> list[dict[str, Any]]:
    """Each pair of models, or each other model beside one.

    Parameters
    ----------
    report : ContinualReport
        What to tell.
    measure : str
        A key of ``MEASURES``.
    against : str, optional
        Compare all with this model.

    Raises
    ------
    ParameterError
        If there is no such model, or two share fewer than two seeds.
    """
    scores = report.scores
    if against is not None and against not in scores:
        raise ParameterError(
            f"{_WHERE}: `against` must be one of {', '.join(scores)}, got {against!r}. Choose one."
        )
    chosen = (
        list(combinations(scores, 2))
        if against is None
        else [(name, against) for name in scores if name != against]
    )
    found: list[dict[str, Any]] = []
    for one, other in chosen:
        known = [
            dict(zip(scores[n].seeds, scores[n].values(measure), strict=True)) for n in (one, other)
        ]
        shared = [seed for seed in known[0] if seed in known[1]]
        if len(shared) < 2:
            raise ParameterError(
                f"{_WHERE}: two models must share two seeds or more, got {len(shared)} of {one!r} "
                f"and {other!r}. Evaluate them with the same seeds."
            )
        differences = np.array([known[0][seed] - known[1][seed] for seed in shared])
        drawn = any(len({one[seed] for seed in shared}) > 1 for one in known)
        t, p = _tested(differences) if drawn or not differences.any() else (None, None)
        row = {"model": one, "against": other, "measure": measure, "n": len(shared)}
        found.append(row | {"difference": float(differences.mean()), "t": t, "p": p})
    corrected = _holm([row["p"] for row in found])
    return [row | {"p_holm": p} for row, p in zip(found, corrected, strict=True)]


def _tested(differences: Floats) -> tuple[float | None, float | None]:
    """T and its two-sided p; None where it is not defined."""
    n, mean, deviation = len(differences), differences.mean(), differences.std(ddof=1)
    if not np.isfinite(mean):
        return None, None
    if deviation <= 1e-12 * abs(mean) or deviation == 0.0:  # the same in each seed
        return (None, 0.0) if mean else (0.0, 1.0)
    t = float(mean * np.sqrt(n) / deviation)
    return t, float(2.0 * student.sf(abs(t), n - 1))


def _holm(found: list[float | None]) -> list[float | None]:
    known = sorted((p, i) for i, p in enumerate(found) if p is not None)
    out: list[float | None] = [None] * len(found)
    least = 0.0
    for k, (p, i) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - k)))
        out[i] = least
    return out
