"""Tables of the cost model: its constants, runs held back, and jobs that exceed this machine."""

from cells import Found, table, three

from onepass.scale import Cost, Machine, cost

JOBS = [
    ("least squares", 1e9, 20, None, (1, 16)),
    ("least squares", 1e9, 1000, None, (16, 256)),
    ("least squares", 1e10, 100, None, (16, 256)),
    ("least squares", 1e11, 100, None, (64, 1024)),
    ("least squares", 1e12, 20, None, (64, 1024)),
    ("least squares", 1e12, 100, None, (1024, 4096)),
    ("ORFit", 1e6, 1e6, 100, (1, 16)),
    ("ORFit", 1e6, 1e8, 100, (16, 256)),
    ("ORFit", 1e6, 1e9, 100, (64, 1024)),
]
"""Learner, rows, weights, directions, numbers of machines."""


def scale_constants(found: Found) -> str:
    """Return the constants of the machine."""
    rows = [[f"`{name}`", f"{seconds:.2g}"] for name, seconds in found["machine"].items()]
    return table(["", "seconds"], rows)


def scale_runs(found: Found) -> str:
    """Return measured and predicted seconds."""
    rows = [
        [
            one["name"] + (" (held back)" if one["held_back"] else ""),
            three(one["measured"]),
            three(one["predicted"]),
            f"{one['predicted'] / one['measured'] - 1.0:+.0%}",
        ]
        for one in sorted(found["runs"], key=lambda one: not one["held_back"])
    ]
    return table(["run", "seconds", "predicted", "difference"], rows)


def scale_jobs(found: Found) -> str:
    """Return the cost of jobs that exceed this machine."""
    machine = Machine(**found["machine"])
    rows = []
    for learner, n, p, m, counts in JOBS:
        for machines in counts:
            job: Cost = cost(n, p, m=m, machines=machines, machine=machine)
            weights = f"{p:.0e}".replace("e+0", "e") if p >= 1e4 else f"{p:,.0f}"
            rows.append(
                [
                    learner if m is None else f"{learner}({m})",
                    f"{n:.0e}".replace("e+0", "e").replace("e+", "e"),
                    weights,
                    f"{machines:,}",
                    size(job.read_bytes),
                    f"{job.flops:.1e}".replace("e+", "e"),
                    size(job.memory_bytes),
                    f"{job.messages:.1e}".replace("e+0", "e").replace("e+", "e")
                    if job.messages >= 1e4
                    else f"{job.messages:,.0f}",
                    size(job.sent_bytes),
                    duration(job.seconds),
                ]
            )
    head = ["learner", "rows", "weights", "cores", "read", "operations", "state of one"]
    return table([*head, "messages", "sent", "time"], rows)


def size(count: float) -> str:
    """Format bytes."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if count < 1000.0 or unit == "EB":
            break
        count /= 1000.0
    return f"{count:.3g} {unit}"


def duration(seconds: float) -> str:
    """Format a time with its largest unit."""
    for limit, unit in ((60.0, "s"), (60.0, "min"), (24.0, "h"), (365.25, "days")):
        if seconds < 2.0 * limit:
            return f"{seconds:.2g} {unit}" if seconds < 10.0 else f"{seconds:,.0f} {unit}"
        seconds /= limit
    return f"{seconds:.2g} years" if seconds < 10.0 else f"{seconds:,.0f} years"
