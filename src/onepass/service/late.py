"""Late: rows that are asked now, and answered some time."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onepass import validation
from onepass.errors import Array, KeyReusedError, ParameterError
from onepass.service.blocks import Block, joined
from onepass.service.charge import said_of
from onepass.service.intake import aligned, read_rows
from onepass.service.kept import Kept
from onepass.service.records import Answer
from onepass.service.requests import Receipt, Request, said_from_bytes
from onepass.service.written import hold_written
from onepass.validation.arrays import bounded

__all__ = ["Late"]

_DAY = 86400.0
_LONGEST = 30 * _DAY
_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_KEY = "a"  # what the keys of answers begin with


class Late(Kept):
    """The verbs for answers that come later."""

    def ask(self, X: Any, *, seconds: float = _DAY) -> tuple[Array, list[str]]:
        """Answers for rows whose own answers come later: the rows are kept until then.

        Parameters
        ----------
        X : array-like of shape (n, d), frame, or sequence of dicts
        seconds : float, default one day
            How long they wait, at most 30 days.

        Returns
        -------
        said : ndarray of shape (n,) or (n, c)
        ids : list of str
            One a row, for ``answer``. They are on the disk.

        Raises
        ------
        OnepassError
            Whatever the learner raises: then nothing was kept.
        BusyError
            If more than ``most_pending`` rows would wait: then nothing is stored.
        StoreError
            If the disk is full or fails: then nothing was kept.
        """
        return self.asked(X, seconds=seconds)[1:]

    def asked(self, X: Any, *, seconds: float = _DAY) -> tuple[int, Array, list[str]]:
        """What ``ask`` returns, and before it the version that has answered."""
        where = f"{self._journal.where}.ask"
        block = read_rows(X, None, where=where)
        hold_written(block, where)  # each row will be, by itself
        seconds = validation.in_range(seconds, "seconds", where, low=0.0, high=_LONGEST)
        version, learner = self._keeper.published
        with bounded(self.most_features):
            said = said_of(learner, block.X)
        ids = [secrets.token_urlsafe(16) for _ in range(len(block))]
        self._settled(Request(block, ids=ids, until=self._keeper.now() + seconds))
        return version, said, ids

    def answer(
        self, ids: Sequence[str], y: Any, sample_weight: Any = None, *, time: Any = None
    ) -> Receipt:
        """Learn rows that were asked, by their ids; one that was answered before is not again.

        Parameters
        ----------
        ids : sequence of str
            All are learned, or none.
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,) or float, optional
        time : array-like of shape (n,), optional
            As in ``learn``; when the answers came, for a learner that forgets by time.

        Returns
        -------
        receipt : Receipt
            ``again`` if all of them were answered before.

        Raises
        ------
        ParameterError
            If an id is unknown, or its time was over; or if the rows have other columns than each
            other, and so cannot be learned together.
        KeyReusedError
            If a row was answered before, and otherwise.
        OnepassError
            Whatever the learner raises: then nothing was learned.
        """
        where = f"{self._journal.where}.answer"
        names = _named(ids, where)
        given = {"y": y, "sample_weight": sample_weight, "time": time}
        parts = [
            None if part is None else aligned(part, name, len(names), where)
            for name, part in given.items()
        ]
        with self._own_turn():
            self._hold_open()
            self._keeper.hold_ready()
            return self._answered(names, Block(np.empty((len(names), 0)), *parts), where)

    @property
    def waiting(self) -> int:
        """How many rows wait for their answers."""
        with self._own_turn():
            self._hold_open()
            self._keeper.land()
            return self._journal.waiting(self._keeper.now())

    def _answered(self, ids: list[str], answers: Block, where: str) -> Receipt:
        """Learn the rows of these ids, but those that were answered before."""
        digests: dict[str, bytes] = {}
        known: dict[str, Answer] = {}
        rows: dict[str, Block] = {}
        for i, name in enumerate(ids):
            answer = answers[i : i + 1]
            digest, found = answer.digest(), self._known(name)
            if found is not None and found.digest in _former_digests(answer):
                digest = found.digest
            if digest != digests.setdefault(name, digest if found is None else found.digest):
                raise KeyReusedError(
                    f"{where}: each id must come with one answer, got another for {name!r} than "
                    "before. What was learned cannot be answered otherwise; nothing was learned."
                )
            if found is not None:
                known[name] = found
            elif name not in rows:
                rows[name] = replace(answer, X=self._row(name, where).X)
        version, said = self._learned(rows, digests, where) if rows else (0, {})
        for name, before in known.items():
            version, said[name] = max(version, before.sequence), said_from_bytes(before.said)
        return Receipt(version, np.concatenate([said[name] for name in ids]), again=not rows)

    def _learned(
        self, rows: dict[str, Block], digests: dict[str, bytes], where: str
    ) -> tuple[int, dict[str, Array]]:
        """The version with these rows, and what was said of each."""
        blocks = list(rows.values())
        if any(block.like != blocks[0].like for block in blocks):
            raise ParameterError(
                f"{where}: `ids` must be of rows with the same columns, got others. Answer them in "
                "several calls; nothing was learned."
            )
        block = joined(blocks)
        keys = [(_KEY + name, digests[name]) for name in rows]
        receipt = self._decided(Request(block, keys=keys, ids=list(rows)))
        return receipt.version, {name: receipt.said[i : i + 1] for i, name in enumerate(rows)}

    def _known(self, name: str) -> Answer | None:
        return self._journal.answer(_KEY + name) if _ID.fullmatch(name) else None

    def _row(self, name: str, where: str) -> Block:
        waiting = self._journal.asked(name) if _ID.fullmatch(name) else None
        if waiting is None or waiting.until < self._keeper.now():
            raise ParameterError(
                f"{where}: `ids` must be of rows that wait for their answers, got {name!r:.100}, "
                "which is unknown, or its time was over. Nothing was learned; ask for longer."
            )
        return Block.from_bytes(waiting.body, str(self.path))


def _named(ids: Any, where: str) -> list[str]:
    try:
        found = [] if isinstance(ids, str) else list(ids)
    except TypeError:
        found = []
    if not found or not all(isinstance(each, str) for each in found):
        raise ParameterError(
            f"{where}: `ids` must be a list of at least one id, as `ask` gave them, got "
            f"{ids!r:.100}. Give a list, and an answer for each."
        )
    return found


def _former_digests(answer: Block) -> set[bytes]:
    """The digests of a label in former versions, which depended on the width of its text."""
    alone = replace(answer, y=np.array(answer.y.tolist()))  # type: ignore[union-attr]  # it has one
    return {answer.former_digest(), alone.former_digest()}
