"""Public import path of the experiments of the papers in :mod:`onepass_experiments`."""

from onepass_experiments import *  # noqa: F403  re-exported
from onepass_experiments import __all__  # noqa: F401  re-exported
