"""Public import path of the forgetting rules of :mod:`onepass.memory.forgetting`."""

from onepass.memory.forgetting import Auto, Bounded, Directional, Exponential, Window

__all__ = ["Auto", "Bounded", "Directional", "Exponential", "Window"]
