"""Settled: whether models can be made as --set and --time say, known before a row is read."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cyclopts import CycloptsError

from onepass.cli.arguments import pairs

if TYPE_CHECKING:
    from onepass.features.pipeline import Pipeline

__all__ = ["hold_settings"]

_REMEDY = re.compile(r"(Construct (the learner|it) with|Give) (another( `\w+`)?|one of these)\.$")


def hold_settings(
    models: Mapping[str, "Pipeline"], settings: Sequence[str], *, timed: bool
) -> None:
    """Refuse settings that no model can begin with, in the words of the command line.

    What depends on the rows, such as the shape of the weights to begin with, is left to the pass.

    Parameters
    ----------
    models : mapping of str to Pipeline
        They are not touched.
    settings : sequence of str
        As --set gave them.
    timed : bool
        Whether it is known when a row happened.

    Raises
    ------
    ParameterError
        If a value is none that the parameter can have.
    CycloptsError
        If a model forgets by time, and nobody says which column that is.
    """
    given = pairs(settings)
    for name, model in models.items():
        for part, tried in (("", _features), (name, _learner)):
            _try(tried, model, {s: v for s, v in given.items() if not part or _of(s, part)})
        if model.uses_time and not timed:
            rule = next((f"--set {s}={v}" for s, v in given.items() if _of(s, name)), name)
            raise CycloptsError(
                msg=f"run: {rule} forgets by time, and needs --time, the column that says when a "
                "row happened; got none. Name it, or count in rows, as "
                f"--set {name}.forgetting=0.999 does."
            )


def _try(tried: Any, model: "Pipeline", given: Mapping[str, str]) -> None:
    """Tell what a part says of a parameter that was set."""
    from onepass.errors import OnepassError, ParameterError

    try:
        tried(model)
    except OnepassError as wrong:
        said = str(wrong)
        for setting, value in given.items():
            if f"`{setting.rpartition('.')[2]}`" in said:
                said = _REMEDY.sub(f"Give another: --set {setting}=VALUE.", said)
                raise ParameterError(f"run: --set {setting}={value}: {said}") from wrong


def _features(model: "Pipeline") -> None:
    from sklearn.base import clone

    clone(model).partial_fit([], [])


def _learner(model: "Pipeline") -> None:
    """A row of one feature: learners begin with their first row."""
    import numpy as np
    from sklearn.base import clone

    learner: Any = clone(model.learner)
    if "initial_coef" in learner.get_params():  # its shape is that of the rows
        learner.set_params(initial_coef=None)
    when = {"time": np.datetime64("2000-01-01")} if model.uses_time else {}
    learner.learn_one(np.zeros(1), 0, **when)


def _of(setting: str, part: str) -> bool:
    return setting.partition(".")[0] == part
