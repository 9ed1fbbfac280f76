"""Infinite numbers in JSON, which has no word for them: as the text ``"inf"`` or ``"-inf"``."""

import math
from typing import Any

__all__ = ["numbers", "spelt"]


def spelt(tree: Any) -> Any:
    """A tree of dicts and lists with infinite numbers as text.

    Parameters
    ----------
    tree : dict, list or plain value
        What is to be written.
    """
    if isinstance(tree, dict):
        return {name: spelt(part) for name, part in tree.items()}
    if isinstance(tree, list):
        return [spelt(part) for part in tree]
    return str(tree) if isinstance(tree, float) and math.isinf(tree) else tree


def numbers(tree: Any) -> Any:
    """A tree of numbers, with infinite ones as numbers again.

    Parameters
    ----------
    tree : dict, list, number, text or None
        What was read.

    Examples
    --------
    >>> numbers(spelt({"mae": [1.0, float("inf"), None]}))
    {'mae': [1.0, inf, None]}
    """
    if isinstance(tree, dict):
        return {name: numbers(part) for name, part in tree.items()}
    if isinstance(tree, list):
        return [numbers(part) for part in tree]
    return None if tree is None else float(tree)
