"""``op.suggest`` on twelve streams: the suggestion against the best of all learners in hindsight.

The suggestion is made from the first 2,000 rows, or half of a shorter stream. Candidates are all
learners of ``op.models`` with their defaults, without lags and with the last target; they are
evaluated on the first 10,000 rows.

    python benchmarks/suggest.py
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cells import write
from real_tables import TABLES
from tables import RESULTS, markdown

import onepass as op

STREAMS = (
    "elec2", "elec2-price", "vic-elec", "bikeshare", "occupancy", "panda", "ur10", "flights",
    "kin40k", "shuttle", "co2", "sp500",
)  # fmt: skip
ROWS = 10_000


def measure(name: str) -> dict[str, Any]:
    """Return the suggestion for a stream and the errors of all candidates."""
    frame = TABLES[name].load().head(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.csv"
        frame.to_csv(file, index=False)
        stream = op.stream.read(file, target=TABLES[name].target)
        found = op.suggest(stream, rows=min(2000, len(frame) // 2))
        metric = "accuracy" if found.task == "classification" else "mae"
        candidates = {found.options: found.model}
        for lags in ((), (1,)):
            models = op.models.pipelines(op.models.names(found.task), found.task, lags=lags)
            for learner, model in models.items():
                label = f"--model {learner}" + (" --lags 1" if lags else "")
                candidates.setdefault(label, model)
        errors = {}
        for label, model in candidates.items():
            try:
                report = op.evaluate.prequential({label: model}, stream, metric, baselines=False)
            except op.errors.OnepassError:
                continue
            value = report.scores[label].overall[metric]
            errors[label] = 1.0 - value if metric == "accuracy" else value
    best = min(errors, key=lambda label: errors[label])
    return {
        "rows": len(frame), "suggested": found.options, "error": errors[found.options],
        "best": best, "best error": errors[best], "ratio": errors[found.options] / errors[best],
    }  # fmt: skip


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streams = {name: measure(name) for name in STREAMS}
    result = {"command": "python benchmarks/suggest.py", "streams": streams}
    write(RESULTS / "suggest.json", result)
    print(markdown("suggest", result))
    print(np.sum([one["ratio"] <= 1.05 for one in streams.values()]), "within 5 %")


if __name__ == "__main__":
    main()
