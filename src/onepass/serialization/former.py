"""Conversion of files of former versions: former names and changed structures.

Add an entry whenever a class, constructor argument, learned attribute or module that files may
contain is renamed or moved. For each tree whose structure has changed there is a function that
converts it. If the function raises LookupError, TypeError, AttributeError or ValueError, the tree
is damaged; other damage is detected when the result is decoded.
"""

import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ADDED",
    "ATTRIBUTES",
    "CLASSES",
    "DEFAULTS",
    "MODULES",
    "continual_report",
    "continual_run",
    "course",
    "current_paths",
    "memory",
    "renamed",
    "tally",
]

CLASSES: dict[str, str] = {
    "Axes": "IncrementalPCAState",
    "Columns": "OrthonormalBasis",
    "Components": "PrincipalState",
    "Drawn": "RandomDirections",
    "Empty": "NoMemoryState",
    "Latest": "LastDirections",
    "Nothing": "NoMemory",
    "Recent": "LastDirectionsState",
    "View": "PrincipalAxes",
    "Belief": "PosteriorCovariance",
    "Ledger": "ScoreHistory",
    "Tally": "RollingMetrics",
    "Track": "BoundedCurve",
    "Waiting": "PendingRows",
}
"""Classes in model files: former name -> current name."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "": {"answer_ndim_": "target_ndim_", "contradictions_": "inconsistent_rows_"},
    "IncrementalPCAState": {"kept": "retained", "room": "block", "since": "recent"},
    "OrthonormalBasis": {"room": "capacity"},
    "ARTIPCAClassifier": {"stock_": "prototype_store_", "way_": "pca_mode_"},
    "ARTIPCACluster": {"stock_": "prototype_store_", "way_": "pca_mode_"},
    "ORFitClassifier": {"start_": "initial_weights_"},
    "ORFitRegressor": {"start_": "initial_weights_"},
    "Page": {"seen": "coordinates", "taken": "weights"},
    "EKF": {"against": "inconsistent", "belief": "posterior"},
    "LoFi": {"against": "inconsistent", "belief": "posterior"},
    "NTKRLS": {"against": "inconsistent", "belief": "posterior"},
    "ORFit": {"against": "inconsistent"},
    "OneStepSGD": {"against": "inconsistent"},
    "Run": {"learning": "learning_seconds", "answering": "prediction_seconds"},
    "ScoreHistory": {
        "tallies": "models", "overall_track": "overall_curve", "recent_track": "recent_curve",
    },
}  # fmt: skip
"""Current class name -> former argument or learned attribute -> current name.

The entries of ``""`` apply to all classes."""

ADDED: dict[str, str] = {
    "device": "None",
    "freeze_after": "None",
    "levels": "1",
    "projection": "'pca'",
    "shrinkage": "'oas'",
}
"""Constructor arguments that were added -> the value without them, as text, in settings of runs."""

DEFAULTS: dict[str, float] = {"prior": 0.0}
"""Constructor arguments whose default is now None, which is this former default."""

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
"""Modules and packages in the settings of evaluations: former name -> current name."""

_PATH = re.compile(r"\bonepass(?:\.\w+)+")


def renamed(tree: dict[str, Any], mark: str) -> dict[str, Any]:
    """Replace former names of the class and attributes of an encoded object.

    Parameters
    ----------
    tree : dict
    mark : str
        The key of the class name.
    """
    name = CLASSES.get(tree[mark], tree[mark])
    attributes = ATTRIBUTES[""] | ATTRIBUTES.get(name, {})
    return {attributes.get(key, key): name if key == mark else tree[key] for key in tree}


def current_paths(settings: Mapping[str, object]) -> dict[str, Any]:
    """Replace former module names of onepass in the text values of settings.

    Examples
    --------
    >>> current_paths({"model": "onepass.pipeline.Pipeline", "seed": 1})
    {'model': 'onepass.features.pipeline.Pipeline', 'seed': 1}
    """
    return {
        key: _PATH.sub(_current, value) if isinstance(value, str) else value
        for key, value in settings.items()
    }


def _current(match: re.Match[str]) -> str:
    """Return the current path of a module, or of a name in a module."""
    path, rest = match[0], ""
    while path not in MODULES:
        path, dot, last = path.rpartition(".")
        if not dot:
            return match[0]
        rest = f".{last}{rest}"
    return MODULES[path] + rest


# -- reports of continual evaluation, until 0.1 ----------------------------------------------------


def continual_run(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields of a run to their current names."""
    return {ATTRIBUTES["Run"].get(name, name): value for name, value in tree.items()}


def continual_report(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields of the runs of a report to their current names."""
    if "runs" not in tree:
        return dict(tree)
    return {**tree, "runs": [continual_run(run) for run in tree["runs"]]}


# -- checkpoints of evaluations, until 0.1 ---------------------------------------------------------


def course(tree: dict[str, Any], models: Mapping[str, str], ledger: Any) -> dict[str, Any]:
    """Convert the state of a run.

    Parameters
    ----------
    tree : dict
    models : mapping of str to str
        The class of each model; files did not contain the classes of baselines.
    ledger : dict
        The encoded score history of a run with these settings; files did not contain it.
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


def tally(tree: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Convert the metrics of one model.

    Parameters
    ----------
    tree : dict
    template : dict
        The encoded metrics of a run with these settings.
    """
    if "@" in tree:
        return tree
    metrics = {
        name: {"@": template["metrics"][name]["@"], **{k: _part(v) for k, v in attributes.items()}}
        for name, attributes in tree["metrics"].items()
    }
    return {**template, "metrics": metrics, "last": {"@": "deque", "items": tree["last"]}}


def _track(tree: dict[str, Any] | None, template: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a learning curve."""
    names = ("stride", "rows", "times", "points")
    return None if tree is None else {**template, **{name: tree[name] for name in names}}


def _part(value: Any) -> Any:
    """Convert an attribute of a metric."""
    if type(value) is not dict:
        return value
    ((kind, part),) = value.items()
    match kind:
        case "number":
            return {"@": "number", "of": part}
        case "total":
            total, rounding = map(_part, part)
            return {"@": "Total", "_sum": total, "_lost": rounding}
        case "counts":
            return {"@": "counter", "items": part}
    raise ValueError(kind)


# -- states of wrapped optimisers, until 0.1 -------------------------------------------------------


def memory(state: Any, device: Any) -> Any:
    """Convert the memory of a wrapped optimiser to a tree.

    Parameters
    ----------
    state : dict
    device : torch.device
        The device to which tensors are copied.
    """
    if isinstance(state, list):
        return [memory(part, device) for part in state]
    if not isinstance(state, Mapping):
        return state.to(device, copy=True) if hasattr(state, "detach") else state
    if hasattr(state.get("small"), "detach"):
        return state["small"].cpu().numpy().copy()
    parts = {key: memory(part, device) for key, part in state.items()}
    return {"@": parts.pop("class"), **parts} if type(parts.get("class")) is str else parts
