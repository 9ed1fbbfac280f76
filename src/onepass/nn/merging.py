"""Merging: two copies of a module, each of which learned a stream, become one that knows both.

What a learner knows is told by its memory in a few rows A (:mod:`onepass.memory.evidence`): each
direction that it keeps, as long as it is, answered by A w_a, its own weights. For a module linear
in its weights, learning the second's rows B is learning the stream that they stand for: then that
is done, exactly, and the step is orthogonal to all that the first knows.

Of other modules the two are held to what both know as :mod:`onepass.nn.between` says.

Kept for this are, with noise, the weights before the first row (p numbers); without noise the
evidence needs none, and a fingerprint of them tells whether two copies began alike.
"""

import copy
import math
import warnings
from typing import Any

from onepass.errors import MergeError, MergeWarning, NumericalError
from onepass.nn.between import Merged, between, learned, lost, share_moved
from onepass.nn.likeness import differences
from onepass.nn.measuring import refuse_worse

__all__ = ["merge"]

_FAR = 2.0  # times half the distance of the two: beyond, they hardly go together
_MUCH = 0.07  # of the size of answers: from there a merge is told to be in doubt


def merge(one: Any, two: Any, rows: Any = None) -> None:
    """Let one learner learn what another has learned.

    Parameters
    ----------
    one, two : ORFit
        The second is not changed.
    rows : tuple (x, y), optional
        Rows to measure with.

    Raises
    ------
    MergeError
        If they are not alike, or keep too little of the past; or if, of these rows, the merged
        weights say less than the better of the two.
    NumericalError
        If weights are not finite. Whatever is raised, for want of room as well, both are as they
        were: memories turn in place, so that a copy of the first's learns.

    Warns
    -----
    MergeWarning
        If what the two know hardly goes together, when they are merged.
    """
    where = f"op.nn.{type(one).__name__}.merge"
    for wrong in differences(one, two):
        raise MergeError(f"{where}: {wrong}")
    if two.memory_ is None:
        return
    if not bool(two._weights.isfinite().all()):  # noqa: SLF001  a file of two learners' insides
        raise NumericalError(
            f"{where}: the weights of the second must be finite, got some that are not. Load it as "
            "it was before they were changed."
        )
    before = {name: getattr(one, name) for name in one.kept if "." not in name}
    weights = one.network.weights()
    try:
        apart = _join(one, two, rows, where)
    except BaseException:
        one.network.set_weights(weights)
        for name, value in before.items():
            setattr(one, name, value)
        raise
    if apart is not None:
        warnings.warn(f"{where}: {apart}", MergeWarning, stacklevel=3)


def _join(one: Any, two: Any, rows: Any, where: str) -> str | None:
    """Find the weights, try them, and only then change what the first remembers.

    Returns what is to be said of parts that hardly go together.
    """
    begun, w = one.memory_ is not None, one._weights.clone()  # noqa: SLF001
    straight = two._linear if one._linear is None else one._linear  # noqa: SLF001
    one._shared = two._shared  # noqa: SLF001
    one._begin(w, two._outputs, straight)  # noqa: SLF001
    w, theirs = one._matrix(w), one._matrix(two._weights.to(w).clone())  # noqa: SLF001
    said = _said(two).near(w)
    mine = None if straight or not begun else _said(one).near(w)
    if mine is not None and one.noise and not (lost(mine) or lost(said)):
        mine = None  # what learning does, in fewer reads
    exact, before = mine is None, one.memory_
    if not begun:
        found = Merged(theirs, 0.0)
    elif exact:
        found = learned(before, w, theirs, said)
    else:
        found = between((w, theirs), (mine, said), one.noise, one._start)  # noqa: SLF001
    _try(one, two, one._vector(found.w), rows, where)  # noqa: SLF001
    moves, share = (0.0, 0.0), 0.0
    if mine is not None and rows is None and lost(mine) + lost(said):
        share = share_moved(found.w, (w, theirs), (mine, said))
    if not one.noise:
        own = before.forgets(found.w, w) if mine is None else mine.moved(found.w, w)
        moves = float(own), float(said.moved(found.w, theirs))
    mine = None  # as long as the copy that takes its place
    step = (_apart(before) if begun else before).merged(w, said)
    against = step.contradictions if exact else 0  # between the two, none of them wins
    _take(one, two, step._replace(w=found.w, contradictions=against), moves)
    if straight:
        return None
    return _warned(found.reach, exact=exact) if found.reach > _FAR else _doubted(share)


def _try(one: Any, two: Any, w: Any, rows: Any, where: str) -> None:
    """Refuse merged weights that the module cannot hold, or that say less of rows than the two."""
    if not bool(one._sound(w)):  # noqa: SLF001
        raise NumericalError(
            f"{where}: the merged weights must be finite in {one.network.dtype}, got some that are "
            "not. Merge modules of float32 or float64, or parts that are nearer to each other."
        )
    if rows is not None:
        refuse_worse(one, two, w, rows, where)


def _apart(memory: Any) -> Any:
    """The same memory in columns of its own, where it may write in them; it is as long again."""
    return copy.deepcopy(memory) if hasattr(memory, "split") else memory


def _take(one: Any, two: Any, step: Any, moves: tuple[float, float]) -> None:
    """Let the first be as after a step that can have moved its past answers, and the other's."""
    own, came = (each.forgetting_bound_.all_steps for each in (one, two))
    one._take(one._vector(step.w))  # noqa: SLF001  as above
    one._memory = step.memory  # noqa: SLF001
    one._against = one._against + two.contradictions_ + step.contradictions  # noqa: SLF001
    if not one.noise:  # else there is no count of it
        one._forgotten = math.hypot(own + moves[0], came + moves[1])  # noqa: SLF001  of other rows
    one._refused = one._refused + two.rows_refused_  # noqa: SLF001
    one.rows_seen_ += two.rows_seen_
    one._outputs = one._outputs or two._outputs  # noqa: SLF001
    one._shape = two._shape if one._shape is None else one._shape  # noqa: SLF001
    one.network.columns = one.network.columns or two.network.columns


def _warned(reach: float, *, exact: bool) -> str:
    done = "went so far" if exact else "stay between the two"
    return (
        "what two networks know should go together near the two, got parts that would "
        f"meet {reach:.1f} times as far from their middle as they are; the merged weights {done}. "
        "Measure them: merge(other, rows=(x, y)) refuses what is worse than its parts. Merge "
        "earlier, or use a memory with a limit, a wider network, or more noise."
    )


def _doubted(share: float) -> str | None:
    """What is to be said of answers that can have moved by such a share of their size."""
    if share < _MUCH:
        return None
    return (
        "what two networks know should hardly move as they become one, got answers that can have "
        f"moved by up to {100.0 * share:.0f} % of their size, for what the memories let go of. "
        "Measure them: merge(other, rows=(x, y)) refuses what is worse than its parts. Merge "
        "earlier, or use a larger memory, a wider network, or more noise."
    )


def _said(learner: Any) -> Any:
    """What a learner's memory says, where the memory is."""
    place = learner.memory_device or learner.network.device
    now, start = learner._matrix(learner._weights), learner._start  # noqa: SLF001  as above
    began = None if start is None else learner._matrix(start).to(place)  # noqa: SLF001
    return learner.memory_.evidence(now.to(place), began)
