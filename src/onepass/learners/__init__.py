"""Learners: the names that a user imports, one file each."""

from onepass.learners.rls import RLSClassifier, RLSRegressor

__all__ = ["RLSClassifier", "RLSRegressor"]
