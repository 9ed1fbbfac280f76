"""Trial: rows that a module refuses are found before any row is learned, or named after.

Rows are learned one after the other, in the module's own weights, so that there is no way back
behind a row that was learned. Therefore a module is asked all rows of a call first, some at a time,
which costs a small part of their derivatives: where it raises, nothing is learned. A module that
raises because of what it has learned from the rows before is told with how many these are.
"""

from typing import NamedTuple, NoReturn

import torch

from onepass.errors import ModuleError, OnepassError, ShapeError
from onepass.nn.batch import Batch, RowsLike, by_module, in_a_line, refuse_width
from onepass.nn.module import Network

__all__ = ["Call", "prepared", "tried", "untold"]

_ROWS = 64
_BYTES = 1 << 22  # of inputs: what layers make of large pictures is much larger than these


class Call(NamedTuple):
    """Rows that a verb was given.

    Parameters
    ----------
    network : Network
    rows : Batch
    where : str
        What the user called, for messages.
    """

    network: Network
    rows: Batch
    where: str


def prepared(network: Network, x: RowsLike, where: str) -> Batch:
    """Rows that are to be learned, as the module takes them: see ``Network.prepare``.

    Parameters
    ----------
    network : Network
    x : rows
    where : str
        What the user called, for messages.

    Raises
    ------
    ModuleError
        If its forward raises when it is tried with the first rows.
    """
    try:
        return network.prepare(x, where)
    except Exception as wrong:
        if by_module(wrong):
            raise ModuleError(
                f"{where}: the module must answer each row, but tried with the first rows its "
                f"forward raised {_words(wrong)}. Nothing was learned: drop the row that is at "
                "fault, and give the others again, or mend the module."
            ) from wrong
        raise


def tried(call: Call, c: int) -> None:
    """Ask a module all rows, before any of them is learned.

    Parameters
    ----------
    call : Call
    c : int
        The outputs that a row must have.

    Raises
    ------
    ShapeError, ModuleError
        And others, if the module refuses a row.
    """
    network, rows, where = call
    _looked_up(call)
    bytes_ = sum(each.nbytes for each in rows.tensors) // rows.n
    width = max(1, min(_ROWS, _BYTES // max(bytes_, 1)))
    for i in range(0, rows.n, width):
        part = rows[i : i + width]
        try:
            came = network.outputs(part).shape[1]
        except torch.OutOfMemoryError:
            return
        except Exception:  # noqa: BLE001  a module may take rows one by one alone
            found = _alone(network, part)
            if found is not None:
                _refuse(call, found[1], i + found[0], 0)
        else:
            refuse_width(came, c, where)


def untold(call: Call, wrong: Exception, i: int, n: int) -> None:
    """Say at which rows a step failed, and how many rows of the call were learned before it.

    Parameters
    ----------
    call : Call
    wrong : Exception
        What it raised; to be raised again if this returns.
    i, n : int
        The first row of the step, and how many it has.

    Raises
    ------
    ModuleError
        If the module raised it.
    """
    if by_module(wrong):
        found = _alone(call.network, call.rows[i : i + n]) if n > 1 else None
        at, wrong = (0, wrong) if found is None else found
        _refuse(call, wrong, i + at, i, n if found is None else 1)
    _amend(call, wrong, i, i)


def _amend(call: Call, wrong: Exception, i: int, learned: int) -> None:
    """Say at which row it came; of the first row there is nothing to be said."""
    if not i:
        return
    said = f"It came with row {i}. {_learned(call, learned)}"
    if isinstance(wrong, OnepassError) and wrong.args:
        wrong.args = (f"{wrong.args[0]} {said}", *wrong.args[1:])
    else:
        wrong.add_note(f"{call.where}: {said}")


def _looked_up(call: Call) -> None:
    """Have a table named that a row asks for a place which there is not."""
    try:
        call.network.look_up(call.rows)
    except ShapeError:
        raise
    except Exception as wrong:
        if not by_module(wrong):  # else it is told with its row
            raise


def _alone(network: Network, rows: Batch) -> tuple[int, Exception] | None:
    """The first row that the module refuses alone, and how; None if it takes each."""
    for i, row in enumerate(rows):
        try:
            network.outputs(row)
        except torch.OutOfMemoryError:
            return None
        except Exception as wrong:  # noqa: BLE001  whatever a module raises
            return i, wrong
    return None


def _refuse(call: Call, wrong: Exception, i: int, learned: int, n: int = 1) -> NoReturn:
    """Say that row i, or one of n from it, is refused, after so many rows of the call."""
    if not by_module(wrong):
        _amend(call, wrong, i, learned)
        raise wrong
    place = f"row {i}" if n == 1 else f"one of the rows {i} to {i + n - 1}"
    done = _learned(call, learned)
    raise ModuleError(
        f"{call.where}: the module must answer each row, but in {place} its forward raised "
        f"{_words(wrong)}. {done}"
    ) from wrong


def _words(wrong: Exception) -> str:
    """An error in words."""
    said = in_a_line(wrong)
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__


def _learned(call: Call, k: int) -> str:
    """How many rows of a call were learned, and how to go on."""
    if not k:
        again = ", and give the others again" if call.rows.n > 1 else ""
        return (
            f"Nothing of the {call.rows.n} row(s) was learned: drop the row that is at "
            f"fault{again}; or mend the module."
        )
    return (
        f"Of the {call.rows.n} rows the {k} before it were learned, as `rows_seen_` tells, and no "
        f"other: go on behind them with X[{k}:], without the row that is at fault."
    )
