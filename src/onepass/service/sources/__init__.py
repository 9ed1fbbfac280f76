"""Sources: rows that come by and by, from where they can be read again.

A source has positions, and is read from a position on. What is learned of it is committed together
with the position after it, so that each row is learned once, through kills and restarts.
"""

from onepass.service.sources.feeder import Feeder
from onepass.service.sources.opened import source
from onepass.service.sources.source import Piece, Source

__all__ = ["Feeder", "Piece", "Source", "source"]
