"""Saving: the files in which a run leaves its models, and where it stands."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepass.cli.terminal import remark

if TYPE_CHECKING:
    from onepass.evaluate.resume import Standing

__all__ = ["files", "kept", "resumable", "run_file", "save_models"]


def files(save: Path, models: Sequence[str]) -> dict[str, Path]:
    """A file for each model, in a folder that is there: known before the pass, not after it.

    Parameters
    ----------
    save : Path
        As it was given.
    models : sequence of str
        The models' names.

    Raises
    ------
    ParameterError
        If it is a folder, or in one that cannot be written to.
    """
    from onepass.errors import ParameterError

    save.parent.mkdir(parents=True, exist_ok=True)
    if save.is_dir() or not os.access(save.parent, os.W_OK):
        raise ParameterError(
            f"run: --save must name a file, in a folder that can be written to, got {save}. "
            "Give the file's name too, such as m.onepass, or another folder."
        )
    if len(models) == 1:
        return {models[0]: save}
    return {name: save.with_name(f"{save.stem}-{name}{save.suffix}") for name in models}


def run_file(save: Path) -> Path:
    """Where it is kept how far a run has come.

    Parameters
    ----------
    save : Path
        As it was given.
    """
    return save.with_name(f"{save.name}.run")


def resumable(save: Path | None, *, resume: bool, restart: bool, quiet: bool) -> "Standing | None":
    """Where the run stands that is to be resumed, if there is one.

    Parameters
    ----------
    save : Path or None
        As it was given.
    resume : bool
        Whether to go on with it.
    restart : bool
        Whether it may be lost.
    quiet : bool
        Do not say that there is none.

    Raises
    ------
    ParameterError
        If an unfinished run would be lost.
    CheckpointError
        If the file is damaged.
    """
    from onepass.errors import CheckpointError, ParameterError
    from onepass.evaluate import standing

    if save is None or (restart and not resume):
        return None
    place = run_file(save)
    try:
        stood = standing(place)
    except CheckpointError as damaged:
        raise CheckpointError(f"{damaged} Or lose it by --restart.") from damaged
    if resume:
        if stood is None:
            remark(f"Nothing to resume, there is no {place}: begun anew.", quiet=quiet)
        return stood
    if stood is not None and not stood.finished:
        raise ParameterError(
            f"run: {place} must not hold an unfinished run, got one of {stood.rows:,} rows of "
            f"{stood.source}. Go on with it by --resume, lose it by --restart, or --save elsewhere."
        )
    return None


def kept(save: Path | None, before: tuple[int, int] | None, rows: int, *, finished: bool) -> bool:
    """Whether the run's file says what has come of it; if not, say so.

    Parameters
    ----------
    save : Path or None
        As it was given; then there is nothing to keep.
    before : tuple or None
        The stamp of the file before the run.
    rows : int
        Rows said.
    finished : bool
        Whether the source had come to its end.
    """
    from onepass.errors import CheckpointError
    from onepass.evaluate import standing
    from onepass.serialization.atomic import stamp

    if save is None or not rows:
        return True
    place = run_file(save)
    try:
        stood = standing(place) if stamp(place) != before else None
    except CheckpointError:
        stood = None
    if stood is not None and (stood.rows, stood.finished) == (rows, finished):
        return True
    remark(f"onepass: {place} could not be written: the run cannot be resumed.")
    return False


def save_models(models: Mapping[str, Any], places: Mapping[str, Path], *, quiet: bool) -> None:
    """Save each model to its file; Ctrl-C waits for them.

    Parameters
    ----------
    models : mapping of str to Pipeline
        What was learned.
    places : mapping of str to Path
        As ``files`` gave them.
    quiet : bool
        Say nothing of it.
    """
    from onepass.interrupt import Interrupt
    from onepass.serialization.models import save

    with Interrupt().held():
        for name, place in places.items():
            save(models[name], place)
            remark(f"Saved {name}: {place}", quiet=quiet)
