"""Cost of a job: work, memory, messages and time, for more rows or weights than one machine has.

Least squares (``m=None``) splits the rows over the machines. Each learns its rows by QR of blocks,
2p² + 4pc operations a row, and the triangles are merged in a tree of ⌈log₂ machines⌉ levels, with
one message of 8 (p² + 2pc) bytes for each merge.

ORFit with a memory of m directions splits the weights. A step of one row multiplies the basis of
p · m numbers twice and, amortised, rotates it in as many operations, with a decomposition of m²
numbers on each machine; the machines add up m + c² numbers in two phases of ⌈log₂ machines⌉
messages. Each machine reads its columns of all rows.

The time is a sum of products of these counts and the constants of a machine (:class:`Machine`).
``benchmarks/cost.py`` fits the constants, and compares predictions with runs held back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from onepass import validation
from onepass.errors import calling


class Machine(NamedTuple):
    """Seconds that one core needs; the defaults are fitted to runs on two cores of a server."""

    row: float = 3.23e-08
    """A row of least squares, without its numbers."""
    value: float = 2.72e-08
    """Reading a number from a Parquet file, and passing it to a learner."""
    flop: float = 4.03e-11
    """An operation of a QR of blocks."""
    merge: float = 9.6e-11
    """A merge of two triangles, divided by p³."""
    step: float = 7.75e-05
    """A step of ORFit, without its directions."""
    direction: float = 8.79e-10
    """A step of ORFit, divided by the numbers in its basis, p · m."""
    rotation: float = 3.07e-08
    """The eigendecompositions of ORFit for each step, divided by m²."""
    exchange: float = 9.87e-05
    """One of the two phases in which machines add up a few numbers, for each level."""
    message: float = 0.0232
    """Sending a summary, without its content."""
    byte: float = 7.18e-08
    """A byte of a summary: writing, sending and reading it."""


class Cost(NamedTuple):
    """Cost of a job; counts are sums over all machines."""

    read_bytes: float
    """Bytes of the numbers read, at 8 bytes each."""
    flops: float
    """Operations in float64."""
    memory_bytes: float
    """State of one machine."""
    messages: float
    """Their number."""
    sent_bytes: float
    """Bytes of all messages."""
    seconds: float
    """Elapsed time."""


@calling("scale.cost")
def cost(
    rows: float,
    p: float,
    outputs: int = 1,
    m: int | None = None,
    machines: int = 1,
    *,
    machine: Machine | None = None,
) -> Cost:
    """Predict the cost of learning in one pass.

    Parameters
    ----------
    rows : float
        Number of rows >= 0.
    p : float
        Number of weights per output, >= 1.
    outputs : int, default=1
        c.
    m : int, optional
        Number of directions of ORFit, whose weights are split over the machines; by default least
        squares, whose rows are split.
    machines : int, default=1
        Number of machines, each with one core, or of cores.
    machine : Machine, optional
        Constants, by default those of the server of ``benchmarks/cost.py``.

    Returns
    -------
    cost : Cost

    Raises
    ------
    ParameterError
        If a number is out of range.

    Examples
    --------
    >>> small, large = cost(1e9, 100), cost(1e9, 100, machines=64)
    >>> small.memory_bytes, large.messages, large.sent_bytes
    (84024.0, 63.0, 5140800.0)
    >>> 50 < small.seconds / large.seconds <= 64
    True
    """
    t = Machine() if machine is None else machine
    rows = validation.in_range(rows, "rows", low=0.0)
    p = validation.in_range(p, "p", low=1.0)
    c = validation.whole(outputs, "outputs", low=1)
    machines = validation.whole(machines, "machines", low=1)
    levels = math.ceil(math.log2(machines))
    values = rows * (p + c)
    if m is None:
        flops = rows * (2.0 * p * p + 4.0 * p * c)
        state, sent = 8.0 * (p * p + (2.0 * p + 3.0) * c + 3.0 * p), 8.0 * (p * p + 2.0 * p * c)
        learn = (rows * t.row + values * t.value + flops * t.flop) / machines
        merge = t.merge * p**3 + t.message + t.byte * sent
        messages, seconds = float(machines - 1), learn + levels * merge
        return Cost(8.0 * values, flops, state, messages, messages * sent, seconds)
    m = validation.whole(m, "m", low=1)
    flops = rows * (8.0 * p * m + 4.0 * p * c)  # two products and the rotation of the basis
    state = 8.0 * p * (1.5 * m + c) / machines  # with the new directions until the next rotation
    exchanged = 8.0 * (m + c * c)
    phases = 2 * levels
    step = t.step + t.rotation * m * m + (t.direction * p * m + t.value * (p + c)) / machines
    seconds = rows * (step + phases * t.exchange)
    messages = rows * 2 * (machines - 1)
    return Cost(8.0 * values, flops, state, messages, messages * exchanged, seconds)
