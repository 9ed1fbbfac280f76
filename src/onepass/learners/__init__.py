"""Learners: the names that a user imports, one file each."""

from onepass.learners.orfit import ORFitClassifier, ORFitRegressor
from onepass.learners.rls import RLSClassifier, RLSRegressor

__all__ = ["ORFitClassifier", "ORFitRegressor", "RLSClassifier", "RLSRegressor"]
