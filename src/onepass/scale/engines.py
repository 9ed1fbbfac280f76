"""Engines that run one function for each shard: this machine, Ray, Dask, Spark and Beam.

An engine is a function ``run(function, items, workers)`` that yields the items as their calls end,
in any order. Each call writes its result to a file, so that engines cannot differ in results.
Scheduling, transport and the repetition of calls whose process or machine failed are left to the
engine.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, TypeAlias

from onepass.errors import ProcessError, import_extra
from onepass.parallel import run_parallel

_WHERE = "op.scale.fit"

Call: TypeAlias = Callable[[Any], object]
"""A function of an item; it can be pickled, and may be called twice for one item."""


def _local(function: Call, items: Sequence[Any], workers: int | None) -> Generator[Any]:
    """Run in this process or in joblib processes; repeat the calls of ended processes once."""
    left, ended = dict(enumerate(items)), Counter[int]()
    while left:
        try:
            calls = run_parallel(lambda pair: function(pair[1]), list(left.items()), workers or 1)
            for (i, item), _ in calls:
                del left[i]
                yield item
        except ProcessError:
            ended.update(list(left)[:workers])  # those that were running
            if max(ended.values()) > 1:
                raise


def _early_end(what: str, error: Exception) -> ProcessError:
    """Return the error for processes that ended early."""
    return ProcessError(
        f"{what} must not end early, got: {error}. Check whether memory is short. The shards "
        "learned so far remain in `workdir`.",
        _WHERE,
    )


def _ray(function: Call, items: Sequence[Any], workers: int | None) -> Generator[Any]:
    """Run as Ray tasks of one CPU each, in the cluster that ``ray.init`` finds, else a new one."""
    ray: Any = import_extra("ray", extra="ray")
    with ExitStack() as stack:
        if not ray.is_initialized():
            ray.init(include_dashboard=False)
            stack.callback(ray.shutdown)
        task = ray.remote(num_cpus=1, max_retries=3, retry_exceptions=False)(
            lambda item: function(item)  # noqa: PLW0108  Ray accepts no other callables
        )
        left = iter(items)
        running: dict[Any, Any] = {}
        try:
            while True:
                room = None if workers is None else workers - len(running)
                running |= {task.remote(item): item for item in islice(left, room)}
                if not running:
                    return
                done = ray.wait(list(running))[0][0]
                ray.get(done)
                yield running.pop(done)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
            raise _early_end(f"the process of shard {running[done]}", error) from error
        finally:
            for one in running:
                ray.cancel(one)


def _dask(function: Call, items: Sequence[Any], workers: int | None) -> Generator[Any]:
    """Run as tasks of the current Dask client, else of a new cluster on this machine."""
    distributed: Any = import_extra("distributed", extra="dask")
    with ExitStack() as stack:
        try:
            client = distributed.get_client()
        except ValueError:  # none
            client = stack.enter_context(
                distributed.Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            )
        futures = {client.submit(function, item, pure=False): item for item in items}
        try:
            for future in distributed.as_completed(list(futures)):
                future.result()
                yield futures[future]
        except distributed.KilledWorker as error:
            raise _early_end("the workers of Dask", error) from error
        finally:
            client.cancel(list(futures))


def _spark(function: Call, items: Sequence[Any], workers: int | None) -> Generator[Any]:
    """Run as a Spark job of one partition for each item; Spark returns when all have ended."""
    sql: Any = import_extra("pyspark.sql", extra="spark")
    session = sql.SparkSession.getActiveSession()
    with ExitStack() as stack:
        if session is None:
            try:
                session = sql.SparkSession.builder.master(f"local[{workers or '*'}]").getOrCreate()
            except RuntimeError as error:
                raise ProcessError(
                    f'engine="spark" must be able to start Java, got: {error} Install '
                    "the version of Java that your PySpark needs, or set JAVA_HOME.",
                    _WHERE,
                ) from error
            session.sparkContext.pythonExec = sys.executable
            stack.callback(session.stop)
        session.sparkContext.parallelize(items, len(items)).foreach(function)
        yield from items


def _beam(function: Call, items: Sequence[Any], workers: int | None) -> Generator[Any]:
    """Run as a Beam pipeline with the runner of the program's arguments; return when it ended."""
    beam: Any = import_extra("apache_beam", extra="beam")
    options = {} if workers is None else {"direct_num_workers": workers}
    with beam.Pipeline(
        options=beam.options.pipeline_options.PipelineOptions(**options)
    ) as pipeline:
        shards = pipeline | beam.Create(list(items), reshuffle=True)
        _ = shards | beam.Map(function)
    yield from items


ENGINES = {"local": _local, "ray": _ray, "dask": _dask, "spark": _spark, "beam": _beam}
"""Name -> engine."""
