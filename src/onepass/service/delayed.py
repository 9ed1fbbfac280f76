"""Delayed labels: rows that were predicted and stored, matched with labels that come later by id.

A row waits in the journal until it is labelled or its time is over. It is learned once: the id is
the idempotency key of its label, so the same label again returns the first result, and another one
is refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import IdempotencyConflictError, ParameterError
from onepass.service.journal import Answer, Journal
from onepass.service.requests import Block, LearnResult, Request, array_from_bytes, joined

__all__ = ["Labelled", "id_list", "match"]

_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_KEY = "a"  # what the keys of labels begin with


@dataclass(frozen=True)
class Labelled:
    """Rows with their labels.

    Parameters
    ----------
    rows : dict of str to Block
        Those to be learned, by id.
    digests : dict of str to bytes
        Of all labels.
    known : dict of str to Answer
        The results of those that were learned before.
    """

    rows: dict[str, Block]
    digests: dict[str, bytes]
    known: dict[str, Answer]

    def request(self, where: str) -> Request:
        """One request to learn the new rows.

        Parameters
        ----------
        where : str
            The public call, for messages.

        Raises
        ------
        ParameterError
            If they have other columns than each other.
        """
        blocks = list(self.rows.values())
        if any(block.like != blocks[0].like for block in blocks):
            raise ParameterError(
                f"{where}: `ids` must be of rows with the same columns, got others. Answer them in "
                "several calls; nothing was learned."
            )
        keys = [(_KEY + name, self.digests[name]) for name in self.rows]
        return Request(joined(blocks), keys=keys, ids=list(self.rows))

    def receipt(self, ids: Sequence[str], learned: LearnResult | None) -> LearnResult:
        """The result for all ids.

        Parameters
        ----------
        ids : sequence of str
        learned : Receipt or None
            Of the new rows, if there are any.
        """
        version, found = 0, {}
        if learned is not None:
            version = learned.version
            found = {name: learned.said[i : i + 1] for i, name in enumerate(self.rows)}
        for name, before in self.known.items():
            version, found[name] = max(version, before.sequence), array_from_bytes(before.said)
        return LearnResult(
            version, np.concatenate([found[name] for name in ids]), again=not self.rows
        )


def id_list(ids: Iterable[str], where: str) -> list[str]:
    """The ids that a user gives, as a list.

    Parameters
    ----------
    ids : iterable of str
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If they are no list of text, or there are none.
    """
    try:
        found = [] if isinstance(ids, str) else list(ids)
    except TypeError:
        found = []
    if not found or not all(isinstance(each, str) for each in found):
        raise ParameterError(
            f"{where}: `ids` must be a list of at least one id that came with a prediction, got "
            f"{ids!r:.100}. Give a list, and an answer for each."
        )
    return found


def match(journal: Journal, now: float, ids: Sequence[str], labels: Block, where: str) -> Labelled:
    """The rows with these ids and their labels; refused if an id is unknown or labelled otherwise.

    Parameters
    ----------
    journal : Journal
    now : float
        In seconds since 1970.
    ids : sequence of str
    labels : Block
        One row for each id, without features.
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError, IdempotencyConflictError
    """
    digests: dict[str, bytes] = {}
    known: dict[str, Answer] = {}
    rows: dict[str, Block] = {}
    for i, name in enumerate(ids):
        label = labels[i : i + 1]
        digest = label.digest()
        found = next(journal.answers([_KEY + name]), None) if _ID.fullmatch(name) else None
        if found is not None and found.digest in _former_digests(label):
            digest = found.digest
        if digest != digests.setdefault(name, digest if found is None else found.digest):
            raise IdempotencyConflictError(
                f"{where}: each id must come with one answer, got another for {name!r} than "
                "before. What was learned cannot be answered otherwise; nothing was learned."
            )
        if found is not None:
            known[name] = found
        elif name not in rows:
            rows[name] = replace(label, X=_row(journal, name, now, where).X)
    return Labelled(rows, digests, known)


def _row(journal: Journal, name: str, now: float, where: str) -> Block:
    waiting = next(journal.asked(name), None) if _ID.fullmatch(name) else None
    if waiting is None or waiting.until < now:
        raise ParameterError(
            f"{where}: `ids` must be of rows that wait for their answers, got {name!r:.100}, "
            "which is unknown, or its time was over. Nothing was learned; give more `seconds`."
        )
    return Block.from_bytes(waiting.body, str(journal.path))


def _former_digests(label: Block) -> set[bytes]:
    """The digests of a label in former versions, which depended on the width of its text."""
    alone = replace(label, y=np.array(label.y.tolist()))  # type: ignore[union-attr]  # it has one
    return {label.former_digest(), alone.former_digest()}
