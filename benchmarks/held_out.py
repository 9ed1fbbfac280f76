"""Settings of learners for ``onepass reproduce continual``, tried on rows held out.

The last rows to learn of each task, 400 where tasks have classes of their own and 1000 else, are
tested and not learned; rows to test never choose any. A learner is made as
:mod:`onepass_experiments.continual_learners` makes it, or with other settings; behind features
those that the features know are theirs. What it reached is printed as JSON.

    ONEPASS_DATA=folder python benchmarks/held_out.py split-mnist icarl [--seeds 1] [--tasks 3]
        [--set '{"temperature": 1.0}']
    ONEPASS_DATA=folder python benchmarks/held_out.py kin40k rls-fourier --set '{"gamma": 0.2}'
"""

import argparse
import inspect
import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

import onepass as op
from onepass_experiments.continual_learners import STREAMS, Stream, behind, found, network


def held_out(stream: Stream) -> int:
    """Rows of a task that are tested in place of those to test."""
    return 400 if "art-ipca" in stream.learners else 1000


def tasks(stream: Stream, data: Any, count: int | None, seed: int) -> Any:
    """The tasks, or the first of them, each tested on its last rows to learn."""
    made = stream.make(data, 1.0, seed)
    return replace(made, tasks=made.tasks[:count]).held_out(held_out(stream))


def made_with(maker: Any, others: dict[str, Any]) -> Any:
    """A maker with other settings."""
    if maker.func is not behind:
        kind, settings = maker.args
        return partial(maker.func, kind, {**settings, **others})
    features, options, kind, settings = maker.args
    known = set(inspect.signature(features).parameters) - {"seed"}
    theirs = {k: v for k, v in others.items() if k in known}
    own = {k: v for k, v in others.items() if k not in theirs}
    return partial(behind, features, {**options, **theirs}, kind, {**settings, **own})


def shown(maker: Any) -> dict[str, Any]:
    """What a maker sets."""
    return {name: value for part in maker.args if isinstance(part, dict)
            for name, value in part.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("stream", choices=STREAMS)
    parser.add_argument("learner", help="a name that onepass reproduce continual --methods knows")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", type=int, help="so many of the first")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    given = parser.parse_args()
    stream = STREAMS[given.stream]
    if given.learner not in stream.learners:
        parser.error(f"{given.stream} is learned by {', '.join(stream.learners)}")
    if stream.learners[given.learner].func is network:
        import torch  # noqa: PLC0415  those who learn without it need not wait

        torch.set_num_threads(1)
    maker = made_with(stream.learners[given.learner], given.set)
    began = time.process_time()
    with threadpool_limits(1):
        report = op.evaluate.continual(
            {given.learner: maker},
            partial(tasks, stream, found(stream.data), given.tasks),
            seeds=given.seeds,
        )
    score = report[given.learner]
    if any(run.stopped for run in score.runs):
        parser.error(f"{given.learner} could not go on: {score.notes[-1]}")
    told = {
        "stream": given.stream,
        "learner": given.learner,
        "settings": shown(maker),
        f"{report.metric} on rows held out": [round(v, 4) for v in score.values("average")],
        "processor seconds a run": round((time.process_time() - began) / given.seeds, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
