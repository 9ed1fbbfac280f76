"""Expected errors by their class and fields, since texts change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from onepass.errors import OnepassError

__all__ = ["raises"]

Error = TypeVar("Error", bound=OnepassError)


@contextmanager
def raises(
    kind: type[Error], *, where: str = "", got: str = "", remedy: str = "", **fields: object
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Expect an error of onepass by its fields; ``pytest.raises(match=...)`` is for texts.

    Parameters
    ----------
    kind : type
        The class of the error.
    where : str, default=""
        The call, or its end if the test has calls of several classes.
    got, remedy : str, default=""
        The beginning of what was received, and a part of the remedy, each as a field or in the
        text.
    **fields
        The values of other fields.

    Examples
    --------
    >>> with raises(OnepassError, argument="X", got="nan", row=2, remedy="Drop"):
    ...     raise OnepassError("`X` must be finite", got="nan", row=2, remedy="Drop the row.")
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.where.endswith(where), f"{error!r} does not name {where!r}"
    actual = {name: getattr(error, name) for name in fields}
    assert actual == fields, f"{error!r} has the fields {actual}, expected {fields}"
    assert not got or f"got {got}" in str(error), f"{error!r} was not raised for {got}"
    assert remedy in (error.remedy or str(error)), f"{error!r} does not contain {remedy!r}"
