"""Continual makers: what is a learner, and what makes one, or a stream of tasks, of a seed."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from sklearn.utils import get_tags

from onepass.errors import ParameterError

__all__ = ["is_learner", "made", "misplaced", "takes_seed"]


def is_learner(model: Any) -> bool:
    """Whether it is a learner, not something that makes one."""
    if isinstance(model, type):
        return False
    asked = any(callable(getattr(model, verb, None)) for verb in ("predict", "predict_one"))
    taught = any(callable(getattr(model, v, None)) for v in ("partial_fit", "learn", "learn_one"))
    return asked and taught


def made(factory: Callable[..., Any], seed: int, where: str) -> Any:
    """What a factory makes of a seed, if it takes one.

    Parameters
    ----------
    factory : callable
        Of ``seed``, of one argument without a default, or of none.
    seed : int
    where : str
        The public call, for messages.

    Raises
    ------
    ParameterError
        If it asks for more, or makes nothing.
    """
    if takes_seed(factory):
        named = "seed" in signature(factory).parameters
        thing = factory(seed=seed) if named else factory(seed)
    else:
        _refuse_more(factory, where)
        thing = factory()
    if thing is None:
        raise ParameterError(
            f"{where}: a factory must return what it makes, got None of {factory!r}. Add `return`."
        )
    return thing


def _refuse_more(factory: Callable[..., Any], where: str) -> None:
    """Refuse what asks for more than a seed."""
    try:
        signature(factory).bind()
    except ValueError:  # built in, and tells nothing of its arguments
        return
    except TypeError as wrong:
        raise ParameterError(
            f"{where}: a factory must be called with a seed, or nothing, got {factory!r}: {wrong}. "
            "Give what else it needs by functools.partial."
        ) from wrong


def takes_seed(factory: Any) -> bool:
    """Whether a factory asks for a seed that it has not been given."""
    if "seed" in getattr(factory, "keywords", {}):  # of functools.partial
        return False
    try:
        known = signature(factory).parameters
    except (TypeError, ValueError):
        return False
    if "seed" in known:
        return True
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in known.values() if p.kind in places and p.default is Parameter.empty]
    return len(needed) == 1


def misplaced(model: Any, task: str) -> str | None:
    """What a model is, where it says so and does something else than the task asks for."""
    if not hasattr(model, "__sklearn_tags__"):
        return None
    kind = get_tags(model).estimator_type
    wanted = {"regression": "regressor", "classification": "classifier"}[task]
    return None if kind in {None, wanted} else str(kind)
