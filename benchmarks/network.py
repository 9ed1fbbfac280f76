"""Cost of ORFit's memory for networks, compared with plain reads of its columns.

The step of ``op.memory.Principal(m)`` for one gradient is timed over a whole cycle between two
rotations of its columns, so that the mean includes the rotation. Interleaved in the same process:
three plain reads of the same columns (products with a vector, by the faster of torch and NumPy),
and a rotation at each step as in the recursion, B ← [B u] Ũ. The clock is the CPU time of the
thread with one thread, and the wall clock otherwise.

Gradients are random with a shared part; ``common`` is the ratio of its length to the rest. A step
reads the columns twice, and a third time if little of a gradient is new. Each measurement runs in a
separate process, whose largest resident size is its peak.

    python benchmarks/network.py [--quick] [--json benchmarks/results/network.json] [--figure FILE]
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from residual import resnet18

import onepass as op
from onepass import linalg

SETTINGS = [
    {"part": "step", "common": common, "dtype": dtype, "threads": threads}
    for dtype, threads, common in (
        ("float32", 1, 0.0),
        ("float32", 1, 3.0),
        ("float32", 1, 30.0),
        ("float64", 1, 0.0),
        ("float32", 2, 0.0),
    )
]
M = {"part": "over m", "p": 200_000}
P = {"part": "over p", "m": 50}
CURVES = [
    *({**M, "m": m} for m in (10, 25, 50, 100, 200, 400)),
    *({**P, "p": p} for p in (10_000, 100_000, 1_000_000, 2_000_000)),
]
NETWORKS = [{"part": "ResNet-18", "norm": norm} for norm in ("batch", "group")]
STANDARD = {"m": 100, "p": 1_000_000, "dtype": "float32", "threads": 1, "common": 0.0}
COMMON = 20  # directions shared by gradients
READS = 3


def best(reads: list[Callable[[], Any]], clock: Callable[[], float]) -> float:
    """Return the time of the fastest method."""
    spans = []
    for read in reads:
        begin = clock()
        for _ in range(READS):
            read()
        spans.append(clock() - begin)
    return min(spans)


def rotating(rows: Any, g: Any, clock: Callable[[], float]) -> float:
    """Time one step that projects once and rotates: B ← [B u] Ũ."""
    m = len(rows)
    turn = torch.linalg.qr(torch.randn(m + 1, m + 1, dtype=rows.dtype)).Q[:, :m]
    begin = clock()
    rest = g - (rows @ g) @ rows
    wide = torch.cat((rows, (rest / torch.linalg.vector_norm(rest))[None]))
    turn.T @ wide
    return clock() - begin


def gradients(p: int, dtype: Any, common: float) -> Callable[[], Any]:
    """Return a generator of rows (1, p), which reuses its memory."""
    J, some = torch.empty(1, p, dtype=dtype), torch.Generator().manual_seed(0)
    shared = torch.randn(COMMON if common else 0, p, dtype=dtype, generator=some)

    def draw() -> Any:
        J[0].normal_(generator=some)
        if common:
            mixed = torch.randn(COMMON, dtype=dtype, generator=some) @ shared
            J[0].add_(mixed, alpha=common / COMMON**0.5)
        return J

    return draw


def step(result: dict[str, Any]) -> dict[str, Any]:
    """Measure steps of one memory."""
    m, p, dtype = result["m"], result["p"], getattr(torch, result["dtype"])
    torch.set_num_threads(result["threads"])
    clock = time.thread_time if result["threads"] == 1 else time.perf_counter
    draw, w = gradients(p, dtype, result["common"]), torch.zeros(p, dtype=dtype)
    before = resident()
    memory = op.memory.Principal(m).start(p, 1, 0.0, w[:0])
    cycle, error, none = (m + 1) // 2, torch.ones(1, dtype=torch.float64), np.zeros(1)
    spans, reads = [], []
    for k in range(m + 2 * cycle):
        J, rows = draw(), memory.subspace.B.rows
        with linalg.one_thread_for_tensors(p):
            if k >= m + cycle and k % 3 == 0:
                some, flat = rows.numpy(), J[0].numpy()
                ways = [lambda B=rows, g=J[0]: B @ g, lambda B=some, g=flat: B @ g]
                reads.append(best(ways, clock))
            begin = clock()
            taken = memory.learn(w, J.T, error, none)
            span = clock() - begin
        w, memory = taken.w, taken.memory
        if k >= m + cycle:
            spans.append(span)
    numbers = (resident() - before) / (m * p * w.itemsize)
    each = [rotating(memory.subspace.B.rows[:m], draw()[0], clock) for _ in range(3)]
    mean, plain = float(np.mean(spans)), float(np.mean(reads))
    return {
        **result,
        "step, ms": 1e3 * mean,
        "median step, ms": 1e3 * float(np.median(spans)),
        "three reads, ms": 1e3 * plain,
        "step / three reads": mean / plain,
        "rotating, ms": 1e3 * min(each),
        "rotating / step": min(each) / mean,
        "peak, in m p numbers": numbers,
    }


def network(result: dict[str, Any], rows: int = 60, m: int = 50) -> dict[str, Any]:
    """Measure learning of a ResNet-18 with one output."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    module = resnet18(result["norm"])
    net = op.nn.ORFit(module, memory=m)
    X, y = torch.randn(rows, 3, 32, 32), torch.randn(rows)
    net.learn(X[:2], y[:2])
    before, begin, derived = resident(), time.perf_counter(), 0.0
    jacobian = net.network.jacobian

    def timed(*given: Any, **named: Any) -> Any:
        nonlocal derived
        start = time.perf_counter()
        found = jacobian(*given, **named)
        derived += time.perf_counter() - start
        return found

    net.network.jacobian = timed
    net.learn(X, y)
    total = time.perf_counter() - begin
    last_error = float((net.predict(X[-1:]) - y[-1:]).abs().max())
    return {
        **result,
        "p": net.network.p,
        "m": m,
        "rows": rows,
        "forward and backward, ms per row": 1e3 * derived / rows,
        "ORFit, ms per row": 1e3 * (total - derived) / rows,
        "peak, GB": resident() / 1e9,
        "peak of learning, in m p numbers": (resident() - before) / (m * net.network.p * 4),
        "memory, GB": net.nbytes / 1e9,
        "error on the last row": last_error,
    }


