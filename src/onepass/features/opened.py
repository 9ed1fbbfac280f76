"""Opened: a network that is ready to be asked for its outputs, a row of numbers for each row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from onepass.errors import Array, Floats, ModuleError, OnepassError, ShapeError

__all__ = ["Opened"]


class Opened(NamedTuple):
    """A network that is ready to be asked."""

    ask: Callable[[Array], Any]
    """Outputs, an array of n rows, of an array (n, *shape)."""
    digest: str
    """SHA-256 of its weights or its file."""
    shape: tuple[int | None, ...] | None = None
    """The shape of a row, as far as it says one; None where a size may be any."""
    rows: int | None = None
    """The number of rows that it takes at once, if no other."""
    whole: np.dtype[Any] | None = None
    """The dtype of the whole numbers that it takes, if no others."""

    def outputs(self, rows: Array, width: int | None, where: str) -> Floats:
        """What it says of rows, side by side.

        Parameters
        ----------
        rows : ndarray of shape (n, *shape)
            At least one, and no more than it takes at once.
        width : int, optional
            The numbers that it gives for a row, where that is known.
        where : str
            Who asks what, for messages: ``"TorchFeatures: the module"``.

        Returns
        -------
        ndarray of shape (n, width)

        Raises
        ------
        ModuleError, ShapeError
            If it raises, or gives anything else.
        """
        n = len(rows)
        if self.rows is not None and n < self.rows:
            rows = np.concatenate((rows, np.zeros((self.rows - n, *rows.shape[1:]), rows.dtype)))
        try:
            said = self.ask(rows)
        except OnepassError:
            raise
        except Exception as wrong:  # whatever a user's network makes of rows
            raise ModuleError(
                f"{where} must answer rows of shape {rows.shape[1:]}, got "
                f"{type(wrong).__name__} from it: {str(wrong).strip()[:300]}. Give rows of the "
                "shape and size that it takes; where they come flat, say it: shape=..."
            ) from wrong
        Z: Floats = said.reshape(len(said), -1)[:n] if said.ndim and said.size else said
        if Z.ndim != 2 or not Z.size or len(said) != len(rows) or width not in {None, Z.shape[1]}:
            raise ShapeError(
                f"{where} must give {width or 'one or more'} numbers for each of {len(rows)} rows, "
                f"got an output of shape {said.shape}. Let it answer each row, with the rows along "
                "the first axis."
            )
        return Z
