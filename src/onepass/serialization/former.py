"""Names of former versions, as files hold them, and what they are called now.

Add an entry whenever a class, a constructor argument, a learned attribute or a module that files
may name is renamed or moved; then files of former versions still load.
"""

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["ATTRIBUTES", "CLASSES", "MODULES", "current_paths", "renamed"]

CLASSES: dict[str, str] = {}
"""Classes in model files."""

ATTRIBUTES: dict[str, dict[str, str]] = {}
"""Arguments and learned attributes in model files, by the present name of their class."""

MODULES: dict[str, str] = {
    "onepass.baselines": "onepass_experiments.baselines",
    "onepass.clusterers.art_ipca": "onepass.learners.art_ipca",
    "onepass.compat.adopted": "onepass.integrations.river",
    "onepass.compat.river": "onepass.integrations.river",
    "onepass.compat.wrapped": "onepass.integrations.river",
    "onepass.evaluate.reference": "onepass.evaluate.naive",
    "onepass.models": "onepass.features.presets",
    "onepass.nn.onestep": "onepass.nn.orfit",
    "onepass.pipeline": "onepass.features.pipeline",
}
"""Modules in the settings of evaluations; of submodules too."""

_PATH = re.compile(r"\bonepass(?:\.\w+)+")


def renamed(tree: dict[str, Any], mark: str) -> dict[str, Any]:
    """An encoded object with the present names of its class and attributes.

    Parameters
    ----------
    tree : dict
        Its class's name is at ``mark``.
    mark : str
    """
    name = CLASSES.get(tree[mark], tree[mark])
    attributes = ATTRIBUTES.get(name, {})
    if name == tree[mark] and not attributes:
        return tree
    return {attributes.get(key, key): name if key == mark else tree[key] for key in tree}


def current_paths(settings: Mapping[str, object]) -> dict[str, Any]:
    """Settings with the present modules of onepass in their texts.

    Examples
    --------
    >>> current_paths({"model": "onepass.pipeline.Pipeline", "seed": 1})
    {'model': 'onepass.features.pipeline.Pipeline', 'seed': 1}
    """
    return {
        key: _PATH.sub(_current, value) if isinstance(value, str) else value
        for key, value in settings.items()
    }


def _current(found: re.Match[str]) -> str:
    path, rest = found[0], ""
    while path not in MODULES:
        path, dot, last = path.rpartition(".")
        if not dot:
            return found[0]
        rest = f".{last}{rest}"
    return MODULES[path] + rest
