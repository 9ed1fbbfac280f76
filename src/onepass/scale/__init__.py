"""Learning on several machines: fits of shards, federated summaries, and the cost of large jobs."""

from onepass.scale import federated
from onepass.scale.cost import Cost, Machine, cost
from onepass.scale.fit import FitProgress, FitReport, fit

__all__ = ["Cost", "FitProgress", "FitReport", "Machine", "cost", "federated", "fit"]
