"""Detectors: River's detectors of drift, by their names in lower case."""

import inspect
from collections.abc import Iterable
from typing import Any

from onepass.errors import ParameterError, did_you_mean, import_extra

__all__ = ["detectors"]

_STANDINS = {"dummydriftdetector", "nodrift"}  # they detect nothing: for experiments on wrappers


def detectors(names: Iterable[str], where: str) -> dict[str, Any]:
    """Detectors of drift as River makes them, with its own settings; those that draw, from seed 0.

    Parameters
    ----------
    names : iterable of str
        Such as "adwin", "kswin", "pagehinkley"; "ddm", "eddm", "hddma" for classifiers.
    where : str
        What the user called, for messages.

    Returns
    -------
    dict of str to detector
        As ``op.evaluate.prequential(..., drift=...)`` takes them.

    Raises
    ------
    MissingExtraError
        If River is not installed.
    ParameterError
        If there is no such detector.

    Examples
    --------
    >>> chosen, alarms = detectors(["adwin"], "here")["adwin"], 0
    >>> for error in [0.0] * 200 + [1.0] * 200:
    ...     _ = chosen.update(error)
    ...     alarms += chosen.drift_detected
    >>> alarms
    1
    """
    names = list(names)
    known = _known(where) if names else {}  # River is not looked for in vain
    chosen = {}
    for name in names:
        if name.lower() not in known:
            raise ParameterError(
                f"{where} must name detectors of River, {', '.join(known)}, got {name!r}."
                f"{did_you_mean(name, list(known)) or ' Choose one of these.'}"
            )
        kind = known[name.lower()]
        draws = "seed" in inspect.signature(kind).parameters
        chosen[name.lower()] = kind(seed=0) if draws else kind()
    return chosen


def _known(where: str) -> dict[str, Any]:
    """Every detector that needs no argument, those of numbers first."""
    known = {}
    for module in ("river.drift", "river.drift.binary"):
        room = import_extra(module, extra="river", where=where)
        for name in sorted(room.__all__):
            kind: Any = getattr(room, name, None)  # a name may stand for nothing
            if hasattr(kind, "update") and hasattr(kind, "drift_detected") and _bare(kind):
                known[name.lower()] = kind
    return {name: kind for name, kind in known.items() if name not in _STANDINS}


def _bare(kind: type) -> bool:
    """Whether a class can be called without an argument."""
    taken = inspect.signature(kind).parameters.values()
    free = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return all(one.default is not one.empty or one.kind in free for one in taken)
