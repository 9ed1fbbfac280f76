"""Steps on a GPU, as multiples of the time of its memory or of its matrix products.

A step of a memory reads its columns three times; learning a block multiplies matrices. Each is
timed beside as many plain reads, or beside plain products of the same size, in one run. The bound
of a block of least squares is one product of its rows with a matrix of the size of its state::

    python benchmarks/gpu.py

Without CUDA there is nothing to measure, and the script says so.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import onepass as op

P, M = 4_000_000, 100  # weights, directions
ROWS = 16
BLOCK, OUTPUTS = 1024, 10  # rows and outputs of least squares
REPEATS = 5


def milliseconds(work: Callable[[], Any]) -> float:
    """The median time of some work on the GPU."""
    work()
    found = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end))
    return statistics.median(found)


def learner(memory: Any, *, block: bool = False) -> Any:
    """A learner with a full memory."""
    net = op.nn.ORFit(torch.nn.Linear(P, 1, bias=False, device="cuda"), memory, block_update=block)
    for _ in range(2 * M // ROWS if memory == M else 2):
        net.learn(*rows())
    return net


def rows() -> tuple[Any, Any]:
    """Random rows and targets."""
    return torch.randn(ROWS, P, device="cuda"), torch.randn(ROWS, 1, device="cuda")


def least_squares(p: int) -> tuple[float, float]:
    """Times of a block of least squares on p features, from host memory, and of its bound."""
    rng, net = np.random.default_rng(0), op.RLSClassifier(ridge=1.0, device="cuda")
    for _ in range(2 + 3 * p // BLOCK):  # enough rows to determine all directions
        X, y = rng.normal(size=(BLOCK, p)), rng.integers(0, OUTPUTS, BLOCK)
        net.partial_fit(X, y, classes=range(OUTPUTS))
    A, R = (torch.randn(n, p, device="cuda", dtype=torch.float64) for n in (BLOCK, p))
    return milliseconds(lambda: net.partial_fit(X, y)), milliseconds(lambda: A @ R)


def main() -> None:
    """Print the ratios."""
    if not torch.cuda.is_available():
        print("gpu.py: no CUDA device was found, so nothing was measured")
        return
    torch.manual_seed(0)
    x, y = rows()
    columns = torch.randn(M, P, device="cuda")
    read = 3 * milliseconds(lambda: columns @ x[0])
    product = 3 * milliseconds(lambda: columns @ x.T)
    print(torch.cuda.get_device_name(), torch.__version__)
    print("| step | ms a row | ratio to the bound |\n|---|--:|--:|")
    for name, memory, block, bound in (
        ("Principal(100), row by row", M, False, ROWS * read),
        ("Principal(100), block of 16", M, True, product),
        ("no memory, row by row", op.memory.NoMemory(), False, ROWS * read / M),
    ):
        net = learner(memory, block=block)
        time = milliseconds(lambda net=net: net.learn(x, y))
        print(f"| {name} | {time / ROWS:.3f} | {time / bound:.2f} |")
    for p in (4096, 10_000):
        time, bound = least_squares(p)
        name = f"RLSClassifier, {p:,} features, block of {BLOCK:,}"
        print(f"| {name} | {time / BLOCK:.3f} | {time / bound:.2f} |")


if __name__ == "__main__":
    main()
