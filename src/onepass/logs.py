"""The logger ``onepass``, which writes nothing unless the application configures logging."""

import logging

LOG = logging.getLogger("onepass")
"""Long calls log their start and end at level INFO; the service logs to ``onepass.service``."""

LOG.addHandler(logging.NullHandler())