def resident() -> float:
    """Return the peak resident size of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def measured(setting: dict[str, Any]) -> dict[str, Any]:
    """Run a setting in a separate process."""
    threads = str(setting.get("threads", 2))
    found = subprocess.run(  # noqa: S603  this file
        [sys.executable, __file__, "--one", json.dumps(setting)],
        env={**os.environ, "OMP_NUM_THREADS": threads},
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(found.stdout)
    print(json.dumps(result), flush=True)
    return result


AXES = {"m": "directions m", "p": "weights p"}
LINES = {
    "rotating, ms": "rotation at each step",
    "step, ms": "one step",
    "three reads, ms": "three reads of the directions",
}


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the curves over m and p."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, part, over in zip(figure.subplots(1, 2), ("over m", "over p"), "mp", strict=True):
        rows = [one for one in found["settings"] if one["part"] == part]
        at = [one[over] for one in rows]
        for name, label in LINES.items():
            axes.loglog(at, [one[name] for one in rows], marker="o", label=label)
        other = "p" if over == "m" else "m"
        title = f"{AXES[other]} = {rows[0][other]:,}"
        axes.set(xlabel=AXES[over], ylabel="ms per row", title=title)
        axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="only the first setting")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--figure", type=Path, help="draw the curves")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(network(given.one) if "norm" in given.one else step(given.one)))
        return
    chosen = SETTINGS[:1] if given.quick else [*SETTINGS, *CURVES, *NETWORKS]
    settings = [measured(one if "norm" in one else {**STANDARD, **one}) for one in chosen]
    found = {
        "command": "python benchmarks/network.py",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "settings": settings,
    }
    if given.json:
        from cells import write  # noqa: PLC0415  in this folder

        write(given.json, found)
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
