"""onepass: one-pass (online) learning.

Each row of a stream is predicted, then learned from its target; rows are not stored. Memory is
bounded, and earlier knowledge is kept.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onepass_experiments as reproduce  # noqa: F401
    from onepass import errors as errors
    from onepass import evaluate as evaluate
    from onepass import features as features
    from onepass import integrations as integrations
    from onepass import memory as memory
    from onepass import nn as nn
    from onepass import service as service
    from onepass import stream as stream
    from onepass.features import presets as models  # noqa: F401
    from onepass.features.pipeline import Pipeline as Pipeline
    from onepass.learners import ARTIPCAClassifier as ARTIPCAClassifier
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
    from onepass.memory import forgetting as forgetting
    from onepass.serialization.models import load as load
    from onepass.serialization.models import save as save
    from onepass.service.durable import durable as durable

# A public name and the module that defines it, imported when the name is first used, so that
# `import onepass` and the help of the command line take milliseconds.
_PUBLIC = {
    "ARTIPCAClassifier": "learners",
    "ARTIPCACluster": "learners.art_ipca",
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
    "integrations": "",
    "load": "serialization.models",
    "memory": "",
    "nn": "",
    "save": "serialization.models",
    "service": "",
    "stream": "",
}

# Public packages whose module path differs from their name.
_PACKAGES = {
    "forgetting": "onepass.memory.forgetting",
    "models": "onepass.features.presets",
    "reproduce": "onepass_experiments",
}
_MOVED = {
    "baselines": "onepass_experiments.baselines",
    "compat": "onepass.integrations",
    "compat.river": "onepass.integrations.river",
}

__all__ = list(_PUBLIC | _PACKAGES)


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        raise ImportError(f"onepass.{name} has moved. Import {_MOVED[name]}.")
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name not in _PUBLIC:
        raise AttributeError(f"module 'onepass' has no attribute {name!r}")
    if name in {"load", "save"}:
        import_module("onepass.features")  # it and what it imports register what files may name
    module = _PUBLIC[name]
    if not module:
        return import_module(f"onepass.{name}")
    return getattr(import_module(f"onepass.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Alias(ModuleType):
    """What ``from onepass.forgetting import Window`` imports from: the package of that name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        return getattr(__getattr__(self.__name__.removeprefix("onepass.")), name)


sys.modules.update({f"onepass.{each}": _Alias(f"onepass.{each}") for each in _PACKAGES | _MOVED})
