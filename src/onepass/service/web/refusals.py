"""Refusals: what is said of rows below onepass, by scikit-learn, NumPy or a user's feature.

Such a ValueError or TypeError is about what came, if it is raised while rows are read, predicted or
learned; anywhere else it is a failure of the server.
"""

from types import TracebackType

from numpy.linalg import LinAlgError

from onepass.errors import OnepassError, RequestError

__all__ = ["OfRows"]

_OURS = (OnepassError, LinAlgError)  # the second is about arithmetic, not about what came


class OfRows:
    """A context in which errors are about the rows of a request.

    Parameters
    ----------
    name : str
        Of the learner.

    Raises
    ------
    RequestError
        In place of a ValueError or TypeError that is not onepass's own.

    Examples
    --------
    >>> with OfRows("flow"):
    ...     raise ValueError("X has 3 features, but it is expecting 2.")
    Traceback (most recent call last):
        ...
    onepass.errors.RequestError: flow: the rows must be such as it takes, got: X has 3 features, but
    it is expecting 2. Send others.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(wrong, (TypeError, ValueError)) and not isinstance(wrong, _OURS):
            came = str(wrong).rstrip(".")
            raise RequestError(
                f"{self._name}: the rows must be such as it takes, got: {came}. Send others."
            ) from wrong
