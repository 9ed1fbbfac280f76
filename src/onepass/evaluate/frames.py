"""Columns as a frame of whichever library the reader has."""

from importlib import import_module
from typing import Any

from onepass.errors import MissingExtraError, ParameterError

__all__ = ["frame"]


def frame(columns: dict[str, list[Any]], library: str | None, where: str) -> Any:
    """Columns as a frame of a library that is installed.

    Parameters
    ----------
    columns : dict of str to list
        The columns, in order.
    library : {"pandas", "polars", "pyarrow"} or None
        Whose frame to make; None for the first that is installed.
    where : str
        The public call, for messages.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    ParameterError
        If it is none of the three.
    """
    makers = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}
    wanted = list(makers) if library is None else [library]
    for name in wanted:
        if name not in makers:
            raise ParameterError(
                f"{where}: `library` must be one of {', '.join(makers)}, got {name!r}. "
                "Choose one of them, or None for the first that is installed."
            )
        try:
            return getattr(import_module(name), makers[name])(columns)
        except ImportError:
            continue
    raise MissingExtraError(
        f"{where} needs {' or '.join(wanted)}. Install it with: pip install {wanted[-1]}"
    )
