"""Learners, one file for each algorithm."""

from onepass.learners.art_ipca import ARTIPCAClassifier, ARTIPCACluster
from onepass.learners.class_means import Moments, NearestClassMean
from onepass.learners.conformal import Conformal
from onepass.learners.discriminant import StreamingLDA, StreamingQDA
from onepass.learners.discriminant_axes import DiscriminantAxes
from onepass.learners.forest import ForestClassifier, ForestRegressor
from onepass.learners.kalman import KalmanRegressor
from onepass.learners.kernel_rls import (
    KernelPosterior,
    KernelRLSClassifier,
    KernelRLSRegressor,
)
from onepass.learners.keyed import Keyed
from onepass.learners.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Misclassified,
    Squared,
)
from onepass.learners.mirror_orfit import MirrorORFitRegressor
from onepass.learners.mixture import MixtureClassifier, MixtureRegressor
from onepass.learners.orfit import ORFitClassifier, ORFitRegressor
from onepass.learners.perceptron import Perceptron
from onepass.learners.prototype_tree import PrototypeTree
from onepass.learners.prototypes import Page, Prototypes
from onepass.learners.rls import RLSClassifier, RLSRegressor
from onepass.learners.sgd import SGDClassifier, SGDRegressor
from onepass.serialization.codec import Role, register

__all__ = [
    "ARTIPCAClassifier",
    "ForestClassifier",
    "ForestRegressor",
    "KalmanRegressor",
    "KernelRLSClassifier",
    "KernelRLSRegressor",
    "MirrorORFitRegressor",
    "NearestClassMean",
    "ORFitClassifier",
    "ORFitRegressor",
    "Perceptron",
    "RLSClassifier",
    "RLSRegressor",
    "SGDClassifier",
    "SGDRegressor",
    "StreamingLDA",
    "StreamingQDA",
]

STATES = (
    ARTIPCACluster, DiscriminantAxes, KernelPosterior, Moments, Page, Prototypes,
    PrototypeTree,
)  # fmt: skip
"""The registered private classes."""

register(
    Role.LEARNER,
    ARTIPCAClassifier,
    ForestClassifier,
    ForestRegressor,
    KernelRLSClassifier,
    KernelRLSRegressor,
    KalmanRegressor,
    MirrorORFitRegressor,
    NearestClassMean,
    ORFitClassifier,
    ORFitRegressor,
    Perceptron,
    RLSClassifier,
    RLSRegressor,
    SGDClassifier,
    SGDRegressor,
    StreamingLDA,
    StreamingQDA,
    *STATES,
)
register(Role.PIPELINE, Conformal, Keyed, MixtureClassifier, MixtureRegressor)
register(Role.LOSS, Absolute, EpsilonInsensitive, Hinge, Huber, Logistic, Misclassified, Squared)
