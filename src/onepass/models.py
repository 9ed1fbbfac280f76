"""Public import path of the model presets of :mod:`onepass.features.presets`."""

from onepass.features.presets import learner_class, names, pipelines

__all__ = ["learner_class", "names", "pipelines"]
