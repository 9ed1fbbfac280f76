"""Durable learners: a write-ahead log, snapshots, and an HTTP service.

:func:`durable` stores a learner in a file, without a server; :func:`examine` verifies such a file,
:func:`backup` copies one that may be in use.
:class:`Client` and :class:`AsyncClient` send requests to a server, and raise :class:`ServiceError`
if the server rejects a request. :class:`PartitionedLearner` learns a Kafka topic in several
processes, and :func:`merge_partitions` merges their learners.
"""

import onepass.features  # noqa: F401  registers classes that stored models may contain
from onepass.errors import ServiceError
from onepass.service.client import AsyncClient, Client
from onepass.service.durable import Durable, Version, durable
from onepass.service.examine import backup, examine
from onepass.service.partitions import PartitionedLearner, merge_partitions
from onepass.service.requests import LearnResult

__all__ = [
    "AsyncClient",
    "Client",
    "Durable",
    "LearnResult",
    "PartitionedLearner",
    "ServiceError",
    "Version",
    "backup",
    "durable",
    "examine",
    "merge_partitions",
]
