"""Trial evaluation: find rows that a module rejects before any row is learned.

Rows are learned in place, one after the other, and cannot be unlearned. The module is therefore
first evaluated on all rows of a call, in blocks, at a small part of the cost of the derivatives; if
it raises, nothing is learned. If it raises later, at weights changed by earlier rows, the error
contains the number of rows learned.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from onepass.errors import ModuleError, OnepassError
from onepass.nn.batch import Batch, RowsLike, first_line, raised_by_module, refuse_width
from onepass.nn.module import Network

_ROWS = 64
_BYTES = 1 << 22  # of inputs: activations of layers may be much larger


def prepare_rows(network: Network, x: RowsLike) -> Batch:
    """Convert the rows to learn by ``Network.prepare``.

    Parameters
    ----------
    network : Network
    x : rows

    Raises
    ------
    ModuleError
        If ``forward`` raises for the first rows.
    """
    try:
        return network.prepare(x)
    except Exception as error:
        if raised_by_module(error):
            raise ModuleError(
                "the module must evaluate each row, but on the first rows its forward "
                f"raised {_describe(error)}. Nothing was learned: drop the failing row "
                "and pass the other rows again, or fix the module."
            ) from error
        raise


def check_all_rows(network: Network, rows: Batch, c: int) -> None:
    """Evaluate a module on all rows before any of them is learned.

    Parameters
    ----------
    network : Network
    rows : Batch
    c : int
        Required number of outputs per row.

    Raises
    ------
    ShapeError, ModuleError
        If the module rejects a row.
    """
    bytes_ = sum(each.nbytes for each in rows.tensors) // rows.n
    width = max(1, min(_ROWS, _BYTES // max(bytes_, 1)))
    for i in range(0, rows.n, width):
        part = rows[i : i + width]
        try:
            c_part = network.outputs(part).shape[1]
        except torch.OutOfMemoryError:
            return
        except Exception:  # noqa: BLE001  a module may only accept single rows
            found = _first_failing_row(network, part)
            if found is not None:
                _raise_module_error(found[1], rows.n, i + found[0], 0)
        else:
            refuse_width(c_part, c)


def locate_failure(network: Network, rows: Batch, error: Exception, i: int, n: int) -> None:
    """Add to an error the failing rows of a step and the number of rows learned before it.

    Parameters
    ----------
    network : Network
    rows : Batch
        All rows of the call.
    error : Exception
        The error of the step; the caller re-raises it if this returns.
    i, n : int
        First row of the step, and its number of rows.

    Raises
    ------
    ModuleError
        If the module raised the error.
    """
    if raised_by_module(error):
        found = _first_failing_row(network, rows[i : i + n]) if n > 1 else None
        at, error = (0, error) if found is None else found
        _raise_module_error(error, rows.n, i + at, i, n if found is None else 1)
    _add_row_number(error, rows.n, i, i)


def _add_row_number(error: Exception, total: int, i: int, learned: int) -> None:
    """Add the number of the failing row to an error, except for row 0."""
    if not i:
        return
    done = _progress(total, learned)
    if isinstance(error, OnepassError):
        error.row = i + (error.row or 0)
        error.remedy = f"{error.remedy} {done}".strip()
    else:
        error.add_note(f"The error was raised at row {i}. {done}")


def _first_failing_row(network: Network, rows: Batch) -> tuple[int, Exception] | None:
    """Return the first row on which the module fails by itself, and the error; None if all pass."""
    for i, row in enumerate(rows):
        try:
            network.outputs(row)
        except torch.OutOfMemoryError:
            return None
        except Exception as error:  # noqa: BLE001  whatever a module raises
            return i, error
    return None


def _raise_module_error(error: Exception, total: int, i: int, learned: int, n: int = 1) -> NoReturn:
    """Raise for row i of the call, or one of n rows starting at i, after ``learned`` rows."""
    if not raised_by_module(error):
        _add_row_number(error, total, i, learned)
        raise error
    rows = f" of the rows {i} to {i + n - 1}" if n > 1 else ""
    raise ModuleError(
        f"the module must evaluate each row{rows}",
        got=_describe(error),
        remedy=_progress(total, learned),
        row=i if n == 1 else None,
    ) from error


def _describe(error: Exception) -> str:
    """Return the type and first line of an error."""
    message = first_line(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _progress(total: int, k: int) -> str:
    """Describe how many of the rows of a call were learned and how to continue."""
    if not k:
        again = " and pass the other rows again" if total > 1 else ""
        return (
            f"None of the {total} row(s) was learned: drop the failing row{again}, "
            "or fix the module."
        )
    return (
        f"{k} of the {total} rows were learned (see `rows_seen_`): continue with "
        f"X[{k}:], without the failing row."
    )
