"""River's drift detectors by lower-case name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from onepass.errors import ParameterError, did_you_mean, import_extra

_DUMMIES = {"dummydriftdetector", "nodrift"}  # baselines without detection


def detectors(names: Iterable[str], option: str) -> dict[str, Any]:
    """Create River's drift detectors with default parameters; random ones with seed 0.

    Parameters
    ----------
    names : iterable of str
        Names in any case, such as "adwin", "kswin" and "pagehinkley"; "ddm", "eddm" and "hddma"
        require a classifier.
    option : str
        The option that names them, for messages.

    Returns
    -------
    detectors : dict of str to detector
        The argument ``drift`` of ``op.evaluate.prequential``.

    Raises
    ------
    MissingExtraError
        If River is not installed.
    ParameterError
        If a detector is unknown.

    Examples
    --------
    >>> detector, alarms = detectors(["adwin"], "here")["adwin"], 0
    >>> for error in [0.0] * 200 + [1.0] * 200:
    ...     _ = detector.update(error)
    ...     alarms += detector.drift_detected
    >>> alarms
    1
    """
    names = list(names)
    available = _available() if names else {}  # River is imported only if needed
    created = {}
    for name in names:
        if name.lower() not in available:
            raise ParameterError(
                f"{option} must name drift detectors of River, {', '.join(available)}",
                got=f"{name!r}",
                remedy=did_you_mean(name, list(available)).strip()
                or "Choose one of these detectors.",
            )
        cls = available[name.lower()]
        seeded = "seed" in inspect.signature(cls).parameters
        created[name.lower()] = cls(seed=0) if seeded else cls()
    return created


def _available() -> dict[str, Any]:
    """Return River's detectors without required arguments; those of real-valued errors first."""
    classes = {}
    for path in ("river.drift", "river.drift.binary"):
        module = import_extra(path, extra="river")
        for name in sorted(module.__all__):
            cls: Any = getattr(module, name, None)  # __all__ may list names that do not exist
            detects = hasattr(cls, "update") and hasattr(cls, "drift_detected")
            if detects and _needs_no_arguments(cls):
                classes[name.lower()] = cls
    return {name: cls for name, cls in classes.items() if name not in _DUMMIES}


def _needs_no_arguments(cls: type) -> bool:
    """Return whether a class can be called without arguments."""
    parameters = inspect.signature(cls).parameters.values()
    optional = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return all(p.default is not p.empty or p.kind in optional for p in parameters)
