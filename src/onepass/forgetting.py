"""Public import path of the forgetting rules of :mod:`onepass.memory.forgetting`."""

from onepass.memory.forgetting import Bounded, Directional, Exponential, Window

__all__ = ["Bounded", "Directional", "Exponential", "Window"]
