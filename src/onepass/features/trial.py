"""Trial: whether a network says the same of a row each time, found out with a row of noise."""

from collections.abc import Callable

import numpy as np

from onepass.errors import Array, Floats, ParameterError

__all__ = ["alike", "tried"]

_ALIKE = 0.03  # of the largest output: more than devices and half precision differ


def tried(
    ask: Callable[[Array], Floats],
    shape: tuple[int, ...],
    where: str,
    *,
    several: bool,
    whole: bool,
) -> Floats:
    """What a network says of a row of noise, the same for all time.

    Parameters
    ----------
    ask : Callable
        Outputs (n, k) of rows (n, *shape).
    shape : tuple of int
        Of a row.
    where : str
        Who asks, for messages.
    several : bool
        Whether several rows are ever asked at once.
    whole : bool
        Whether rows must be whole numbers.

    Returns
    -------
    ndarray of shape (k,)

    Raises
    ------
    ParameterError
        If the row has another answer when it is asked again, or when another is beside it.

    Examples
    --------
    >>> said = tried(lambda rows: rows.sum(axis=1, keepdims=True), (4,), "here", several=True,
    ...              whole=False)
    >>> len(said)
    1
    """
    noise = np.random.default_rng(0).random((2, *shape), dtype=np.float32)
    noise = np.round(noise) if whole else noise  # 0 or 1, which most indices may be
    alone: Floats = ask(noise[:1])[0]
    again = ask(noise[:1])[0]
    beside = ask(noise)[0] if several else alone
    for other, when in ((again, "it is asked once more"), (beside, "another row is beside it")):
        if not alike(alone, other):
            raise ParameterError(
                f"{where}: a network must say the same of a row each time, whatever other rows are "
                f"asked with it, got another answer when {when}. Let it draw no lots and take no "
                "statistics of a batch; for the latter, batch_size=1 asks each row alone."
            )
    return alone


def alike(one: Floats, two: Floats) -> bool:
    """Whether two outputs are the same but for rounding, on whatever device.

    Parameters
    ----------
    one, two : ndarray of shape (k,)

    Examples
    --------
    >>> sum([alike(np.array([1.0, 2.0]), np.array([1.001, 2.0]))])
    1
    """
    if one.shape != two.shape:
        return False
    a, b = (np.nan_to_num(each.astype(np.float64)) for each in (one, two))
    size = max(float(np.abs(each).max(initial=0.0)) for each in (a, b))
    return float(np.abs(a - b).max(initial=0.0)) <= _ALIKE * size
