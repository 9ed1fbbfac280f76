"""Wire formats: decode requests into rows, and encode predictions. No HTTP, and no learner.

================ ===================================================================================
:mod:`~.v2`      the Open Inference Protocol, version 2: JSON, binary tensors, metadata and errors
:mod:`~.records` records: rows as plain JSON, or NDJSON
:mod:`~.mlflow`  MLflow's ``/invocations``: JSON in four forms, and CSV
:mod:`~.arrow`   Arrow streams
:mod:`~.json`    decoding and encoding of JSON
:mod:`~.rows`    decoded requests, and responses
:mod:`~.limits`  limits of one request
================ ===================================================================================

Each reader decodes bytes into a :class:`~.rows.DecodedRequest` or raises RequestError, which names
the place, what was expected, what was received, and what to do. :class:`~.limits.Limits` bound the
memory that a request takes. Numbers are exact in both directions. The structs of JSON bodies also
give their schemas: ``msgspec.json.schema_components([v2.InferRequest, …])``.
"""

from onepass.errors import import_extra

__all__: list[str] = []

import_extra("msgspec", extra="serve", where="onepass.service.protocol")
