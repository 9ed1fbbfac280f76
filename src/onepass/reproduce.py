"""The experiments of the papers by their public path; they are in :mod:`onepass_experiments`."""

from onepass_experiments import *  # noqa: F403  the same names
from onepass_experiments import __all__  # noqa: F401  the same list
