"""Learners: the names that a user imports, one file each."""

from onepass.learners.orfit import ORFitClassifier, ORFitRegressor
from onepass.learners.perceptron import Perceptron
from onepass.learners.rls import RLSClassifier, RLSRegressor
from onepass.learners.sgd import SGDClassifier, SGDRegressor

__all__ = [
    "ORFitClassifier",
    "ORFitRegressor",
    "Perceptron",
    "RLSClassifier",
    "RLSRegressor",
    "SGDClassifier",
    "SGDRegressor",
]
