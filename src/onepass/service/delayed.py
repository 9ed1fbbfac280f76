"""Delayed labels: pending rows are stored, and learned when their labels arrive.

A pending row stays in the journal until it is labelled or expires. Its id is the idempotency key of
its label, so the row is learned once: the same label sent again returns the first result, and a
different label is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onepass.errors import IdempotencyConflictError, ParameterError
from onepass.service.journal import Journal, StoredResult
from onepass.service.requests import LearnResult, Request, decode_rows, layout, rows_digest
from onepass.validation.rows import Rows, concatenate_rows

_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_KEY = "a"  # prefix of idempotency keys of labels


@dataclass(frozen=True)
class LabelledRows:
    """Pending rows with their labels.

    Parameters
    ----------
    rows : dict of str to Rows
        Rows to learn, by id.
    digests : dict of str to bytes
        Digests of all labels, by id.
    duplicates : dict of str to LearnResult
        Results of rows that are already learned, by id.
    """

    rows: dict[str, Rows]
    digests: dict[str, bytes]
    duplicates: dict[str, LearnResult]

    def request(self) -> Request:
        """Create the request that learns the new rows.

        Raises
        ------
        ParameterError
            If the rows do not all have the same columns.
        """
        blocks = list(self.rows.values())
        if any(layout(block) != layout(blocks[0]) for block in blocks):
            raise ParameterError(
                "`ids` must refer to rows with the same columns, got rows with different columns. "
                "Nothing was learned. Send labels in one call per set of columns."
            )
        keys = [(_KEY + name, self.digests[name]) for name in self.rows]
        return Request(concatenate_rows(blocks), keys=keys, ids=list(self.rows))

    def learn_result(self, ids: Sequence[str], learned: LearnResult | None) -> LearnResult:
        """Return the result for all ids.

        Parameters
        ----------
        ids : sequence of str
        learned : LearnResult or None
            Result of the new rows; None if there are no new rows.
        """
        version, predictions = 0, {}
        if learned is not None:
            version = learned.version
            predictions = {name: learned.predictions[i : i + 1] for i, name in enumerate(self.rows)}
        for name, stored in self.duplicates.items():
            version = max(version, stored.version)
            predictions[name] = stored.predictions
        return LearnResult(
            version, np.concatenate([predictions[name] for name in ids]), repeated=not self.rows
        )


def repeated_result(journal: Journal, stored: StoredResult) -> LearnResult:
    """Return the result of a request that is sent again.

    Parameters
    ----------
    journal : Journal
    stored : StoredResult
        Result of the first request.
    """
    predictions = decode_rows(stored.predictions, str(journal.path)).X
    return LearnResult(stored.sequence, predictions, repeated=True)


def id_list(ids: Iterable[str]) -> list[str]:
    """Check ids, and return them as a list.

    Parameters
    ----------
    ids : iterable of str

    Raises
    ------
    ParameterError
        If ``ids`` is empty, or contains other objects than text.
    """
    names = list(ids)
    if not names or not all(isinstance(name, str) for name in names):
        raise ParameterError(
            "`ids` must be a list of at least one id of a pending row, got "
            f"{ids!r:.100}. Pass a list of ids, and one label per id."
        )
    return names


def match(journal: Journal, now: float, ids: Sequence[str], labels: Rows) -> LabelledRows:
    """Match pending rows with labels.

    Parameters
    ----------
    journal : Journal
    now : float
        Current time, in seconds since 1970.
    ids : sequence of str
    labels : Rows
        Labels, one per id, without features.

    Raises
    ------
    ParameterError
        If an id is unknown or has expired.
    IdempotencyConflictError
        If an id has two different labels, or was learned with another label.
    """
    digests: dict[str, bytes] = {}
    duplicates: dict[str, LearnResult] = {}
    rows: dict[str, Rows] = {}
    for i, name in enumerate(ids):
        label = labels[i : i + 1]
        own = rows_digest(label)
        stored = next(journal.results([_KEY + name]), None) if _ID.fullmatch(name) else None
        if own != digests.setdefault(name, own if stored is None else stored.digest):
            raise IdempotencyConflictError(
                "each id must have one label, got a second, different label for "
                f"{name!r}. Nothing was learned. Send the first label, or leave out the "
                "id; a learned label cannot be changed."
            )
        if stored is not None:
            duplicates[name] = repeated_result(journal, stored)
        elif name not in rows:
            rows[name] = replace(label, X=_pending_row(journal, name, now).X)
    return LabelledRows(rows, digests, duplicates)


def _pending_row(journal: Journal, name: str, now: float) -> Rows:
    row = next(journal.pending_rows(name), None) if _ID.fullmatch(name) else None
    if row is None or row.until < now:
        raise ParameterError(
            f"`ids` must refer to rows that wait for their labels, got {name!r:.100}, "
            "which is unknown or has expired. Nothing was learned. Leave out the id; "
            "to store rows longer, predict them with more `seconds`."
        )
    return decode_rows(row.body, str(journal.path))
