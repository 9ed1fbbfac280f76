"""Protocols: what a rule of forgetting is to least squares, and so what a new one has to bring.

A rule (:class:`ForgettingRule`) is what the user gives, ``forgetting=op.forgetting.Window(1000)``.
What rows have left behind for the answers, triangle and means, is a :class:`Past`, which all rules
share; what else a rule needs to know is its own state (:class:`ForgettingState`).
"""

from typing import Any, Protocol, Self

from onepass.memory.forgetting.exponential import Coming, Learned, Past
from onepass.types import Array, Floats

__all__ = ["ForgettingRule", "ForgettingState"]


class ForgettingState(Protocol):
    """What a rule needs to know beside triangle and means: a frozen dataclass of d features."""

    @property
    def finite(self) -> bool:
        """Whether all its numbers are finite: else the rows are refused, and nothing changes."""

    def grown(self, d: int, ridge: float, /) -> Self:
        """The same for d features: the new ones, at the end, zero in every row so far.

        ``ridge`` is the penalty of each of their coefficients, in units of a squared feature.
        """

    def with_outputs(self, at: Array, c: int) -> Self:
        """The same with new outputs at the columns ``at`` of now c, zero in every row so far."""


class ForgettingRule(Protocol):
    """What a user gives as ``forgetting``: a frozen dataclass, whose fields are saved with it.

    Only the rules listed in ``RULES`` of ``parse.py`` are accepted.

    It raises :class:`~onepass.errors.ParameterError` for a field that is out of range.
    """

    @property
    def clock(self) -> str | None:
        """What times of rows it needs: "number", "date", or None where it counts rows."""

    @property
    def state(self) -> type:
        """The class of its state: another one's was learned by another rule."""

    @property
    def keeps_sums(self) -> bool:
        """Whether the past is a sum over its rows, each with a factor by its age.

        Then learners can be merged. The rule has a further method ``between(earlier, later)``: that
        factor for two times. See ``exponential.py``.
        """

    @property
    def keeps_rows(self) -> bool:
        """Whether the state holds the rows themselves, which a merge learns again.

        The state then has ``kept``, ``len`` and ``penalised``, as the ``Queue`` of ``window.py``.
        """

    def start(self, past: Past, least: Floats, /) -> ForgettingState:
        """The state of no rows.

        Parameters
        ----------
        past : Past
            Triangle and means of no rows; the penalty stands in the triangle.
        least : ndarray of shape (d,)
            The diagonal of the ridge, in units of a squared feature.
        """

    def learn(self, state: Any, past: Past, rows: Coming, /) -> Learned:
        """Learn rows one after the other, each after it has been predicted.

        It must not matter how a stream is cut into blocks. Nothing that came in is written to.

        Parameters
        ----------
        state : ForgettingState
            As :meth:`start` or the ``learn`` before gave it.
        past : Past
            What the answers were made of before.
        rows : Coming
            Rows X (n, d) with answers Y (n, c), weights and, where ``clock`` is not None, times.

        Returns
        -------
        learned : Learned
            The error of each row just before it was learned, (n, c), in the unit of the answers;
            and past and state after all of them.
        """
