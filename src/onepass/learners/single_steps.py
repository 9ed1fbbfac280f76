"""Single steps: single rows learned by the compiled loop, as rows of blocks are.

The loop holds the weights while single rows come, and is told beforehand how far each of the next
rows moves them, so that the rules for that stand in one place.
"""

from typing import Any, ClassVar

import numpy as np

from onepass import linalg, native
from onepass.errors import Floats
from onepass.learners.one_by_one import OneByOne
from onepass.learners.step_size import Steps

__all__ = ["SingleSteps"]

_COMING = 1024  # rows for which the loop is opened
_PATIENCE = 64  # weights for which one row by itself is enough to copy them
_LARGEST = 1e150  # no product of larger weights overflows while the loop is open
_PLAIN = "biufU"  # kinds of labels that the loop tells apart as NumPy does


class SingleSteps(OneByOne):
    """``learn_one`` and ``predict_one`` of linear models that go down slopes or correct mistakes.

    Stands before the class that has them for rows of any kind among a class's bases.
    """

    held: ClassVar[tuple[str, ...]] = ("weights_", "offset_", "rows_seen_", "steps_")

    weights_: Floats
    offset_: Floats
    fit_intercept: bool

    # -- hooks -------------------------------------------------------------------------------------

    def _slope_and_steps(self, n: int) -> tuple[int, float, Steps]:
        """The loss's number and parameter, 0 where mistakes are corrected, and n steps to come."""
        raise NotImplementedError

    def _problems(self) -> tuple[Floats, Floats]:
        """Weights (d, c) and offset (c,), one column for each problem that is learned."""
        return self.weights_, self.offset_

    def _solved(self, weights: Floats, offset: Floats) -> tuple[Floats, Floats]:
        """``weights_`` and ``offset_`` out of these of the problems."""
        return weights, offset

    # -- the loop ----------------------------------------------------------------------------------

    def _reading(self) -> tuple[Any, ...] | None:
        classes = getattr(self, "classes_", None)
        if classes is not None and (len(classes) < 2 or classes.dtype.kind not in _PLAIN):
            return None
        return super()._reading()

    def _open(self, single: int) -> None:
        """Let the loop have what was learned, if so many rows that came one by one are enough."""
        if native.loops is None:
            return
        object.__setattr__(self, "_single", single)
        if self.weights_.size > _PATIENCE * single:
            return
        reading = self._reading()
        if reading is None or not self._tame():
            return
        weights, offset = self._problems()
        number, parameter, steps = self._slope_and_steps(_COMING)
        unit = 1.0 if self.fit_intercept else 0.0
        loop = native.loops.Linear(*weights.shape, unit, number, parameter, *reading)
        loop.put(_COMING, np.ascontiguousarray(weights.T), np.ascontiguousarray(offset), *steps)
        self._hand_over(loop, single)

    def _few(self, X: Any) -> bool:
        del X
        return False

    def _tame(self) -> bool:
        largest = max(linalg.magnitude(self.weights_), linalg.magnitude(self.offset_))
        return bool(largest < _LARGEST)

    def _told(self, loop: Any) -> Any:
        return loop.get()

    def _needed(self, before: dict[str, Any], held: Any) -> dict[str, Any]:
        return {**before, "weights_": None, "offset_": None} if held[2] else before

    def _looked_at(self, before: dict[str, Any], held: Any) -> dict[str, Any]:
        found = dict(before)
        W, b, rows, mistakes = held
        if rows:
            offset = np.frombuffer(b).copy()
            weights = np.frombuffer(W).reshape(len(offset), -1).T.copy(order="F")
            found["weights_"], found["offset_"] = self._solved(weights, offset)
            for name in self.held[2:]:
                found[name] += mistakes if name == "mistakes_" else rows
        return found

    def _close(self) -> None:
        """Take what was learned out of the loop."""
        loop = self._loop
        if loop is None:
            if self._single:
                object.__delattr__(self, "_single")
            return
        loop.release()  # whoever has it still learns no row by it
        found = self._looked_at(self._from, self._told(loop))
        for name, value in found.items():
            object.__setattr__(self, name, value)
        for name in ("_loop", "_from", "_apart", "_single"):  # the loop first, whatever interrupts
            object.__delattr__(self, name)
