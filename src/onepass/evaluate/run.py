"""Models on their way through a stream: each predicts every row before it learns it.

Models of several libraries are used through one interface.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
from sklearn.utils import gen_batches

from onepass.errors import CheckpointError, NotFittedError, OnepassError, ShapeError
from onepass.evaluate.blocks import Block, as_array, placed, refusal
from onepass.evaluate.curves import Ledger
from onepass.evaluate.delay import Room, Turns, Waiting
from onepass.evaluate.drift import Watch
from onepass.evaluate.report import Report
from onepass.evaluate.score import Score
from onepass.learners.estimator import learned
from onepass.serialization import former
from onepass.serialization.archive import damaged
from onepass.serialization.codec import from_state, state_dict
from onepass.types import Array
from onepass.validation.table import Table

__all__ = ["Course", "Model"]


_MOST = 4096  # rows a call: what has waited may come all at once


class Model(Protocol):
    """A model of any library that predicts each row just before it learns it."""

    @property
    def test_then_train(self) -> Callable[..., object]:
        """Take ``(X, y)``, learn the rows in order, and return the prediction before each."""


def _said_of(
    model: Model, X: Table | Array, y: Array, time: Array | None, weight: Array | None = None
) -> Array:
    """What a model says of rows, each just before it learns it."""
    given = {} if weight is None else {"sample_weight": weight}
    if time is not None and getattr(model, "uses_time", False):
        given["time"] = time
    said = as_array(model.test_then_train(X, y, **given))
    # what a compiled loop holds is read out after each block, whether somebody looks at it or not:
    # a run that is resumed from a file is to be the unbroken run to the last bit
    getattr(model, "__dict__", None)
    return said


def _said_of_turns(model: Model, turns: Turns) -> Array:
    """What a model says of the rows it is asked about, while it learns others in between."""
    by_weight = "sample_weight" in inspect.signature(model.test_then_train).parameters
    say = _by_weight if by_weight else _in_turn
    said = [say(model, turns, part) for part in gen_batches(len(turns.learned), _MOST)]
    return np.concatenate([some for some in said if len(some)])


def _said_of_rest(model: Model, rest: Block) -> Array:
    """What a model says of rows that have waited, each just before it learns it."""
    said = [
        _said_of(model, rest.X[part], rest.y[part], None if rest.time is None else rest.time[part])
        for part in gen_batches(len(rest), _MOST)
    ]
    return np.concatenate(said)


def _by_weight(model: Model, turns: Turns, part: slice) -> Array:
    """Rows of weight 0 are answered and not learned."""
    learned, time = turns.learned[part], None if turns.time is None else turns.time[part]
    with _placing(turns, part):
        said = _said_of(model, turns.X[part], turns.y[part], time, learned.astype(np.float64))
    return said.reshape(turns.y[part].shape)[~learned]


def _in_turn(model: Model, turns: Turns, part: slice) -> Array:
    """Runs of rows that are learned, and runs of rows that are asked about."""
    learned = turns.learned[part]
    ends = [*(np.flatnonzero(np.diff(learned)) + 1).tolist(), len(learned)]
    said, a = [turns.y[:0]], 0
    for b in ends:
        run = slice(part.start + a, part.start + b)
        with _placing(turns, run):
            if learned[a]:
                time = None if turns.time is None else turns.time[run]
                _said_of(model, turns.X[run], turns.y[run], time)
            else:
                said.append(_answered(model, turns.X[run]).reshape(turns.y[run].shape))
        a = b
    return np.concatenate(said[1:] or said)


@contextmanager
def _placing(turns: Turns, run: slice) -> Iterator[None]:
    """A model counts the turns that it was given: say where the row stands in the source."""
    try:
        yield
    except OnepassError as error:
        located = turns.located
        if located is None:
            raise
        raise placed(error, lambda i: located(run.start + i), run.stop - run.start) from error


def _answered(model: Any, X: Table | Array) -> Array:
    """What a model says of rows that it will not learn yet."""
    try:
        return as_array(model.predict(X))
    except NotFittedError:
        rows = X.rows() if hasattr(X, "rows") else X
        return np.asarray([model.predict_one(x) for x in rows])


class Course:
    """Models on their way through a stream.

    Parameters
    ----------
    models : dict of str to learner
        The models, then the baselines.
    ledger : Ledger
        Where what they say is counted.
    room : Room or None
        Where rows wait whose answers come later.
    clock : callable or None
        Seconds from any origin, to time each model.
    where : str
        The public call, for messages.

    Attributes
    ----------
    whole : bool
        Whether every model has learned every block that was begun.
    watch : Watch or None
        Detectors of drift, if there are to be some.
    """

    def __init__(
        self,
        models: dict[str, Model],
        ledger: Ledger,
        room: Room | None,
        clock: Callable[[], float] | None,
        where: str,
    ) -> None:
        self.models, self.ledger, self.room, self.clock = models, ledger, room, clock
        self.whole = True
        self.watch: Watch | None = None
        self._seconds = dict.fromkeys(models, 0.0)
        self._where = where

    def take(self, block: Block) -> dict[str, Array]:
        """Learn a block; return what each model said of its rows.

        Parameters
        ----------
        block : Block
            Its rows are learned now, or wait for their answers.
        """
        if len(block) == 0:
            self.ledger.add(block, {})
            return dict.fromkeys(self.models, block.y)
        turns = None if self.room is None else self.room.turns(block, self.ledger.rows)
        self.whole = False
        first = self.ledger.rows if block.first is None else block.first
        place = f"{len(block):,} rows from row {first:,} (from 0)"
        said = {}
        for name, model in self.models.items():
            asked = partial(_said_of, model, block.X, block.y, block.time)
            if turns is not None:
                asked = partial(_said_of_turns, model, turns)
            located = block.located if turns is None else None
            said[name] = self._said(name, place, block.y, asked, located)
        before = self.ledger.rows
        self.ledger.add(block, said)
        if self.watch is not None:
            self.watch.add(before, block, said)
        if self.room is not None and turns is not None:
            self.room.settle(turns)
        self.whole = True
        return said

    def finish(self) -> None:
        """The stream has ended: learn the rows that still wait, in order of their answers."""
        rest = None if self.room is None else self.room.rest(self.ledger.time)
        if rest is None:
            return
        place = f"{len(rest):,} rows that waited for their answers"
        for name, model in self.models.items():
            self._said(name, place, rest.y, partial(_said_of_rest, model, rest))

    def _said(
        self,
        name: str,
        place: str,
        y: Array,
        asked: Callable[[], Array],
        located: Callable[[int], str] | None = None,
    ) -> Array:
        """What a model says of rows with these answers, and how long it took."""
        place = f"{self._where}: model {name!r}, {place}"
        began = self.clock() if self.clock else 0.0
        try:
            said = asked()
        except OnepassError as error:
            raise refusal(error, place, located, len(y)) from error
        except Exception as error:
            error.add_note(place)
            raise
        self._seconds[name] += self.clock() - began if self.clock else 0.0
        if said.size != y.size:
            raise ShapeError(
                f"{place}: test_then_train must return one answer for each row, shape "
                f"{y.shape}, got {said.shape}. Return what was said of each row."
            )
        return said.reshape(y.shape)

    def state(self, place: str) -> dict[str, Any]:
        """All that the course has come to, as plain values and arrays.

        Parameters
        ----------
        place : str
            Where they will be written, for messages.

        Raises
        ------
        CheckpointError
            If a model or a metric is not one that a file can hold.
        """
        room = self.room
        state = {
            "models": self.models,
            "seconds": self._seconds,
            "ledger": self.ledger,
            "room": None if room is None else {"last": room.last, "waiting": room.waiting},
        }
        found: dict[str, Any] = state_dict(state, place)
        return found

    def restore(self, state: Any, place: str) -> None:
        """Go on from what ``state`` gave.

        Parameters
        ----------
        state : dict
            From whatever source.
        place : str
            Where it was read, for messages.

        Raises
        ------
        CheckpointError
            If it is of a course of other models or metrics, or no such thing. Nothing was restored.
        """
        classes = {name: type(model).__name__ for name, model in self.models.items()}
        try:
            state = former.course(state, classes, state_dict(self.ledger, place))
            saved = state.pop("models")
            models = {name: _model(m, saved[name], place) for name, m in self.models.items()}
            found = from_state(state, place)
            seconds = {name: float(found["seconds"][name]) for name in self.models}
            room = {"last": None, "waiting": None} | (found["room"] or {})
            if saved.keys() != classes.keys() or not self.ledger.is_like(found["ledger"]):
                raise damaged(place, "it is of other models or metrics")
            if type(room["waiting"]) not in {Waiting, type(None)}:
                raise damaged(place, "the rows that wait are not whole")
        except CheckpointError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as wrong:
            raise damaged(place, f"it does not hold a whole run: {wrong!r}") from wrong
        self._seconds, self.ledger = seconds, found["ledger"]
        if self.room is not None:
            self.room.last, self.room.waiting = room["last"], room["waiting"]
        for name, model in self.models.items():
            _relearn(model, models[name])

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
                drift=None if self.watch is None else self.watch.found(name),
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


def _model(model: Any, state: Any, place: str) -> Any:
    """The model of a checkpoint, with the functions of the one that was made alike."""
    given = {
        name.rpartition("__")[2]: value
        for name, value in model.get_params(deep=True).items()
        if callable(value) or isinstance(value, bytes)  # a network as it stands in a file
    }
    found = from_state(state, place, given, spare=True)
    if type(found) is not type(model):
        raise damaged(place, "a model is of another class")
    return found


def _relearn(model: Any, other: Any) -> None:
    """Let a model have learned what another of its class has."""
    for name in learned(model):
        delattr(model, name)
    for name in learned(other):
        setattr(model, name, getattr(other, name))
    for feature in getattr(model, "features_", ())[:1]:
        if hasattr(feature, "missing"):  # the policy may change where a run stopped at a gap
            feature.missing = model.missing


def _nbytes(model: object) -> int | None:
    size = getattr(model, "nbytes", None)
    return None if size is None else int(size)
