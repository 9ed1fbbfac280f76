"""Reproduce: experiments of the papers, their numbers beside ours."""

import os
from inspect import signature
from pathlib import Path
from time import process_time
from typing import Any

from cyclopts import CycloptsError

from onepass.cli.arguments import Count, Names, Quiet
from onepass.cli.terminal import advancing, print_message, show

__all__ = ["reproduce"]


def reproduce(
    name: str | None = None,
    /,
    *,
    draws: Count | None = None,
    scale: float | None = None,
    vigilance: float | None = None,
    streams: Names = (),
    networks: Names = (),
    methods: Names = (),
    processes: Count | None = None,
    out: Path | None = None,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment of a paper and show its numbers beside the published ones.

    Parameters
    ----------
    name
        The experiment; without it, all are listed.
    draws
        How often to draw the data anew, or its order. By default as often as its file says.
    scale
        Of orfit-deep and continual: rows, as a share of those that it has by default.
    vigilance
        Of art-table1 and art-table2: how similar a row must be to move a prototype. By default
        0.5, as in the paper.
    streams
        Of orfit-deep: which of angles, split, rotated and permuted; of continual: which of
        split-mnist, split-fashion-mnist, whole-mnist, whole-fashion-mnist, rotated-mnist,
        permuted-mnist and kin40k. By default all.
    networks
        Of orfit-deep: which of mlp and conv. By default both.
    methods
        Of orfit-deep and continual: which of the methods, as their pages name them. By default
        all.
    processes
        Of orfit-deep, art-table* and continual: runs side by side, each on one thread. By default
        as many as there are cores.
    out
        A folder for the figure, the table, all curves and all numbers. Of continual, which keeps
        each run there when it is done, and goes on with the others when it is called again,
        runs/continual by default.
    quiet
        Show the table alone.
    """
    from onepass_experiments import EXPERIMENTS

    if name is None:
        _list()
        return
    name = _known(name)
    options = {
        "draws": draws, "scale": scale, "streams": streams or None, "networks": networks or None,
        "methods": methods or None, "processes": processes, "vigilance": vigilance,
    }  # fmt: skip
    given = _given(name, options)
    taken = signature(EXPERIMENTS[name]).parameters
    if "path" in taken:
        out = out or Path("runs", name)
        given["path"] = out / "runs"
        print_message(f"Each run is kept in {given['path']}: stopped, it goes on.", quiet=quiet)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    share = [0.0]
    unit = "tasks" if "path" in taken else "runs" if "processes" in taken else "draws"
    with advancing(lambda: share[0], quiet=quiet, unit=unit) as advance:

        def progress(done: int, of: int) -> None:
            """Move the bar on by what is done."""
            share[0] = done / of
            advance(done)

        try:
            outcome = EXPERIMENTS[name](progress=progress, **given)
        except KeyboardInterrupt:
            if "path" in taken:
                print_message("Stopped. The same words go on with what was not done.", quiet=quiet)
            raise
    if out is not None:
        print_message(f"Saved: {', '.join(map(str, outcome.save(out)))}", quiet=quiet)
    show(outcome.table())


def _list() -> None:
    """All experiments, and by what other names they are known."""
    from onepass_experiments import ALIASES, EXPERIMENTS

    for each, experiment in EXPERIMENTS.items():
        show(f"{each:16} {(experiment.__doc__ or '').splitlines()[0]}")
    for other, each in ALIASES.items():
        show(f"{other:16} The same as {each}, as the paper of 2022 counts its figures.")


def _known(name: str) -> str:
    """The name of an experiment by any of its names."""
    from onepass.errors import did_you_mean
    from onepass_experiments import ALIASES, EXPERIMENTS

    name = ALIASES.get(name, name)
    if name not in EXPERIMENTS:
        names = [*EXPERIMENTS, *ALIASES]
        raise CycloptsError(
            msg=f"reproduce: the experiment must be one of {', '.join(names)}, got {name!r}."
            + did_you_mean(name, names)
        )
    return name


def _given(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, of those that the experiment takes; and a clock, if it does."""
    from onepass.errors import did_you_mean
    from onepass_experiments import EXPERIMENTS, OPTION_CHOICES

    taken = set(signature(EXPERIMENTS[name]).parameters)
    given = {option: value for option, value in options.items() if value is not None}
    strange = [option for option in given if option not in taken]
    if strange:
        raise CycloptsError(
            msg=f"reproduce: {name} must have options of its own, got --{strange[0]}, which it "
            "does not take. Leave it out."
        )
    for option, known in OPTION_CHOICES[name]().items() if name in OPTION_CHOICES else ():
        for each in given.get(option, ()):
            if each not in known:
                raise CycloptsError(
                    msg=f"reproduce: --{option} must name some of {', '.join(known)}, got "
                    f"{each!r}.{did_you_mean(each, known) or ' Check the spelling.'}"
                )
    if not given.get("scale", 1.0) > 0.0:
        raise CycloptsError(msg=f"reproduce: --scale must be above 0, got {given['scale']:g}.")
    if "processes" in taken:
        given = {"processes": os.cpu_count() or 1, "clock": process_time} | given
    return given
