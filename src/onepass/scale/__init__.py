"""Learning of more data than one process can read: models of shards, merged in a fixed order."""

from onepass.scale.fit import FitProgress, FitReport, fit

__all__ = ["FitProgress", "FitReport", "fit"]
