"""Protocols of forgetting rules: the members that a new rule must define.

A user passes a rule (:class:`ForgettingRule`), such as ``forgetting=op.forgetting.Window(1000)``.
All rules share :class:`LeastSquaresState`, the triangle and the means from which predictions are
computed. Each rule stores additional data in its own state (:class:`ForgettingState`).
"""

from typing import Any, Protocol, Self

from onepass.memory.forgetting.exponential import Learned, LeastSquaresState, NewRows
from onepass.types import Array, Floats

__all__ = ["ForgettingRule", "ForgettingState"]


class ForgettingState(Protocol):
    """The state of a rule besides triangle and means: a frozen dataclass for d features."""

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite. If not, the rows are rejected and nothing changes."""

    def grown(self, d: int, ridge: float, /) -> Self:
        """Return the state for d features; the new ones, at the end, were always 0.

        ``ridge`` is the penalty of each new coefficient, in units of a squared feature.
        """

    def with_outputs(self, at: Array, c: int) -> Self:
        """Return the state for c outputs, of which those in columns ``at`` are new and were 0."""


class ForgettingRule(Protocol):
    """A forgetting rule: a frozen dataclass, whose fields are saved with the learner.

    Learners accept the rules that ``RULES`` of ``parse.py`` lists. A rule raises
    :class:`~onepass.errors.ParameterError` if a field is out of range.
    """

    @property
    def clock(self) -> str | None:
        """The type of row times required, "number" or "date"; None if the rule counts rows."""

    @property
    def state(self) -> type:
        """The class of the rule's state."""

    @property
    def additive(self) -> bool:
        """Whether the past is a sum over its rows, each weighted by its age.

        Learners with such a rule can be merged. The rule then also defines
        ``between(earlier, later)``, the weight for two times. See ``exponential.py``.
        """

    @property
    def stores_rows(self) -> bool:
        """Whether the state stores rows, which a merge learns again.

        The state then also defines ``stored_rows``, ``__len__`` and ``penalised``.
        """

    def start(self, past: LeastSquaresState, least: Floats, /) -> ForgettingState:
        """Return the initial state.

        Parameters
        ----------
        past : LeastSquaresState
            Triangle and means before the first row; the triangle contains the penalty.
        least : ndarray of shape (d,)
            The diagonal of the ridge, in units of a squared feature.
        """

    def learn(self, state: Any, past: LeastSquaresState, rows: NewRows, /) -> Learned:
        """Learn rows one after the other, each after it has been predicted.

        The result must not depend on the division of the stream into blocks. The arguments must
        not be modified.

        Parameters
        ----------
        state : ForgettingState
            The result of :meth:`start` or of the previous ``learn``.
        past : LeastSquaresState
            Triangle and means before these rows.
        rows : NewRows
            Rows X (n, d) with targets Y (n, c), weights and, unless ``clock`` is None, times.

        Returns
        -------
        learned : Learned
            The error of each row just before it is learned, (n, c), in units of the targets; and
            past and state after the last row.
        """
