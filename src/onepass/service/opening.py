"""Opening: a durable learner's file, made or opened again."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from onepass import validation
from onepass.errors import ParameterError, StoreError
from onepass.service.charge import Charge
from onepass.service.journal import Journal
from onepass.service.keeper import Keeper
from onepass.service.policy import Policy, Watcher
from onepass.service.store import Durable

__all__ = ["durable"]

_WEEK = 7 * 86400.0


def durable(
    path: str | os.PathLike[str],
    model: Any = None,
    *,
    snapshot_rows: int = 100_000,
    snapshot_seconds: float = 300.0,
    keep: int = 8,
    key_seconds: float = _WEEK,
    most_features: int | None = None,
    most_pending: int = 1 << 20,
    replacements: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
    watch: Callable[[Any], Watcher] | None = None,
) -> Durable:
    """A learner that loses nothing: each row is on the disk before it is acknowledged.

    Everything stands in one SQLite file: the rows since some snapshots ago, in the blocks in which
    they were learned, the snapshots, keys of requests, positions of sources, and rows that wait for
    their answers. After a crash, opened again, it is the learner that it was: to the last bit, if
    onepass, NumPy and the machine are the same. A small file beside it, ``.lock``, says who has it.

    A process that is forked has no part in it: there it only answers, as it did then.

    Parameters
    ----------
    path : path-like
        The file; made if it is not there. One process at a time has it.
    model : learner of tables or Pipeline, optional
        What begins there; it is copied. For a file that is there it may be left out; if it is
        given, it must be of the same class and parameters, and what is in the file goes on.
    snapshot_rows : int, default 100,000
        After so many rows a snapshot is taken.
    snapshot_seconds : float, default 300
        The same after so long, if rows were learned.
    keep : int, default 8
        So many snapshots are kept, and the log since the oldest of them.
    key_seconds : float, default one week
        How long idempotency keys are remembered.
    most_features : int, optional
        So many features, classes and answers a row may come to the learner, and features are
        those that a Pipeline makes; rows that would bring more are refused, and so are blocks that
        come to more than 16,777,216 numbers, and labels of more than 256 characters. Least squares
        take the square of their features in memory. By default as many as come.
    most_pending : int, default 1,048,576
        Max rows that wait for their labels; ``ask`` refuses more. Rows wait 30 days at most.
    replacements : mapping of str to Any, optional
        Functions and networks that no file holds, as ``op.load`` takes them.
    clock : callable, default ``time.time``
        Read once: later steps of a clock change nothing.
    watch : callable, optional
        Called with the learner, for answers alone; it returns a function that is called with each
        block of rows that is learned, and with what was said of them before: once they are on the
        disk, and on opening with those that are learned again from there. It may return a
        function for what may take longer: called after the rows are settled, though a ``learn``
        in the same thread returns only then, and left out if an interrupt comes in between.

    Returns
    -------
    learner : Durable
        A context manager; ``close`` it in the end.

    Raises
    ------
    InUseError
        If another process has the file, or this one has it open.
    DamagedError
        If the file is not as it was written.
    StoreError
        If it cannot be opened, made or written, or there is neither a file nor a model.
    ParameterError, TypeMismatchError
        If the model is another than the file's, or none that can be kept.

    Examples
    --------
    >>> import tempfile
    >>> import onepass as op
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with op.durable(f"{folder}/flow.db", op.RLSRegressor(ridge=1e-9)) as model:
    ...         receipt = model.learn([[1.0], [2.0], [3.0]], [3.0, 5.0, 7.0], key="first three")
    ...     with op.durable(f"{folder}/flow.db") as model:  # another day
    ...         print(model.rows_seen, model.predict([[4.0]]).round(6))
    3 [9.]
    """
    where = "op.durable"
    validation.whole(snapshot_rows, "snapshot_rows", where, low=1)
    validation.whole(keep, "keep", where, low=1)
    validation.in_range(snapshot_seconds, "snapshot_seconds", where, low=0.0)
    validation.in_range(key_seconds, "key_seconds", where, low=0.0)
    if most_features is not None:
        validation.whole(most_features, "most_features", where, low=1)
    validation.whole(most_pending, "most_pending", where, low=1)
    path = _named(path, where)
    given = None if model is None else Charge.of(model, where)
    policy = Policy(
        snapshot_rows,
        snapshot_seconds,
        keep,
        key_seconds,
        replacements or {},
        clock,
        watch,
        most_features,
        most_pending,
    )
    journal = Journal(path, where)
    try:
        keeper = Keeper(journal, policy)
        if not journal.empty:
            keeper.resume()
            if given is not None:
                keeper.charge.hold_like(given.learner, where)
        elif given is not None:
            keeper.begin(given)
        else:
            raise StoreError(  # noqa: TRY301  the file is to be let go
                f"{where}: {os.fspath(path)} must be there, or a `model` to begin with, got "
                "neither. Give a learner, such as op.RLSRegressor()."
            )
        return Durable(journal, keeper)
    except BaseException:
        journal.close()
        raise


def _named(path: Any, where: str) -> str:
    try:
        found = os.fspath(path)
    except TypeError:
        found = b""
    if not isinstance(found, str) or not found or "\0" in found:
        raise ParameterError(
            f"{where}: `path` must be the path of a file, got {path!r:.100}. Give one, such as "
            "'flow.db'."
        )
    return found
