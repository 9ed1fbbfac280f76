"""Settings of networks for ``onepass reproduce continual``, tried on rows held out.

The last rows to learn of each task, 400 where tasks have classes of their own and 1000 else, are
tested and not learned; rows to test never choose any. A baseline is made with its settings in
:mod:`onepass.reproduce.continual_learners`, or with others. What it reached is printed as JSON.

    ONEPASS_DATA=folder python benchmarks/held_out.py split-mnist icarl [--seeds 1] [--tasks 3]
        [--set '{"temperature": 1.0}']
"""

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import onepass as op
from onepass.reproduce.continual_learners import NETWORKS, network
from onepass.reproduce.continual_streams import STREAMS, Stream, found

KINDS = {"split": 400, "domain": 1000}
"""Kind of stream -> rows of a task that are held out."""


def kind_of(stream: Stream) -> str:
    return "split" if "icarl" in stream.learners else "domain"


def tasks(stream: Stream, data: Any, count: int | None, seed: int) -> Any:
    """The tasks, or the first of them, each tested on its last rows to learn."""
    made = stream.make(data, 1.0, seed)
    return replace(made, tasks=made.tasks[:count]).held_out(KINDS[kind_of(stream)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("stream", choices=[n for n in STREAMS if "sgd" in STREAMS[n].learners])
    parser.add_argument("baseline", choices=NETWORKS["split"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", type=int, help="so many of the first")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    stream = STREAMS[given.stream]
    settings = {**NETWORKS[kind_of(stream)].get(given.baseline, {}), **given.set}
    began = time.process_time()
    report = op.evaluate.continual(
        {given.baseline: partial(network, given.baseline, settings)},
        partial(tasks, stream, found(stream.data), given.tasks),
        seeds=given.seeds,
    )
    score = report[given.baseline]
    if any(run.stopped for run in score.runs):
        parser.error(f"{given.baseline} could not go on: {score.notes[-1]}")
    told = {
        "stream": given.stream,
        "baseline": given.baseline,
        "settings": settings,
        "accuracy on rows held out, %": [round(100 * v, 2) for v in score.values("average")],
        "processor seconds a run": round((time.process_time() - began) / given.seeds, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
