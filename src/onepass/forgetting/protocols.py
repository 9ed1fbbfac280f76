"""Protocol of forgetting rules: the members that a new rule must define.

A user passes a rule, such as ``forgetting=op.forgetting.Window(1000)``.
"""

from __future__ import annotations

from typing import Any, Protocol

from onepass.memory.vector import Fading
from onepass.types import Array, Floats


class ForgettingRule(Protocol):
    """A forgetting rule: a frozen dataclass, whose fields are saved with the learner.

    Learners accept the rules that ``RULES`` of ``parse.py`` lists. A rule raises
    :class:`~onepass.errors.ParameterError` if a field is out of range.
    """

    @property
    def clock(self) -> str | None:
        """The type of row times required, "number" or "date"; None if the rule counts rows."""

    @property
    def fading(self) -> Fading:
        """How the past of the vector fades."""

    @property
    def additive(self) -> bool:
        """Whether the past is a sum over its rows, each weighted by its age.

        Learners with such a rule can be merged exactly.
        """

    @property
    def stores_rows(self) -> bool:
        """Whether the vector stores rows, which a merge learns again."""

    def fades(self, time: Array | None, last: Any, /) -> Floats | None:
        """Log2 of the factor by which the past fades before each row, (n,); None by rows.

        Parameters
        ----------
        time : ndarray of shape (n,), or None
            The times of the rows; None if ``clock`` is None.
        last : object
            The time of the row before; None before the first.
        """
