"""Wire: requests as bytes, as rows, and answers as bytes again; no HTTP, and no learner.

=================================== ============================================================
:mod:`~.tensors`                    the Open Inference Protocol, version 2: JSON and binary tensors
:mod:`~.invocations`                MLflow's ``/invocations``: JSON in four forms, and CSV
:mod:`~.arrow`                      Arrow's streams
:mod:`~.described`                  what a server and its models say of themselves, and of errors
=================================== ============================================================

Each reader makes an :class:`~.rows.Asked` out of bytes, or raises RequestError, whatever they are:
what is wrong and where, what was expected, and what to do. Nothing takes memory before
:class:`~.limits.Limits` allow it. Numbers keep every bit, in both directions.
"""

from onepass.errors import need

__all__: list[str] = []

need("msgspec", extra="serve", where="onepass.service.protocol")
