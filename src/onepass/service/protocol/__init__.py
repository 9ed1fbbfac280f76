"""Wire formats: decode requests into rows, and encode predictions; independent of HTTP.

================ ===================================================================================
:mod:`~.v2`      the Open Inference Protocol, version 2: JSON, binary tensors, metadata and errors
:mod:`~.records` records: rows as plain JSON, or NDJSON
:mod:`~.mlflow`  MLflow's ``/invocations``: JSON in four forms, and CSV
:mod:`~.arrow`   Arrow streams
:mod:`~.json`    decoding and encoding of JSON
:mod:`~.rows`    decoded requests, and responses
:mod:`~.limits`  limits of one request
================ ===================================================================================

Each reader decodes bytes into a :class:`~.rows.DecodedRequest` or raises RequestError with the
location, the expected and the received value, and a remedy. :class:`~.limits.Limits` bound the
memory of a request. Numbers are exact in both directions. The schemas of JSON bodies are generated
from their structs: ``msgspec.json.schema_components([v2.InferRequest, …])``.
"""

__all__: list[str] = []
