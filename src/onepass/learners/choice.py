"""Choice: a name and its options, as one checked specification.

Learners take a name (``loss="huber"``) and its options (``huber_delta=2.0``) side by side, as
scikit-learn's searches want them. An option left at None has the default of what the name stands
for; an option of something else is refused, so that none is accepted and ignored.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from onepass import validation
from onepass.errors import ParameterError

__all__ = ["chosen"]

T = TypeVar("T")


def chosen(catalogue: Mapping[str, type[T]], what: str, params: Mapping[str, Any], who: str) -> T:
    """The specification that a user's parameters name.

    Parameters
    ----------
    catalogue : dict of str to dataclass
        What can be chosen. A field's metadata holds its range, as `validate.in_range` takes it.
    what : str
        The parameter that holds the name.
    params : dict of str to object
        The learner's parameters.
    who : str
        The learner, for messages.

    Raises
    ------
    ParameterError
        If the name is unknown, or an option is out of range or belongs to another name.

    Examples
    --------
    >>> from onepass.losses import REGRESSION_LOSSES
    >>> chosen(REGRESSION_LOSSES, "loss", {"loss": "huber", "huber_delta": 2}, "SGDRegressor")
    Huber(huber_delta=2.0)
    """
    name = params[what]
    if not isinstance(name, str) or name not in catalogue:
        raise ParameterError(
            f"{who}: `{what}` must be one of {', '.join(map(repr, catalogue))}, got {name!r}. "
            "Choose one of these."
        )
    kinds: Mapping[str, Any] = catalogue
    ranges = _ranges(kinds[name])
    given = {}
    for other, kind in kinds.items():
        for option in _ranges(kind):
            value = params.get(option)
            if value is None:
                continue
            if option not in ranges:
                raise ParameterError(
                    f"{who}: `{option}` must be left out with {what}={name!r}, got {value!r}. "
                    f"Leave it out, or choose {what}={other!r}."
                )
            given[option] = validation.in_range(value, option, who, **ranges[option])
    return catalogue[name](**given)


@cache
def _ranges(kind: Any) -> dict[str, Mapping[str, float]]:
    """The options of a dataclass, and the range of each."""
    return {f.name: f.metadata for f in fields(kind)}
