"""EWC, iCaRL and DEN on Split MNIST and Split Fashion-MNIST, class-incremental.

A perceptron of two hidden layers of 400 ReLU units; 2,000 rows to learn and 500 to test of a class,
two classes a task, pixels in [0, 1]. The mean accuracy over tasks after the last one, over several
runs, which differ in the rows, the first weights and the order of rows; beside it the published
numbers. Settings are in the JSON file beside this one: first guesses, not searched for. With
``--held-out`` the last 400 rows to learn of each task are tested and not learned; settings are to
be chosen by these, and never by the rows to test.

    ONEPASS_DATA=... python benchmarks/art_baselines.py [--runs 5] [--only DEN] [--held-out]
        [--set '{"DEN": {"epochs": 5}}'] [--json FILE]
"""

import argparse
import json
import os
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
KINDS = {"EWC": "EWC", "iCaRL": "ICaRL", "DEN": "DEN"}


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
    return getattr(op.baselines, KINDS[name])(module, seed=seed, **settings)


def tasks(images: str, seed: int, *, held_out: bool) -> Any:
    """The tasks of a run."""
    found = op.stream.split_mnist(
        op.stream.images(images), rows_per_class=2000, test_rows_per_class=500, seed=seed
    )
    return found.held_out(400) if held_out else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--images", nargs="*", default=["mnist", "fashion-mnist"])
    parser.add_argument("--held-out", action="store_true", help="test on rows to learn")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    parser.add_argument("--json", type=Path, help="write what was found")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    settings = {name: {**settings[name], **given.set.get(name, {})} for name in given.only}
    found: dict[str, Any] = {
        "command": "python benchmarks/art_baselines.py",
        "machine": f"{os.cpu_count()} cores, one thread used",
        "runs": given.runs,
        "tested on": "rows held out" if given.held_out else "rows to test",
        "settings": settings,
    }
    for images in given.images:
        found[images] = {}
        for name, chosen in settings.items():
            begin = time.perf_counter()
            report = op.evaluate.continual(
                {name: partial(learner, name, chosen)},
                partial(tasks, images, held_out=given.held_out),
                scenario="class",
                seeds=given.runs,
            )
            score = report[name]
            stopped = [run.stopped for run in score.runs if run.stopped]
            if stopped:
                parser.error(f"{name} could not go on: {stopped[0]}")
            found[images][name] = {
                "accuracy, %": 100 * score.average_accuracy,
                "of each run, %": [
                    100 * sum(run.matrix[-1]) / len(run.matrix[-1]) for run in score.runs
                ],
                "published, %": PUBLISHED[name].get(images),
                "bytes kept": score.nbytes,
                "rows learned again": score.repeated,
                "seconds a run": (time.perf_counter() - begin) / given.runs,
            }
            print(images, name, json.dumps(found[images][name]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
