"""Store: a learner whose every row is on the disk before it is acknowledged."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from onepass.errors import Array, ParameterError
from onepass.service.charge import Charge, said_of
from onepass.service.intake import hold_answered, read_rows
from onepass.service.journal import Journal
from onepass.service.keeper import Keeper
from onepass.service.late import Late
from onepass.service.policy import Watcher
from onepass.service.requests import Receipt, Request
from onepass.service.versions import Versions
from onepass.service.words import hold_text
from onepass.service.written import hold_size, written
from onepass.validation.table import named_row

__all__ = ["Durable"]


class Durable(Late, Versions):
    """A learner, and a file in which everything stands that it has learned; see ``op.durable``.

    Any thread may call any method. Those that learn return when their rows are on the disk, and
    rows that several threads give at once are written together. Those that only ask never wait for
    rows to be learned: they see all rows that were acknowledged, and never half a block.

    Attributes
    ----------
    path : Path
    version : int
        How many blocks were learned, rollbacks counted too.
    rows_seen : int
        How many rows, those that were rolled back too.
    positions : dict of str to str
        The last position of each source that rows came from.
    """

    def __init__(self, journal: Journal, keeper: Keeper) -> None:
        super().__init__(journal, keeper)
        self._named = repr(keeper.answering)
        self._learning = f"{journal.where}.learn"

    # -- learning ------------------------------------------------------------------------------

    def learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        time: Any = None,
        key: str | None = None,
        source: str | None = None,
        position: str | None = None,
    ) -> Receipt:
        """Learn rows; they are on the disk when it returns.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As the learner's own verbs take them.
        key : str, optional
            An idempotency key: a request that is sent again with the same key is learned once, and
            moves no position. The rows must have the same values, in whatever dtype or form.
        source, position : str, optional
            Where the rows came from, and where to go on reading when they are learned: committed
            with them, and told by ``positions``.

        Returns
        -------
        receipt : Receipt
            Its ``said`` was said of each row just before it was learned.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing was learned, and nothing written.
        KeyReusedError
            If the key came with other rows before.
        StoreError
            If the disk is full: then nothing was learned. If it fails, that is not known; and
            nothing more is learned until it is opened again.
        """
        request = self._request(X, y, sample_weight, time, key, None, source, position)
        return self._settled(request)

    def learn_one(
        self,
        x: Any,
        y: Any,
        sample_weight: float = 1.0,
        *,
        time: Any = None,
        key: str | None = None,
    ) -> Receipt:
        """Learn one row: an array of shape (d,), or a dict of named features; as ``learn`` does."""
        x = named_row(x)
        X = [x] if isinstance(x, Mapping) else np.asarray(x)[None]
        weight = None if sample_weight == 1.0 else sample_weight
        return self.learn(X, [y], weight, time=None if time is None else [time], key=key)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None) -> Self:
        """Learn rows, as the learner's own verb does."""
        self.learn(X, y, sample_weight, time=time)
        return self

    def test_then_train(
        self, X: Any, y: Any, sample_weight: Any = None, *, time: Any = None
    ) -> Array:
        """Learn rows; what would have been said of each just before learning it."""
        return self.learn(X, y, sample_weight, time=time).said

    def request(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        time: Any = None,
        key: str | None = None,
        digest: bytes | None = None,
        source: str | None = None,
        position: str | None = None,
        done: Callable[[Request], None] | None = None,
        former: bytes = b"",
    ) -> Request:
        """Rows to be learned by the next ``settle``, for those who do not wait.

        Parameters
        ----------
        X, y, sample_weight, time, key
            As for ``learn``.
        digest : bytes, optional
            What tells this request from others with the same key, if it was computed before.
        source, position
            As for ``learn``.
        done : callable, optional
            Called with the request when it is decided on, by the thread that settles it, or
            refused by the one that closes this meanwhile.
        former : bytes, optional
            A digest under which a former version may have noted this request.

        Raises
        ------
        StoreError
            If it was closed.
        OnepassError
            If these are no rows.
        """
        request = self._request(X, y, sample_weight, time, key, digest, source, position)
        request.done, request.former = done, former
        self._put(request)
        return request

    def _request(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        time: Any,
        key: str | None,
        digest: bytes | None,
        source: str | None,
        position: str | None,
    ) -> Request:
        where = self._learning
        hold_answered(y, where)
        if (source is None) != (position is None):
            raise ParameterError(
                f"{where}: `source` and `position` must be given together, got {source!r} and "
                f"{position!r}. Give both, or neither."
            )
        if key is not None:
            hold_text(key, "key", where)
        if source is not None:
            hold_text(source, "source", where)
            hold_text(position, "position", where)
        block = read_rows(X, y, sample_weight, time, where=where)
        body = b"" if block.plain else written(block, where)
        size = len(body) or block.X.nbytes
        hold_size(size, where)
        keys = [] if key is None else [(f"k{key}", digest or block.digest())]
        return Request(block, body, size, keys, source, position)

    # -- saying --------------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """Answers for rows, by the learner as it was when it last learned."""
        return said_of(self._keeper.answering, X)

    def predict_proba(self, X: Any) -> Array:
        """The classes' probabilities, of a learner that has them."""
        said: Array = self._keeper.answering.predict_proba(X)
        return said

    def predict_one(self, x: Any) -> Any:
        """The answer for one row."""
        return self._keeper.answering.predict_one(x)

    @property
    def answering(self) -> Any:
        """A learner that says what this one says now, and goes on saying it; it is not to learn."""
        return self._keeper.answering

    @property
    def published(self) -> tuple[int, Any]:
        """The present version, and the learner that answers with it: see ``answering``."""
        self._land()
        return self._keeper.published

    # -- what there is --------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """How many blocks were learned."""
        return self._journal.sequence

    @property
    def rows_seen(self) -> int:
        """How many rows were learned."""
        return self._journal.seen

    @property
    def ready(self) -> bool:
        """Whether it can learn, as far as is known."""
        return self._keeper.ready

    @property
    def trouble(self) -> str | None:
        """What is wrong, even if it can learn; None if all is well."""
        return self._keeper.trouble

    def watch(self, watcher: Watcher) -> None:
        """Have each block told that is learned from now on, once it is on the disk.

        Parameters
        ----------
        watcher : callable
            Called with the block and with what was said of its rows before, by whoever has the
            turn: it must be quick, and call no verb that learns. It may return a function for what
            may take longer: called after the rows are settled, though a ``learn`` in this thread
            returns only then, and left out if an interrupt comes in between.
        """
        self._keeper.watch = watcher

    def hold_like(self, model: Any) -> None:
        """Refuse a learner of another class, or of other parameters, than this one.

        Parameters
        ----------
        model : learner or Pipeline

        Raises
        ------
        ParameterError, TypeMismatchError
        """
        where = self._journal.where
        self._keeper.charge.hold_like(Charge.of(model, where).learner, where)

    @property
    def positions(self) -> dict[str, str]:
        """The last position of each source."""
        self._land()
        return dict(self._keeper.positions)

    # -- the end -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Durable {self._named} at {self.path}: {self.rows_seen:,} rows, version "
            f"{self.version:,}{', closed' * bool(self._gone)}>"
        )
