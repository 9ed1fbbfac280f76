"""Learning on several machines: federated summaries, and the cost of large jobs."""

from onepass.scale import federated
from onepass.scale.cost import Cost, Machine, cost

__all__ = ["Cost", "Machine", "cost", "federated"]
