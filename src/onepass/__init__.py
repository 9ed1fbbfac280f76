"""onepass: one-pass (online) learning.

Each row of a stream is predicted, then learned from its target; rows are not stored. Memory is
bounded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepass import errors as errors
    from onepass import evaluate as evaluate
    from onepass import features as features
    from onepass import forgetting as forgetting
    from onepass import integrations as integrations
    from onepass import memory as memory
    from onepass import models as models
    from onepass import nn as nn
    from onepass import scale as scale
    from onepass import service as service
    from onepass import stream as stream
    from onepass.evaluate.suggest import suggest as suggest
    from onepass.features.pipeline import Pipeline as Pipeline
    from onepass.learners import ARTIPCAClassifier as ARTIPCAClassifier
    from onepass.learners import ForestClassifier as ForestClassifier
    from onepass.learners import ForestRegressor as ForestRegressor
    from onepass.learners import KalmanRegressor as KalmanRegressor
    from onepass.learners import KernelRLSClassifier as KernelRLSClassifier
    from onepass.learners import KernelRLSRegressor as KernelRLSRegressor
    from onepass.learners import MirrorORFitRegressor as MirrorORFitRegressor
    from onepass.learners import NearestClassMean as NearestClassMean
    from onepass.learners import ORFitClassifier as ORFitClassifier
    from onepass.learners import ORFitRegressor as ORFitRegressor
    from onepass.learners import Perceptron as Perceptron
    from onepass.learners import RLSClassifier as RLSClassifier
    from onepass.learners import RLSRegressor as RLSRegressor
    from onepass.learners import SGDClassifier as SGDClassifier
    from onepass.learners import SGDRegressor as SGDRegressor
    from onepass.learners import StreamingLDA as StreamingLDA
    from onepass.learners import StreamingQDA as StreamingQDA
    from onepass.learners.art_ipca import ARTIPCACluster as ARTIPCACluster
    from onepass.learners.conformal import Conformal as Conformal
    from onepass.learners.keyed import Keyed as Keyed
    from onepass.learners.mixture import Mixture as Mixture
    from onepass.learners.mixture import MixtureClassifier as MixtureClassifier
    from onepass.learners.mixture import MixtureRegressor as MixtureRegressor
    from onepass.serialization.models import load as load
    from onepass.serialization.models import save as save
    from onepass.service.durable import durable as durable
    from onepass.versions import show_versions as show_versions

    __version__: str

# Public name -> module that defines it. Modules are imported when a name is first used, so that
# `import onepass` and `onepass --help` take milliseconds.
_PUBLIC = {
    "ARTIPCAClassifier": "learners",
    "ARTIPCACluster": "learners.art_ipca",
    "Conformal": "learners.conformal",
    "ForestClassifier": "learners",
    "ForestRegressor": "learners",
    "KalmanRegressor": "learners",
    "Keyed": "learners.keyed",
    "KernelRLSClassifier": "learners",
    "KernelRLSRegressor": "learners",
    "MirrorORFitRegressor": "learners",
    "Mixture": "learners.mixture",
    "MixtureClassifier": "learners.mixture",
    "MixtureRegressor": "learners.mixture",
    "NearestClassMean": "learners",
    "ORFitClassifier": "learners",
    "ORFitRegressor": "learners",
    "Perceptron": "learners",
    "Pipeline": "features.pipeline",
    "RLSClassifier": "learners",
    "RLSRegressor": "learners",
    "SGDClassifier": "learners",
    "SGDRegressor": "learners",
    "StreamingLDA": "learners",
    "StreamingQDA": "learners",
    "durable": "service",
    "errors": "",
    "evaluate": "",
    "features": "",
    "forgetting": "",
    "integrations": "",
    "load": "serialization.models",
    "memory": "",
    "models": "",
    "nn": "",
    "save": "serialization.models",
    "scale": "",
    "service": "",
    "show_versions": "versions",
    "stream": "",
    "suggest": "evaluate",
}

__all__ = list(_PUBLIC)


if not TYPE_CHECKING:  # otherwise every name would be valid for type checkers

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("onepass")
        if name not in _PUBLIC:
            raise AttributeError(f"module 'onepass' has no attribute {name!r}")
        if name in {"load", "save"}:
            import_module("onepass.features")  # registers the classes that model files may name
        module = _PUBLIC[name]
        if not module:
            return import_module(f"onepass.{name}")
        return getattr(import_module(f"onepass.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
