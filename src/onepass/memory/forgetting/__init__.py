"""Forgetting rules: how the weight of past rows decreases; one file each.

A rule (``Window(1000)``) is frozen and is passed to a learner: ``RLSRegressor(forgetting=…)``. Its
``start`` returns an initial state; its ``learn`` adds rows, one after the other, and returns the
triangle and the means from which predictions are computed. A number λ is short for ``Bounded(λ)``.
:mod:`onepass.memory.forgetting.protocols` defines the members of a rule.
"""

from onepass.memory.forgetting.auto import Auto, AutoState
from onepass.memory.forgetting.directional import Directional, DirectionalState, JointTriangle
from onepass.memory.forgetting.exponential import Bounded, Exponential
from onepass.memory.forgetting.parse import RULES
from onepass.memory.forgetting.window import Window, WindowBuffer, WindowRows
from onepass.serialization.codec import Role, register

__all__ = ["Auto", "Bounded", "Directional", "Exponential", "Window"]

STATES: tuple[type, ...] = (AutoState, JointTriangle, WindowRows, WindowBuffer, DirectionalState)
"""The private classes of learned states."""

register(Role.FORGETTING, *RULES, *STATES)
