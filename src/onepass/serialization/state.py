"""Learned attributes of an object, and their size in bytes."""

from sklearn.base import BaseEstimator

__all__ = ["learned", "nbytes"]


def learned(thing: object) -> list[str]:
    """Return the names of the learned attributes, which end with an underscore."""
    return [name for name in vars(thing) if name.endswith("_") and not name.startswith("_")]


def nbytes(thing: object) -> int:
    """Return the total bytes of arrays in learned attributes, including nested objects."""
    if isinstance(thing, (list, tuple)):
        return sum(nbytes(part) for part in thing)
    if isinstance(thing, dict):
        return sum(nbytes(part) for part in thing.values())
    if isinstance(thing, BaseEstimator):
        return sum(nbytes(getattr(thing, name)) for name in learned(thing))
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if hasattr(thing, "__dataclass_fields__"):
        return sum(nbytes(getattr(thing, name)) for name in thing.__dataclass_fields__)
    return 0
