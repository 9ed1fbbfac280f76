"""Delayed labels: stored rows are matched by id with labels that arrive later.

A row is stored in the journal until it is labelled or expires. It is learned once: its id is the
idempotency key of its label, so the same label again returns the first result, and another label is
refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import IdempotencyConflictError, ParameterError
from onepass.service.journal import Journal, StoredResult
from onepass.service.requests import Block, LearnResult, Request, array_from_bytes, joined

__all__ = ["LabelledRows", "id_list", "match"]

_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_KEY = "a"  # prefix of the keys of labels


@dataclass(frozen=True)
class LabelledRows:
    """Pending rows with their labels.

    Parameters
    ----------
    rows : dict of str to Block
        Rows to be learned, by id.
    digests : dict of str to bytes
        Digests of all labels, by id.
    duplicates : dict of str to StoredResult
        Results of rows that were learned before, by id.
    """

    rows: dict[str, Block]
    digests: dict[str, bytes]
    duplicates: dict[str, StoredResult]

    def request(self, where: str) -> Request:
        """A request to learn the new rows.

        Parameters
        ----------
        where : str
            The public call, for messages.

        Raises
        ------
        ParameterError
            If the rows do not all have the same columns.
        """
        blocks = list(self.rows.values())
        if any(block.layout != blocks[0].layout for block in blocks):
            raise ParameterError(
                f"{where}: `ids` must be of rows with the same columns, got others. Label them in "
                "several calls; nothing was learned."
            )
        keys = [(_KEY + name, self.digests[name]) for name in self.rows]
        return Request(joined(blocks), keys=keys, ids=list(self.rows))

    def learn_result(self, ids: Sequence[str], learned: LearnResult | None) -> LearnResult:
        """The result for all ids.

        Parameters
        ----------
        ids : sequence of str
        learned : LearnResult or None
            Result of the new rows, if there are any.
        """
        version, found = 0, {}
        if learned is not None:
            version = learned.version
            found = {name: learned.predictions[i : i + 1] for i, name in enumerate(self.rows)}
        for name, before in self.duplicates.items():
            version, found[name] = (
                max(version, before.sequence),
                array_from_bytes(before.predictions),
            )
        return LearnResult(
            version, np.concatenate([found[name] for name in ids]), repeated=not self.rows
        )


def id_list(ids: Iterable[str], where: str) -> list[str]:
    """Check ids, and return them as a list.

    Parameters
    ----------
    ids : iterable of str
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If they are not a non-empty list of text.
    """
    try:
        found = [] if isinstance(ids, str) else list(ids)
    except TypeError:
        found = []
    if not found or not all(isinstance(each, str) for each in found):
        raise ParameterError(
            f"{where}: `ids` must be a list of at least one id of a pending row, got "
            f"{ids!r:.100}. Give a list, and a label for each id."
        )
    return found


def match(
    journal: Journal, now: float, ids: Sequence[str], labels: Block, where: str
) -> LabelledRows:
    """Match pending rows with labels; raises if an id is unknown or has another label.

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
    duplicates: dict[str, StoredResult] = {}
    rows: dict[str, Block] = {}
    for i, name in enumerate(ids):
        label = labels[i : i + 1]
        digest = label.digest()
        found = next(journal.results([_KEY + name]), None) if _ID.fullmatch(name) else None
        if found is not None and found.digest in _former_digests(label):
            digest = found.digest
        if digest != digests.setdefault(name, digest if found is None else found.digest):
            raise IdempotencyConflictError(
                f"{where}: each id must have one label, got another for {name!r} than before. "
                "A learned label cannot be changed; nothing was learned."
            )
        if found is not None:
            duplicates[name] = found
        elif name not in rows:
            rows[name] = replace(label, X=_row(journal, name, now, where).X)
    return LabelledRows(rows, digests, duplicates)


def _row(journal: Journal, name: str, now: float, where: str) -> Block:
    row = next(journal.pending_rows(name), None) if _ID.fullmatch(name) else None
    if row is None or row.until < now:
        raise ParameterError(
            f"{where}: `ids` must be of rows that wait for their labels, got {name!r:.100}, "
            "which is unknown or has expired. Nothing was learned; give more `seconds`."
        )
    return Block.from_bytes(row.body, str(journal.path))


def _former_digests(label: Block) -> set[bytes]:
    """Digests of a label in former versions, which depended on the width of its text."""
    alone = replace(label, y=np.array(label.y.tolist()))  # type: ignore[union-attr]  # it is not None
    return {label.former_digest(), alone.former_digest()}
