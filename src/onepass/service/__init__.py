"""Service: a learner that serves while it learns, and loses nothing.

:func:`durable` keeps a learner in a file, with no server around it, and :func:`examine` checks such
a file; :class:`Client` asks a server, and raises :class:`ServiceError` where that refuses.
"""

import onepass.features  # noqa: F401  registers the classes of models in stored files
from onepass.errors import ServiceError
from onepass.service.client import Client
from onepass.service.durable import Durable, Version, durable
from onepass.service.examine import examine
from onepass.service.requests import Receipt

__all__ = ["Client", "Durable", "Receipt", "ServiceError", "Version", "durable", "examine"]
