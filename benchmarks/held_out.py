"""Evaluation of settings for ``onepass reproduce continual`` on held-out rows.

The last training rows of each task (400 if tasks have separate classes, otherwise 1,000) are tested
and not learned; test rows are never used for choices. A learner has the settings of
:mod:`onepass_experiments.continual_learners`, or other ones; in a pipeline, settings that are
parameters of the features apply to the features. The result is printed as JSON.

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
from onepass_experiments.continual_learners import (
    STREAMS,
    Stream,
    load_data,
    make_network,
    make_pipeline,
)


def held_out(stream: Stream) -> int:
    """Return the number of held-out rows per task."""
    return 400 if "art-ipca" in stream.learners else 1000


def tasks(stream: Stream, data: Any, count: int | None, seed: int) -> Any:
    """Return the (first) tasks with held-out training rows as test rows."""
    made = stream.make(data, 1.0, seed)
    return replace(made, tasks=made.tasks[:count]).held_out(held_out(stream))


def made_with(maker: Any, others: dict[str, Any]) -> Any:
    """Return a factory with other settings."""
    if maker.func is not make_pipeline:
        kind, settings = maker.args
        return partial(maker.func, kind, {**settings, **others})
    features, options, kind, settings = maker.args
    known = set(inspect.signature(features).parameters) - {"seed"}
    theirs = {k: v for k, v in others.items() if k in known}
    own = {k: v for k, v in others.items() if k not in theirs}
    return partial(make_pipeline, features, {**options, **theirs}, kind, {**settings, **own})


def shown(maker: Any) -> dict[str, Any]:
    """Return the settings of a factory."""
    return {name: value for part in maker.args if isinstance(part, dict)
            for name, value in part.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("stream", choices=STREAMS)
    parser.add_argument("learner", help="a name as in onepass reproduce continual --methods")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", type=int, help="number of first tasks")
    parser.add_argument("--set", type=json.loads, default={}, help="other settings, as JSON")
    given = parser.parse_args()
    stream = STREAMS[given.stream]
    if given.learner not in stream.learners:
        parser.error(f"learners of {given.stream} are {', '.join(stream.learners)}")
    if stream.learners[given.learner].func is make_network:
        import torch  # noqa: PLC0415  slow import, not always needed

        torch.set_num_threads(1)
    maker = made_with(stream.learners[given.learner], given.set)
    began = time.process_time()
    with threadpool_limits(1):
        report = op.evaluate.continual(
            {given.learner: maker},
            partial(tasks, stream, load_data(stream.data), given.tasks),
            seeds=given.seeds,
        )
    score = report[given.learner]
    if any(run.stopped for run in score.runs):
        parser.error(f"{given.learner} failed: {score.notes[-1]}")
    result = {
        "stream": given.stream,
        "learner": given.learner,
        "settings": shown(maker),
        f"{report.metric} on rows held out": [round(v, 4) for v in score.values("average")],
        "processor seconds a run": round((time.process_time() - began) / given.seeds, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
