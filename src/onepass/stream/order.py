"""Order: which task comes first, second and last, as told or as drawn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onepass.errors import ParameterError
from onepass.stream.experiences import Experiences

__all__ = ["in_order"]

_ORDER = 5  # sets the draw of an order apart from those of rows


def in_order(
    made: Experiences,
    order: Sequence[int] | str | None,
    where: str,
    name: str = "order",
    seed: int = 0,
) -> Experiences:
    """The same tasks in another order.

    Parameters
    ----------
    made : Experiences
        The tasks as they stand.
    order : sequence of int, "random" or None
        Which comes first, second, …; None to leave them.
    where, name : str
        The public call and its argument, for messages.
    seed : int, default=0
        Draws a random order.

    Raises
    ------
    ParameterError
        If the order does not name each task once, from 0 on.
    """
    if order is None:
        return made
    if isinstance(order, str) and order == "random":
        rng = np.random.default_rng([seed, _ORDER])
        wanted = rng.permutation(len(made)).tolist()
    else:
        wanted = list(order)
    if sorted(wanted) != list(range(len(made))):
        raise ParameterError(
            f"{where}: `{name}` must name each of the {len(made)} tasks once, from 0 on, got "
            f"{wanted}. Give a permutation of range({len(made)}), or 'random'."
        )
    return replace(made, tasks=tuple(made.tasks[task] for task in wanted))
