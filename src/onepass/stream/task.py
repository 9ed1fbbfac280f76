"""Task: what the answers of a stream ask for, classification or regression.

======================================= ==============
the answers of the first rows           the task
======================================= ==============
text                                    classification
0 and 1, both and nothing else          classification
any other numbers                       regression
======================================= ==============

Truth values are 0 and 1 in every table. Numbers are taken for labels in no other case: 0 to 9 may
be digits, or counts. Whoever knows better says so.
"""

from collections.abc import Sequence

import numpy as np

from onepass.errors import Array, TypeMismatchError

__all__ = ["LOOKED_AT", "check_labels", "suggested"]

LOOKED_AT = 1024
"""How many rows are looked at, whatever the width of a block."""

_FEWEST = 10  # rows by which labels are judged


def check_labels(answers: Sequence[Array], where: str, target: str) -> None:
    """Refuse targets of text of which nearly all values differ: each would be a class.

    Raises
    ------
    TypeMismatchError
        If more than nine in ten of the first texts are different.
    """
    labels = [label for y in answers if y.dtype.kind == "O" for label in y.tolist()][:LOOKED_AT]
    different = len(set(labels))
    if len(labels) >= _FEWEST and different > 0.9 * len(labels):
        raise TypeMismatchError(
            f"{where} must hold numbers, or labels that repeat, got {different:,} different "
            f"texts in {len(labels):,} rows, such as {labels[0]!r}. Give types={{{target!r}: "
            f"'number'}} (--type {target}=number), with decimal= and thousands= (--decimal, "
            f"--thousands) as they are spelled, if they are numbers; types={{{target!r}: 'text'}} "
            f"(--type {target}=text) if they are labels."
        )


def suggested(answers: Sequence[Array]) -> str:
    """The task that some answers suggest.

    Parameters
    ----------
    answers : sequence of ndarrays of shape (n,) or (n, c)
        Those of the first blocks; only the first :data:`LOOKED_AT` rows are looked at.

    Returns
    -------
    task : {"regression", "classification"}

    Examples
    --------
    >>> suggested([np.array([0.0, 1.0, 1.0])]), suggested([np.array([0.0, 1.0, 1.5])])
    ('classification', 'regression')
    >>> len(suggested([np.zeros(3), np.array(["wet", "dry"], dtype=object)]))
    14
    """
    if any(y.dtype.kind == "O" for y in answers):
        return "classification"
    values = np.concatenate([y.astype(np.float64).ravel() for y in answers] or [np.empty(0)])
    single = all(y.ndim == 1 for y in answers)
    found = set(np.unique(values[:LOOKED_AT]).tolist())
    return "classification" if single and found == {0.0, 1.0} else "regression"
