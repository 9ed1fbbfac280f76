"""Usage: what is wrong in the words of a command, told apart from what fails while it works."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cyclopts import CycloptsError

__all__ = ["MOST_WAITING", "fit_together", "known_measures", "timed", "usage"]

MOST_WAITING = 100_000
"""Rows that may wait for their answers, unless --most-waiting says otherwise."""

_RUN = "--save, the file of the run that is to be "
_OPTIONS = {"types": "type"}  # parameters of the library whose options have another name


@contextmanager
def usage(command: str) -> Iterator[None]:
    """A name or a value that is refused within this context is wrong usage.

    Parameters
    ----------
    command : str
        Whose words they are.

    Raises
    ------
    CycloptsError
        In place of the ParameterError or the ColumnError that was raised, in the command's words.
    """
    from onepass.errors import ColumnError, ParameterError

    try:
        yield
    except (ColumnError, ParameterError) as wrong:
        said = str(wrong)
        if said.startswith("op.stream"):  # whose parameters are options here
            said = re.sub(r"`(\w+)`", lambda found: _option(found[1]), said)
        said = re.sub(r"^op\.(stream[.\w]*|models|durable)", command, said)
        raise CycloptsError(msg=said) from wrong


def fit_together(given: dict[str, Any]) -> None:
    """Refuse options of ``run`` that cannot be meant together.

    Parameters
    ----------
    given : dict of str to Any
        Options by name, those that were not given as None, False or 0.

    Raises
    ------
    CycloptsError
        If one lacks another, or contradicts it.
    """
    for one, other, why in (
        ("resume", "restart", "--resume goes on with a run and --restart loses it"),
        ("delay", "delay_until", "--delay and --delay-until both say when answers are known"),
        ("resume", "drift", "--drift watches from the first row on, and --resume begins later"),
    ):
        if given[one] and given[other]:
            raise CycloptsError(msg=f"run: {why}, got both. Give one.")
    if given["delay"] > (most := given["most_waiting"] or MOST_WAITING):
        raise CycloptsError(
            msg=f"run: --delay must be at most --most-waiting, {most:,} rows, got "
            f"{given['delay']:,}. Give a higher --most-waiting if there is memory for them."
        )
    waits = given["delay"] or given["delay_until"]
    for option, alone, needed in (
        ("--onward", given["onward"] and not given["resume"], "--resume"),
        ("--resume", given["resume"] and not given["save"], f"{_RUN}resumed"),
        ("--restart", given["restart"] and not given["save"], f"{_RUN}begun anew"),
        ("--checkpoint", given["checkpoint"] is not None and not given["save"], f"{_RUN}kept"),
        ("--most-waiting", given["most_waiting"] and not waits, "--delay or --delay-until"),
    ):
        if alone:
            raise CycloptsError(msg=f"run: {option} needs {needed}.")


def timed(stream: Any, delay_until: str | None) -> None:
    """Refuse answers that are known at a time, where nobody says when rows come.

    Parameters
    ----------
    stream : Stream
    delay_until : str or None
        As it was given.

    Raises
    ------
    CycloptsError
        If the stream has no times.
    """
    if delay_until and stream.time is None:
        raise CycloptsError(
            msg="run: --delay-until needs --time, the column that says when a row came."
        )


def known_measures(
    metrics: Sequence[str], drift: Sequence[str], models: Sequence[str], task: str
) -> Any:
    """The detectors of drift; they and the metrics are known before the pass to suit the task.

    Parameters
    ----------
    metrics, drift, models : sequence of str
        Names, as they were given.
    task : {"regression", "classification"}
        What the models do.

    Returns
    -------
    dict of str to detector, or None where none was asked for

    Raises
    ------
    ParameterError
        If a name is unknown, or of the other task.
    MissingExtraError
        If detectors are asked for and River is not installed.
    """
    from onepass.evaluate.drift import watch
    from onepass.evaluate.metrics import metric_class
    from onepass.integrations.river import detectors

    for name in metrics:
        metric_class(name, task, "run: --metrics")
    if not drift:
        return None
    chosen = detectors(drift, "run: --drift")
    watch(chosen, models, task, "run: --drift", resumed=False)
    return chosen


def _option(parameter: str) -> str:
    return f"--{_OPTIONS.get(parameter, parameter).replace('_', '-')}"
