"""Served: a durable learner, the thread that learns, and its gauges.

Whoever asks is answered at once by the learner as it was last acknowledged. Whoever has rows to be
learned puts them into a queue that is bounded; a thread takes all that wait, learns them as one
group, brings them to the disk, and says so to all.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import sleep
from typing import Any, TypeVar

from onepass.errors import Array, OnepassError, ParameterError, StoreError, UnknownError
from onepass.serialization.state import nbytes
from onepass.service.diary import Diary
from onepass.service.gauges import Gauges
from onepass.service.looks import Looks
from onepass.service.requests import Receipt, Request, shut
from onepass.service.sources import Feeder, Source
from onepass.service.store import Durable
from onepass.service.versions import Version
from onepass.service.waiting import Waiting

__all__ = ["Served"]

_GAP = 1e-4  # seconds: whoever waits for a lock is woken more slowly than it can be taken again
_T = TypeVar("_T")


class Served:
    """One learner while it is served.

    Parameters
    ----------
    name : str
    durable : Durable
        Closed when this is.
    gauges : Gauges
    diary : Diary
        Where the gauges are kept.
    most_waiting : int, default 65,536
        Rows that may wait to be learned.
    """

    def __init__(
        self,
        name: str,
        durable: Durable,
        gauges: Gauges,
        diary: Diary,
        *,
        most_waiting: int = 1 << 16,
    ) -> None:
        self.name = name
        self.durable = durable
        self.gauges = gauges
        self.feeders: list[Feeder] = []
        self._diary = diary
        self._waiting = Waiting(name, most_waiting)
        self._gate = shut()  # where the thread waits
        self.pace = 1.0
        """CPU seconds per row of the slowest recent prediction."""
        self.failed: str | None = None
        """The error of the last attempt to learn; None if it succeeded."""
        self._looks = Looks(durable)
        self._thread = Thread(target=self._work, name=f"learn {name}", daemon=True)
        self._thread.start()

    # -- verbs ---------------------------------------------------------------------------------

    def answering(self, version: str | None = None) -> tuple[int, Any]:
        """The present version, and the learner that answers with it.

        Parameters
        ----------
        version : str, optional
            That it must be.

        Raises
        ------
        UnknownError
            If it is another.
        """
        now, learner = self.durable.published
        if version is not None and version != str(now):
            raise UnknownError(
                f"{self.name}: what answers is the present version, {now}, got {version[:40]!r}. "
                "Ask without a version, or roll back to it first."
            )
        return now, learner

    def learn(self, rows: Mapping[str, Any], done: Callable[[Request], None], **named: Any) -> None:
        """Have rows learned, once ``wake`` is called.

        Parameters
        ----------
        rows : mapping
            ``X``, ``y``, and if there are ``sample_weight`` and ``time``, as for ``Durable.learn``.
        done : callable
            Called by the thread that learns, when they are on the disk or refused.
        **named
            ``key``, ``former``, ``source``, ``position``, as for ``Durable.request``.

        Raises
        ------
        BusyError
            If too many rows wait.
        StoreError
            If it is being stopped.
        OnepassError
            If these are no rows.
        """
        count = len(rows["X"])
        self._waiting.admit(count)

        def settled(request: Request) -> None:
            self._waiting.done(count)
            if request.error is not None:
                self._note(count, request.error)
            done(request)

        try:
            self.durable.request(**rows, **named, done=settled)
        except BaseException as wrong:
            self._waiting.done(count)
            self._note(count, wrong)
            raise

    def wake(self) -> None:
        """Have what waits be learned now; without it, that begins within a second."""
        with suppress(RuntimeError):  # it was opened already
            self._gate.release()

    def admitted(self, count: int, work: Callable[[], _T]) -> Callable[[], _T]:
        """Work of ``ask`` or ``answer``, to be done once by a thread that may wait.

        Parameters
        ----------
        count : int
            Rows that it brings to the disk; they wait until it is done.
        work : callable

        Raises
        ------
        LongError
            If these are too many rows at once.
        BusyError
            If too many rows wait.
        StoreError
            If it is being stopped.
        """
        self._waiting.admit_each(count)

        def done() -> _T:
            try:
                return work()
            finally:
                self._waiting.done(count)

        return done

    def ask(self, X: Any, seconds: float) -> tuple[int, Array, list[str]]:
        """The version that answers, answers, and ids for those that come later."""
        self._waiting.hold_open()
        return self.durable.asked(X, seconds=seconds)

    def answer(
        self, ids: Sequence[str], y: Any, sample_weight: Any = None, *, time: Any = None
    ) -> Receipt:
        """Learn rows that were asked, as ``Durable.answer`` does."""
        self._waiting.hold_open()
        try:
            return self.durable.answer(ids, y, sample_weight, time=time)
        except OnepassError as wrong:
            self._note(len(ids), wrong)
            raise

    def feed(self, source: Source, log: Callable[..., object] | None = None) -> None:
        """Learn what a source brings, as long as this is served; ``log`` as for :class:`.Feeder`.

        Raises
        ------
        ParameterError
            If it is read already, or tells times to a learner that wants none, or none to another.
        """
        if any(feeder.source.name == source.name for feeder in self.feeders):
            raise ParameterError(
                f"{self.name}: a source must be read once, got {source.name} twice. Leave one out."
            )
        self.feeders.append(Feeder(self.durable, source, self.gauges, log))

    def hold_ready(self) -> None:
        """Refuse where the learner cannot learn now.

        Raises
        ------
        StoreError
        """
        self._waiting.hold_open()
        if not self.ready:
            raise StoreError(self.trouble or f"{self.name}: it could not learn. Ask again.")

    # -- what there is -------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it can learn, as far as is known."""
        return self.failed is None and self.durable.ready

    @property
    def trouble(self) -> str | None:
        """What is wrong, even if it can learn; None if all is well."""
        return self.failed or self.durable.trouble

    @property
    def source_trouble(self) -> str | None:
        """What keeps it from reading its sources; it learns from whoever asks all the same."""
        return " ".join(each.trouble for each in self.feeders if each.trouble) or None

    @property
    def waiting(self) -> int:
        """Rows that wait to be learned."""
        return self._waiting.rows

    @property
    def waiting_answers(self) -> int:
        """Rows that wait for their answers, as counted within the last second."""
        return self._looks.now()[0]

    @property
    def versions(self) -> list[Version]:
        """The snapshots."""
        return self._looks.now()[1]

    @property
    def spectrum(self) -> list[float] | None:
        """Of the memory; of single rows alone, as it was when the learner was last written down."""
        return self._looks.spectrum()

    @property
    def nbytes(self) -> int:
        """Of what was learned."""
        return nbytes(self.durable.answering)

    def close(self) -> None:
        """Read sources no further, learn what waits, then let the file go."""
        for feeder in self.feeders:
            feeder.close()
        self._waiting.end()
        self.wake()
        self._thread.join()
        try:
            self.durable.close()
        finally:
            self._diary.write(self.gauges)

    # -- what stands behind them ---------------------------------------------------------------

    def _note(self, count: int, wrong: BaseException) -> None:
        """Note that rows were refused; where it was the disk's fault, ``trouble`` tells it."""
        if not isinstance(wrong, StoreError):
            self.gauges.refuse(count, str(wrong))

    def _work(self) -> None:
        """Until it ends, and nobody who was admitted waits, or it cannot be done."""
        waiting = self._waiting
        while not waiting.ended or (waiting.rows and not self.failed):
            self._gate.acquire(timeout=0.05 if waiting.ended else 1.0)
            try:
                self.durable.settle()
                self._diary.tend(self.gauges, self.durable.last_snapshot[0])
                self.failed = None
            except Exception as wrong:  # noqa: BLE001  the page tells it; the thread goes on
                self.failed = str(wrong) or repr(wrong)
            if not self._gate.locked():  # more has come; others want the file too
                sleep(_GAP)
