"""Models by name, by their public path; they are defined in :mod:`onepass.features.presets`."""

from onepass.features.presets import learner_class, names, pipelines

__all__ = ["learner_class", "names", "pipelines"]
