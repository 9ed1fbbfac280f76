"""State of a model as plain values and arrays, and the model restored from it.

A learner of onepass is stored as in its own file (:mod:`onepass.serialization.codec`). A baseline,
which has no file format, is stored as its learned attributes alone; the reader knows its class.
"""

from typing import Any

from sklearn.base import BaseEstimator

from onepass.evaluate.naive import BASELINES
from onepass.learners.estimator import learned
from onepass.serialization.archive import damaged
from onepass.serialization.codec import MARK, built, can_learn, taken

__all__ = ["heard", "kept", "relearn", "specification"]

_NO_OBJECTS = {"function", "generator", "dict"}  # marks that stand for no class


def kept(model: BaseEstimator, place: str) -> dict[str, Any]:
    """A model as plain values and arrays.

    Parameters
    ----------
    model : learner
        Of onepass, or one of its baselines.
    place : str
        Where it will be written, for messages.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold.
    """
    if type(model) in BASELINES:
        return {name: getattr(model, name) for name in learned(model)}
    return taken(model, place)


def heard(model: BaseEstimator, said: Any, place: str) -> dict[str, Any]:
    """What a model had learned when it was kept; it is not changed yet.

    Parameters
    ----------
    model : learner
        One that was made alike.
    said : dict
        From whatever source.
    place : str
        Where it was read, for messages.

    Raises
    ------
    CheckpointError, LookupError, TypeError
        If this is not what ``kept`` gives of such a model.
    """
    if type(model) in BASELINES:
        if not all(can_learn(type(model), name) for name in said):
            raise damaged(place, "a baseline has learned something else")
        return dict(said)
    if said[MARK] != type(model).__name__:
        raise damaged(place, "a model is of another class")
    again = built(said, place, _functions(model, said))
    return {name: getattr(again, name) for name in learned(again)}


def relearn(model: BaseEstimator, found: dict[str, Any]) -> None:
    """Put what was learned in place of what a model has learned.

    Parameters
    ----------
    model : learner
        It is changed.
    found : dict
        As ``heard`` gave it.
    """
    for name in learned(model):
        delattr(model, name)
    for name, value in found.items():
        setattr(model, name, value)
    for feature in found.get("features_", ())[:1]:
        if hasattr(feature, "missing"):  # the policy may change where a run stopped at a gap
            feature.missing = model.missing


def specification(model: BaseEstimator, place: str) -> Any:
    """How a model was constructed, as plain values and arrays, without what it learned.

    Parameters
    ----------
    model : learner
        Of onepass, or one of its baselines.
    place : str
        Where it will be written, for messages.

    Raises
    ------
    CheckpointError
        If it is, or holds, something that no file can hold.
    """
    if type(model) in BASELINES:
        return {MARK: type(model).__name__}
    return _without_learned(taken(model, place))


def _without_learned(said: Any) -> Any:
    if type(said) in {list, tuple}:
        return type(said)(_without_learned(part) for part in said)
    if type(said) is not dict:
        return said
    thing = MARK in said and said[MARK] not in _NO_OBJECTS
    return {
        name: _without_learned(part)
        for name, part in said.items()
        if not (thing and name.endswith("_"))
    }


def _functions(model: BaseEstimator, said: object) -> dict[str, Any]:
    """The functions that a model was constructed with, by the names of their arguments."""
    wanted = set(_wanted(said))
    given = model.get_params(deep=True) if wanted else {}
    found = {
        name.rpartition("__")[2]: value
        for name, value in given.items()
        if callable(value) or isinstance(value, bytes)  # a network as it stands in a file
    }
    return {name: function for name, function in found.items() if name in wanted}


def _wanted(said: Any) -> list[str]:
    """The arguments in a tree that were functions."""
    if type(said) in {list, tuple}:
        return [name for part in said for name in _wanted(part)]
    if type(said) is not dict:
        return []
    here = [n for n, part in said.items() if type(part) is dict and part.get(MARK) == "function"]
    return here + [name for part in said.values() for name in _wanted(part)]
