"""Pace: how quickly the past fades, by rows or by time.

λ_k = λ for each row,   or   λ_k = 2^(−Δt_k / half_life) for the time Δt_k since the row before
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from onepass import validation
from onepass.errors import ParameterError

__all__ = ["Pace", "clock"]


@dataclass(frozen=True)
class Pace:
    """What rules share that fade by a factor or by a half-life.

    Parameters
    ----------
    factor : float, optional
        λ in (0, 1].
    half_life : float, str or timedelta, optional
        In place of it, more than 0.

    Raises
    ------
    ParameterError
        If not exactly one of the two is given, or it is out of range.
    """

    factor: float | None = None
    _: KW_ONLY
    half_life: Any = None

    def __post_init__(self) -> None:
        rule = type(self).__name__
        where = f"forgetting.{rule}"
        if (self.factor is None) == (self.half_life is None):
            came = "neither" if self.factor is None else "both"
            raise ParameterError(
                f"{where}: one of `factor`, by rows, and `half_life`, by time, must be given, got "
                f"{came}. Give {rule}(0.99) or {rule}(half_life='1h')."
            )
        if self.factor is not None:
            number = validation.in_range(self.factor, "factor", where, above=0.0, high=1.0)
            object.__setattr__(self, "factor", number)
        else:
            length = validation.duration(self.half_life, "half_life", where)
            object.__setattr__(self, "half_life", length)

    @property
    def clock(self) -> str | None:
        """What times it needs: "number", "date" or None."""
        return clock(self.half_life)

    @property
    def unit(self) -> float:
        """The half-life in the unit of times, seconds where these are dates."""
        length = self.half_life
        return validation.seconds(length) if isinstance(length, str) else float(length)


def clock(length: Any) -> str | None:
    """What times a rule needs that counts in a length of time: "number", "date" or None.

    Parameters
    ----------
    length : float, str or None
        As ``validate.duration`` gave it; None where the rule counts rows.

    Examples
    --------
    >>> clock("1h"), clock(60.0), clock(None)
    ('date', 'number', None)
    """
    if length is None:
        return None
    return "date" if isinstance(length, str) else "number"
