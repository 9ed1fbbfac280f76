"""Wire formats: decode requests into rows, and encode predictions. No HTTP, and no learner.

================ ===================================================================================
:mod:`~.v2`      the Open Inference Protocol, version 2: JSON, binary tensors, metadata and errors
:mod:`~.mlflow`  MLflow's ``/invocations``: JSON in four forms, and CSV
:mod:`~.arrow`   Arrow streams
:mod:`~.json`    decoding and encoding of JSON
:mod:`~.rows`    decoded requests, and replies
:mod:`~.limits`  limits of one request
================ ===================================================================================

Each reader makes an :class:`~.rows.Asked` out of bytes, or raises RequestError, whatever they are:
what is wrong and where, what was expected, and what to do. Nothing takes memory before
:class:`~.limits.Limits` allow it. Numbers keep every bit, in both directions.
"""

from onepass.errors import need

__all__: list[str] = []

need("msgspec", extra="serve", where="onepass.service.protocol")
