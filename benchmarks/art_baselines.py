"""Baselines of continual learning on tasks of MNIST and Fashion-MNIST: EWC, iCaRL, DEN and others.

A perceptron of two hidden layers of 400 ReLU units, pixels in [0, 1]. Split MNIST and
Fashion-MNIST, class-incremental: 2,000 rows to learn and 500 to test of a class, two classes a
task, each baseline as it is usually trained. MNIST rotated by 15 times 5 degrees and permuted 10
times, domain-incremental: 10,000 rows a task, each learned once. The mean accuracy over tasks after
the last one, over several runs, which differ in the rows, the first weights and the order of rows;
beside it the published numbers. Settings are in the JSON file beside this one.
They were chosen with ``--held-out``: the last 400 rows to learn of each task (1,000 where tasks
share their classes) are tested and not learned; rows to test never chose any.

    ONEPASS_DATA=... python benchmarks/art_baselines.py [--runs 5] [--only DEN] [--held-out]
        [--images mnist fashion-mnist rotated-mnist permuted-mnist] [--tasks 3]
        [--set '{"DEN": {"epochs": 5}}'] [--json FILE]
"""

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import onepass as op

SETTINGS = Path(__file__).with_suffix(".json")
PUBLISHED = {
    "EWC": {"mnist": 20.01, "fashion-mnist": 19.47},
    "iCaRL": {"mnist": 94.57, "fashion-mnist": 80.70},
    "DEN": {"mnist": 56.95, "fashion-mnist": 31.51},
}
KINDS = {
    "SGD": "SGD",
    "EWC": "EWC",
    "SI": "SI",
    "LwF": "LwF",
    "DEN": "DEN",
    "iCaRL": "ICaRL",
    "Replay": "Replay",
    "Joint": "Joint",
}
SPLIT = ("mnist", "fashion-mnist")
SHARED = {
    "rotated-mnist": (op.stream.rotated_mnist, 15),
    "permuted-mnist": (op.stream.permuted_mnist, 10),
}


def learner(name: str, settings: dict[str, Any], seed: int) -> Any:
    """A baseline on a perceptron whose first weights the seed draws."""
    torch.manual_seed(seed)
    module = torch.nn.Sequential(
        torch.nn.Linear(784, 400),
        torch.nn.ReLU(),
        torch.nn.Linear(400, 400),
        torch.nn.ReLU(),
        torch.nn.Linear(400, 10),
    )
    drawn = {} if name == "SGD" else {"seed": seed}  # which has nothing to draw
    return getattr(op.baselines, KINDS[name])(module, **drawn, **settings)


def tasks(images: str, seed: int, *, held_out: bool, count: int | None) -> Any:
    """The tasks of a run; where they share their classes, so many of them."""
    if images in SPLIT:
        found = op.stream.split_mnist(
            op.stream.images(images), rows_per_class=2000, test_rows_per_class=500, seed=seed
        )
        return found.held_out(400) if held_out else found
    make, most = SHARED[images]
    found = make(n_tasks=count or most, rows_per_task=10_000, seed=seed)
    return found.held_out(1000) if held_out else found


def settings_for(images: str, only: list[str], other: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each baseline is made with, of those that have settings for such tasks."""
    known = json.loads(SETTINGS.read_text(encoding="utf-8"))
    known = known["domain"] if images in SHARED else known
    return {name: {**known[name], **other.get(name, {})} for name in only if name in known}


def measured(name: str, chosen: dict[str, Any], images: str, given: argparse.Namespace) -> Any:
    """What a baseline reached over the runs."""
    begin = time.perf_counter()
    report = op.evaluate.continual(
        {name: partial(learner, name, chosen)},
        partial(tasks, images, held_out=given.held_out, count=given.tasks),
        scenario="class" if images in SPLIT else "domain",
        seeds=given.runs,
    )
    score = report[name]
    stopped = [run.stopped for run in score.runs if run.stopped]
    if stopped:
        raise SystemExit(f"{name} could not go on: {stopped[0]}")
    last = [run.matrix[-1] for run in score.runs]
    return {
        "accuracy, %": 100 * score.average_accuracy,
        "of each run, %": [100 * sum(row) / len(row) for row in last],
        "published, %": PUBLISHED.get(name, {}).get(images),
        "bytes kept": score.nbytes,
        "rows learned again": score.repeated,
        "seconds a run": (time.perf_counter() - begin) / given.runs,
        "settings": chosen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--images", nargs="*", choices=[*SPLIT, *SHARED], default=list(SPLIT))
    parser.add_argument("--tasks", type=int, help="so many, where they share their classes")
    parser.add_argument("--held-out", action="store_true", help="test on rows to learn")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    parser.add_argument("--json", type=Path, help="write what was found")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "command": " ".join(["python benchmarks/art_baselines.py", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} cores, one thread used",
        "runs": given.runs,
        "tested on": "rows held out" if given.held_out else "rows to test",
    }
    for images in given.images:
        found[images] = {}
        for name, chosen in settings_for(images, given.only, given.set).items():
            found[images][name] = measured(name, chosen, images, given)
            print(images, name, json.dumps(found[images][name]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
