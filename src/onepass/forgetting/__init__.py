"""Forgetting rules: how the weight of past rows decreases; one file each.

A rule (``Window(1000)``) is frozen and is passed to a learner: ``RLSRegressor(forgetting=…)``. Its
``fading`` determines how the vector of :mod:`onepass.memory.least_squares` fades. A number λ is
short for ``Bounded(λ)``. :mod:`onepass.forgetting.protocols` defines the members of a rule.
"""

from onepass.forgetting.auto import Auto
from onepass.forgetting.directional import Directional
from onepass.forgetting.exponential import Bounded, Exponential
from onepass.forgetting.parse import RULES
from onepass.forgetting.window import Window
from onepass.memory.mixture import Mixture
from onepass.serialization.codec import Role, register

__all__ = ["Auto", "Bounded", "Directional", "Exponential", "Window"]

register(Role.FORGETTING, *RULES, Mixture)
