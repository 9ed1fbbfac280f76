"""Certificate of forgetting: how far past answers can have moved, from what was let go.

Let w move by Δw, orthogonal to the directions U that a memory keeps of the gradients g_1 … g_k of
all rows so far. The memory knows a D with Σ g gᵀ ≤ U Σ² Uᵀ + D · I
(:mod:`onepass.linalg.subspace`), and so, of a model linear in its weights, past answers move by no
more than

    √(Σ_j (g_jᵀ Δw)²) ≤ √D ‖Δw‖                                                            (1)

by one step: ``one_step`` is √D. By all steps so far, each with the D_t before it, the answers have
moved since each row was learned by no more than

    √(Σ_j (change of answer j)²) ≤ Σ_t √D_t ‖Δw_t‖                                          (2)

since the lengths of vectors of changes add up at most: ``all_steps``. Of several outputs the
squares are summed as well. Each step is orthogonal to another U_t, so that √D ‖Σ_t Δw_t‖, with the
last D, is *no* bound of their sum; nor is there one for the lengths of projected gradients, for
directions let go by age or by lot, or for steps with noise, which are not orthogonal to U.

Both hold but for the rounding of the steps themselves, as do all numbers here.

Of models that are not linear in their weights the gradients of past rows turn while w moves; then
(2) is an estimate.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ForgettingBound", "certified"]


@dataclass(frozen=True)
class ForgettingBound:
    """How far past answers can have moved.

    Parameters
    ----------
    one_step : float
        √D of (1): by how much, at most, a step of length 1 that the memory as it is lets pass moves
        all past answers together (root of the sum of squares).
    all_steps : float
        The right side of (2): by how much, at most, all steps so far have moved them, each since
        its row was learned.
    kind : {"bound", "estimate", "none"}
        Whether it cannot be exceeded, is only as good as the model is linear, or there is none:
        then both are infinite.
    why : str
        Why there is none, or what an estimate does not count; empty of a bound.
    """

    one_step: float
    all_steps: float
    kind: Literal["bound", "estimate", "none"]
    why: str = ""


def certified(memory: Any, forgotten: float, *, noise: float, linear: bool) -> ForgettingBound:
    """The certificate of a memory.

    Parameters
    ----------
    memory : state of a memory, or None
        With ``lost``, its D, or None; before the first row there is no memory, and no answer.
    forgotten : float
        The right side of (2).
    noise : float
    linear : bool
        Whether the model is linear in its weights.
    """
    lost = 0.0 if memory is None else getattr(memory, "lost", None)
    if noise:
        why = "with noise, rows are averaged: each step moves past answers, as it should"
    elif lost is None:
        why = (
            "this memory lets directions go without keeping count of what they carried; "
            "op.memory.Principal(m) and op.memory.Sketch(m) do"
        )
    elif math.isinf(forgotten):
        why = "what was learned before cannot be bounded: it was merged, or saved, without a count"
    else:
        return ForgettingBound(math.sqrt(lost), forgotten, "bound" if linear else "estimate")
    return ForgettingBound(math.inf, math.inf, "none", why)
