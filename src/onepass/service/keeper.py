"""Keeper: decides on requests: what is learned is written down, and only then acknowledged.

A group of requests is learned, brought to the disk, and told of. If it cannot be written, nobody is
told otherwise: the learner is made again from what is on the disk before it learns anything else.
The same if an interrupt comes in between: then the disk says what became of the group.
"""

import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from onepass.errors import BusyError, KeyReusedError, StoreError
from onepass.service.blocks import Block, joined
from onepass.service.records import Answer, Asked, Entry, Group
from onepass.service.requests import Receipt, Request, runs, said_from_bytes, said_to_bytes
from onepass.service.tending import Tending
from onepass.validation.arrays import bounded

__all__ = ["Keeper"]


class _Flight:
    """A group on its way to the disk."""

    __slots__ = ("group", "learned", "positions", "requests")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests, self.group = requests, Group()
        self.learned: list[tuple[Block, Any]] = []
        self.positions: dict[str, str] = {}


class Keeper(Tending):
    """What learns and writes down; of the same parameters."""

    at_it = False
    """Whether something is begun and not yet done, as whoever has the turn says."""
    _pending = 1 << 62
    """An upper bound of the rows that wait for their labels: labelled ones may still be counted."""
    _flight: _Flight | None = None
    _certain: tuple[Sequence[Request], Exception | None] = ((), None)
    """Of which requests the fate is certain, and not told yet; and why, if they are refused."""

    @property
    def left(self) -> bool:
        """Whether an interrupt has left a group of which it was not told whether it is kept."""
        return self._flight is not None and not self.at_it

    def take(self, requests: Sequence[Request]) -> None:
        """Decide on requests: learn and write down, or refuse each by itself.

        What is wrong is noted in the requests; only an interrupt is raised here.

        Parameters
        ----------
        requests : sequence of Request
        """
        while requests:
            try:
                self.hold_ready()
            except Exception as wrong:  # noqa: BLE001  each is told
                self.refuse(requests, wrong)
            requests = [each for each in requests if not each.settled]
            if requests:
                self._decide(requests)
                requests = [each for each in requests if not each.settled]

    def hold_ready(self) -> None:
        """Be as on the disk; refuse where it cannot be written.

        Raises
        ------
        StoreError
        """
        if self._certain[0] or self._flight is not None:
            self.land()
        self.journal.hold_whole()
        if self._stale:
            self.journal.hold_room()
            self.restore()

    def land(self) -> None:
        """Tell what became of a group, if it was interrupted, and so was what follows that."""
        if self._certain[0]:
            self._tell()
        if self._flight is not None:
            self._land(self._flight, None)

    def mend(self) -> None:
        """Bring what was interrupted to its end, as far as the file can be read and written."""
        self.land()
        if self._stale and self.ready:
            with suppress(StoreError):  # it is told until it can
                self.journal.hold_whole()
                self.restore()

    def copied(self) -> Any:
        """A copy of the learner as it was acknowledged; where it is not here, it is read.

        Raises
        ------
        StoreError
            If it cannot be read, or nobody knows what was acknowledged.
        """
        if not self._stale:
            return self.charge.copied()
        self.journal.hold_sound()
        return self._made(None).charge.copied()

    # -- one group -----------------------------------------------------------------------------

    def _decide(self, requests: Sequence[Request]) -> None:
        self._flight = flight = _Flight(requests)
        try:
            self._fill(flight)
            if flight.group:
                self.journal.commit(flight.group)
        except StoreError as wrong:
            self._settle(requests, wrong)
        except BaseException as wrong:
            self._land(flight, wrong)
            if not isinstance(wrong, Exception):
                raise
        else:
            self._publish(flight)

    def _land(self, flight: _Flight, wrong: BaseException | None) -> None:
        """Ask the disk what became of a group that was interrupted."""
        try:
            there = self.journal.holds(flight.group)
        except StoreError as worse:
            self._settle(flight.requests, worse)
            return
        if there:  # then all of it was learned
            self._publish(flight)
        elif isinstance(wrong, Exception):
            self._settle(flight.requests, wrong)
        else:  # who was interrupted waits no longer; the others still do
            for request in flight.requests:
                if not request.settled:
                    request.receipt = request.error = None
            self._flight = None

    def refuse(self, requests: Sequence[Request], wrong: Exception) -> None:
        """Settle requests of which nothing was kept.

        Parameters
        ----------
        requests : sequence of Request
        wrong : Exception
            What each is told.
        """
        self._tell()  # what is left, before it is forgotten
        self._certain = (requests, wrong)
        self._tell()

    def _publish(self, flight: _Flight) -> None:
        """Let it be seen."""
        self.positions.update(flight.positions)
        if flight.learned:
            self.published = (self.journal.sequence, self.charge.answering())
        self._stale = False
        self.journal.reached("published")
        left = self._heard(flight.learned)
        self._settle([each for each in flight.requests if each.receipt or each.error])
        self.journal.reached("acknowledged")
        self._tidied(left)

    def _settle(self, requests: Sequence[Request], wrong: Exception | None = None) -> None:
        """Settle what was in flight; from the first line on nothing makes it uncertain again."""
        self._certain = (requests, wrong)
        self._flight = None
        self._tell()

    def _tell(self) -> None:
        """Note what is certain, and tell it; if that is interrupted, the rest is told later."""
        requests, wrong = self._certain
        for request in requests:
            if not request.settled:
                if wrong is not None:
                    request.receipt, request.error = None, copy.copy(wrong)
                request.settled = True
        for request in requests:
            if request.gate is not None:
                request.wake()
            if request.done is not None:
                self._call(request)
        if self._certain[0] is requests:  # not what was begun by whoever was told
            self._certain = ((), None)

    def _call(self, request: Request) -> None:
        """Tell whoever does not wait, once; he may learn meanwhile, for this group is done."""
        self.at_it = False
        try:
            done, request.done = request.done, None
            done(request)  # type: ignore[misc]
        except Exception as wrong:  # noqa: BLE001  the others are to be told too
            self._trouble = f"{self.where}: whoever asked could not be told: {wrong}"
        finally:
            self.at_it = True

    # -- what is in it -------------------------------------------------------------------------

    def _fill(self, flight: _Flight) -> None:
        """Learn what is new."""
        answered: list[Request] = []
        for request in self._fresh(flight.requests):
            if request.block.y is not None:
                answered.append(request)
                continue
            request.error = self._too_many(len(request.ids), flight.group)
            if request.error is not None:
                continue
            flight.group.asked += [
                Asked(each, request.until, request.block[i : i + 1].to_bytes())
                for i, each in enumerate(request.ids)
            ]
            request.receipt = Receipt(self.journal.sequence, np.empty(0))
        for run in runs(answered):
            self._stale = True
            self._learn(run, flight)

    def _too_many(self, rows: int, group: Group) -> BusyError | None:
        """The error if too many rows would wait for their labels, else None."""
        most = self._policy.most_pending
        if self._pending + rows > most:  # count anew: some may have been labelled
            self._pending = self.journal.waiting(self.now()) + len(group.asked)
        if self._pending + rows > most:
            return BusyError(
                f"{self.where}: at most {most:,} rows may wait for their labels, "
                f"{self._pending:,} do, got {rows:,} more. Send labels, or give fewer seconds.",
                60.0,
            )
        self._pending += rows
        return None

    def _fresh(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Those that were not decided on before."""
        first = [request.keys[0][0] for request in requests if request.keys]
        if not first:
            return requests
        fresh: list[Request] = []
        here: set[str] = set()
        there = self.journal.known(first)
        for request in requests:
            names = [name for name, _ in request.keys]
            try:
                known = self.journal.answer(names[0]) if there.intersection(names[:1]) else None
            except StoreError as wrong:
                request.error = wrong
                continue
            if known is not None:
                self._again(request, known)
            elif here.isdisjoint(names):  # of two at once the second is decided on afterwards
                fresh.append(request)
                here.update(names)
        return fresh

    def _again(self, request: Request, known: Answer) -> None:
        name, digest = request.keys[0]
        former = (request.former, request.block.former_digest())
        if known.digest != digest and known.digest not in former:
            request.error = KeyReusedError(
                f"{self.where}: the key {name[1:]!r} must come with the request that it came with "
                f"first (version {known.sequence:,}), got other rows. Give each request a key of "
                "its own."
            )
            return
        request.receipt = Receipt(known.sequence, said_from_bytes(known.said), again=True)

    def _learn(self, run: list[Request], flight: _Flight) -> None:
        """Learn a run as one block, or each by itself if it is refused."""
        aside, alone = self.charge.aside, len(run) == 1
        try:
            block = run[0].block if alone else joined([request.block for request in run])
            with bounded(self._policy.most_features):
                said = self.charge.learn(block)
        except Exception as wrong:  # noqa: BLE001  whoever asked is told
            if alone:
                run[0].error = wrong
                return
            for request in run:
                self._learn([request], flight)
            return
        last = flight.group.entries[-1] if flight.group.entries else self.journal
        note = ""
        if run[0].source is not None:
            note = json.dumps({"source": run[0].source, "position": run[0].position})
            flight.positions[run[0].source] = str(run[0].position)
        body = (run[0].body if alone else b"") or block.to_bytes()
        n = len(block.X)
        entry = Entry(last.sequence + 1, "learn", n, last.seen + n, aside, note, body)
        flight.group.entries.append(entry)
        flight.learned.append((block, said))
        self._note(run, said, entry.sequence, flight.group)

    def _note(self, run: list[Request], said: Any, sequence: int, group: Group) -> None:
        """Note in the requests, and for their keys, what was said of their rows."""
        first, now = 0, None
        for request in run:
            part = said[first : first + len(request.block.X)]
            first += len(part)
            request.receipt = Receipt(sequence, part)
            if not request.keys:
                continue
            now = self.now() if now is None else now  # what is let go goes together
            group.answered += request.ids  # of rows that were asked: each has a key
            each = [part] if len(request.keys) == 1 else [part[i : i + 1] for i in range(len(part))]
            group.answers += [
                Answer(name, digest, sequence, said_to_bytes(one), now)
                for (name, digest), one in zip(request.keys, each, strict=False)
            ]
