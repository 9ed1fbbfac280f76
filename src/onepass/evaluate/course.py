"""Course: models on their way through a stream, each asked about every row before it learns it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onepass.errors import OnepassError, ShapeError
from onepass.evaluate.blocks import Block
from onepass.evaluate.ledger import Ledger
from onepass.evaluate.report import Report
from onepass.evaluate.score import Score
from onepass.types import Array

__all__ = ["Course"]


class Course:
    """Models on their way through a stream.

    Parameters
    ----------
    models : dict of str to learner
        The models, then the baselines.
    ledger : Ledger
        Where what they say is counted.
    clock : callable or None
        Seconds from any origin, to time each model.
    where : str
        The public call, for messages.

    Attributes
    ----------
    whole : bool
        Whether every model has learned every block that was begun.
    """

    def __init__(
        self,
        models: dict[str, Any],
        ledger: Ledger,
        clock: Callable[[], float] | None,
        where: str,
    ) -> None:
        self.models, self.ledger, self.clock = models, ledger, clock
        self.whole = True
        self._seconds = dict.fromkeys(models, 0.0)
        self._where = where

    def take(self, block: Block) -> dict[str, Array]:
        """Learn a block; return what each model said of its rows."""
        if len(block) == 0:
            self.ledger.add(block, {})
            return dict.fromkeys(self.models, block.y)
        self.whole = False
        said = {name: self._said(name, model, block) for name, model in self.models.items()}
        self.ledger.add(block, said)
        self.whole = True
        return said

    def _said(self, name: str, model: Any, block: Block) -> Array:
        began = self.clock() if self.clock else 0.0
        first = self.ledger.rows if block.first is None else block.first
        place = f"{self._where}: model {name!r}, {len(block):,} rows from row {first:,} (from 0)"
        try:
            said = np.asarray(model.test_then_train(block.X, block.y))
        except OnepassError as error:
            raise type(error)(f"{place}: {error}") from error
        except Exception as error:
            error.add_note(place)
            raise
        self._seconds[name] += self.clock() - began if self.clock else 0.0
        if said.size != block.y.size:
            raise ShapeError(
                f"{place}: test_then_train must return one answer for each row, shape "
                f"{block.y.shape}, got {said.shape}. Return what was said of each row."
            )
        return said.reshape(block.y.shape)

    def report(self, said: Mapping[str, Any], least: set[str]) -> Report:
        """What there is to say at the end.

        Parameters
        ----------
        said : mapping of str to object
            The report's fields that a course does not know.
        least : set of str
            Which of the models are baselines.
        """
        self.ledger.end()
        overall, recent = self.ledger.overall(), self.ledger.recent()
        curves = self.ledger.curves()
        scores = {
            name: Score(
                learner=" ".join(repr(model).split()),
                baseline=name in least,
                overall=overall[name],
                recent=None if recent is None else recent[name],
                seconds=self._seconds[name] if self.clock else None,
                nbytes=_nbytes(model),
            )
            for name, model in self.models.items()
        }
        return Report(
            **said,
            rows=self.ledger.rows,
            skipped=self.ledger.skipped,
            scores=scores,
            overall=curves[0],
            recent=curves[1],
        )


def _nbytes(model: Any) -> int | None:
    size = getattr(model, "nbytes", None)
    return None if size is None else int(size)
