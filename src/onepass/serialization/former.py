"""Files of former versions: what names are called now, and trees as they are now.

Add an entry whenever a class, a constructor argument, a learned attribute or a module that files
may name is renamed or moved; then files of former versions still load. A function here converts
each tree whose shape has changed. Whatever it raises of LookupError, TypeError, AttributeError and
ValueError means that a tree is damaged; other damage is found when the result is decoded.
"""

import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ATTRIBUTES",
    "CLASSES",
    "MODULES",
    "continual_report",
    "continual_run",
    "course",
    "current_paths",
    "memory",
    "renamed",
    "settings",
    "tally",
]

CLASSES: dict[str, str] = {
    "Latest": "LastDirections",
    "Ledger": "ScoreHistory",
    "Nothing": "NoMemory",
    "Tally": "RollingMetrics",
    "Track": "BoundedCurve",
    "Waiting": "PendingRows",
}
"""Classes in model files: former name to present name."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "": {"answer_ndim_": "target_ndim_", "contradictions_": "inconsistent_rows_"},
    "Run": {"learning": "learning_seconds", "answering": "prediction_seconds"},
    "ScoreHistory": {
        "tallies": "models", "overall_track": "overall_curve", "recent_track": "recent_curve",
    },
}  # fmt: skip
"""Arguments and learned attributes in model files, and fields in reports, by the present name of
their class; those at ``""`` were renamed in all classes."""

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
    attributes = ATTRIBUTES[""] | ATTRIBUTES.get(name, {})
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


# -- reports of continual evaluation, until 0.1 ----------------------------------------------------


def continual_run(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run with their present names."""
    return {ATTRIBUTES["Run"].get(name, name): value for name, value in tree.items()}


def continual_report(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a report with the present names of those of its runs."""
    if "runs" not in tree:
        return dict(tree)
    return {**tree, "runs": [continual_run(run) for run in tree["runs"]]}


# -- checkpoints of evaluations, until 0.1 ---------------------------------------------------------


def settings(tree: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run; baselines were named without their arguments."""
    models = tree.get("models")
    if type(models) is not dict:
        return tree
    alone = ({"@": "LastLabel"}, {"@": "Majority"})
    now = {n: {**m, "classes": None} if m in alone else m for n, m in models.items()}
    return {**tree, "models": now}


def course(tree: dict[str, Any], models: Mapping[str, str], ledger: Any) -> dict[str, Any]:
    """The state of a run.

    Parameters
    ----------
    tree : dict
    models : mapping of str to str
        The class of each model: the file did not name those of baselines.
    ledger : dict
        The encoded score history of a run with these settings, which the file did not hold.
    """
    if "@" in tree["ledger"]:
        return dict(tree)
    states = {n: m if "@" in m else {"@": models[n], **m} for n, m in tree["models"].items()}
    old, room = tree["ledger"], tree["room"]
    now = {
        **ledger,
        "models": {n: tally(t, ledger["models"][n]) for n, t in old["tallies"].items()},
        "overall_curve": _track(old["overall"], ledger["overall_curve"]),
        "recent_curve": _track(old["recent"], ledger["recent_curve"]),
        **{name: old[name] for name in ("rows", "skipped", "time")},
    }
    waiting = room and room["waiting"]
    if waiting:
        columns = waiting.get("columns")
        X = {"@": "Table", "columns": columns, "n": len(waiting["due"])}
        X = waiting["array"] if columns is None else X
        waiting = {"@": "PendingRows", "X": X, "y": waiting["y"], "due": waiting["due"]}
    room = room and {"last": room["last"], "waiting": waiting}
    return {"models": states, "seconds": tree["seconds"], "ledger": now, "room": room}


def tally(tree: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The metrics of one model.

    Parameters
    ----------
    tree : dict
    like : dict
        The encoded metrics of a run with these settings.
    """
    if "@" in tree:
        return tree
    metrics = {
        name: {"@": like["metrics"][name]["@"], **{k: _part(v) for k, v in attributes.items()}}
        for name, attributes in tree["metrics"].items()
    }
    return {**like, "metrics": metrics, "last": {"@": "deque", "items": tree["last"]}}


def _track(tree: dict[str, Any] | None, like: dict[str, Any]) -> dict[str, Any] | None:
    """A curve."""
    names = ("stride", "rows", "times", "points")
    return None if tree is None else {**like, **{name: tree[name] for name in names}}


def _part(value: Any) -> Any:
    """An attribute of a metric."""
    if type(value) is not dict:
        return value
    ((kind, part),) = value.items()
    match kind:
        case "number":
            return {"@": "number", "of": part}
        case "total":
            total, lost = map(_part, part)
            return {"@": "Total", "_sum": total, "_lost": lost}
        case "counts":
            return {"@": "counter", "items": part}
    raise ValueError(kind)


# -- states of wrapped optimizers, until 0.1 -------------------------------------------------------


def memory(state: Any, device: Any) -> Any:
    """A memory of a wrapped optimizer as a tree.

    Parameters
    ----------
    state : dict
    device : torch.device
        Tensors are copied to it.
    """
    if isinstance(state, list):
        return [memory(part, device) for part in state]
    if not isinstance(state, Mapping):
        return state.to(device, copy=True) if hasattr(state, "detach") else state
    if hasattr(state.get("small"), "detach"):
        return state["small"].cpu().numpy().copy()
    parts = {key: memory(part, device) for key, part in state.items()}
    return {"@": parts.pop("class"), **parts} if type(parts.get("class")) is str else parts
