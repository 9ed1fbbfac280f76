"""Forgetting: how the past counts less as the stream goes on; one file a rule.

A rule (``Window(1000)``) is frozen and is given to a learner: ``RLSRegressor(forgetting=…)``. It
says how to start, and its ``learn`` takes rows in, one after the other, from a state of its own; it
leaves the triangle and the means that answers are made of. A number λ is ``Bounded(λ)``. What else
each brings is in :mod:`onepass.memory.forgetting.protocols`.
"""

from onepass.memory.forgetting.directional import Directional, DirectionalState, JointTriangle
from onepass.memory.forgetting.exponential import Bounded, Exponential
from onepass.memory.forgetting.parse import RULES
from onepass.memory.forgetting.window import Window, WindowBuffer, WindowRows
from onepass.serialization.codec import Role, register

__all__ = ["Bounded", "Directional", "Exponential", "Window"]

STATES: tuple[type, ...] = (JointTriangle, WindowRows, WindowBuffer, DirectionalState)
"""What is learned but not public."""

register(Role.FORGETTING, *RULES, *STATES)
