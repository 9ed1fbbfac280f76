"""Forgetting rules by their public path; they are defined in :mod:`onepass.memory.forgetting`."""

from onepass.memory.forgetting import Bounded, Directional, Exponential, Window

__all__ = ["Bounded", "Directional", "Exponential", "Window"]
