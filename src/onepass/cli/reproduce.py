"""Command ``reproduce``: repeat experiments of papers, and compare with published numbers."""

import os
from inspect import signature
from pathlib import Path
from time import process_time
from typing import Any

from cyclopts import CycloptsError

from onepass.cli.arguments import Count, Names, Quiet
from onepass.cli.terminal import advancing, print_message, show


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
    """Repeat an experiment of a paper, and compare the results with the published numbers.

    Parameters
    ----------
    name
        Name of the experiment; without a name, all experiments are listed.
    draws
        Number of random draws of the data or of its order. The default depends on the experiment.
    scale
        orfit-deep, continual: number of rows, as a fraction of the default.
    vigilance
        art-table1, art-table2: vigilance of ART-IPCA, the similarity above which a row updates a
        prototype (default 0.5, as in the paper).
    streams
        orfit-deep: any of angles, split, rotated and permuted. continual: any of split-mnist,
        split-fashion-mnist, whole-mnist, whole-fashion-mnist, rotated-mnist, permuted-mnist and
        kin40k. art-table1, art-table2: mnist, fashion-mnist. All by default.
    networks
        orfit-deep: mlp, conv or both (default).
    methods
        orfit-deep, continual: any of the methods in the tables of results. All by default.
    processes
        orfit-deep, art-table1, art-table2, continual: number of processes, each with one thread.
        The number of cores by default.
    out
        Folder for the figure (PNG), the table (Markdown), all curves (CSV) and all numbers (JSON).
        continual stores each finished run there, continues when called again, and has the default
        runs/continual.
    quiet
        Print only the table.
    """
    from onepass_experiments import EXPERIMENTS

    if name is None:
        _list()
        return
    name = _experiment_name(name)
    options = {
        "draws": draws, "scale": scale, "streams": streams or None, "networks": networks or None,
        "methods": methods or None, "processes": processes, "vigilance": vigilance,
    }  # fmt: skip
    arguments = _options(name, options)
    parameters = signature(EXPERIMENTS[name]).parameters
    if "path" in parameters:
        out = out or Path("runs", name)
        arguments["path"] = out / "runs"
        print_message(f"Finished runs are stored in {arguments['path']}.", quiet=quiet)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    fraction = [0.0]
    unit = "tasks" if "path" in parameters else "runs" if "processes" in parameters else "draws"
    with advancing(lambda: fraction[0], quiet=quiet, unit=unit) as advance:

        def progress(done: int, of: int) -> None:
            """Update the bar."""
            fraction[0] = done / of
            advance(done)

        try:
            outcome = EXPERIMENTS[name](progress=progress, **arguments)
        except KeyboardInterrupt:
            if "path" in parameters:
                print_message("Interrupted. Run the same command to continue.", quiet=quiet)
            raise
    if out is not None:
        print_message(f"Saved: {', '.join(map(str, outcome.save(out)))}", quiet=quiet)
    show(outcome.table())


def _list() -> None:
    """List all experiments and aliases."""
    from onepass_experiments import ALIASES, EXPERIMENTS

    for each, experiment in EXPERIMENTS.items():
        show(f"{each:16} {(experiment.__doc__ or '').splitlines()[0]}")
    for other, each in ALIASES.items():
        show(f"{other:16} Alias of {each}, in the numbering of the paper of 2022.")


def _experiment_name(name: str) -> str:
    """Check the name of an experiment; replace an alias."""
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


def _options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check the options of an experiment; add default processes and clock."""
    from onepass.errors import did_you_mean
    from onepass_experiments import EXPERIMENTS
    from onepass_experiments.art_ipca import art_names
    from onepass_experiments.continual import continual_names
    from onepass_experiments.orfit_deep import option_names

    choices = {
        "orfit-deep": option_names, "continual": continual_names,
        "art-table1": art_names, "art-table2": art_names,
    }  # fmt: skip
    accepted = set(signature(EXPERIMENTS[name]).parameters)
    given = {option: value for option, value in options.items() if value is not None}
    unknown = [option for option in given if option not in accepted]
    if unknown:
        raise CycloptsError(msg=f"reproduce: {name} does not accept --{unknown[0]}. Omit it.")
    for option, names in choices[name]().items() if name in choices else ():
        for each in given.get(option, ()):
            if each not in names:
                raise CycloptsError(
                    msg=f"reproduce: --{option} must be any of {', '.join(names)}, got "
                    f"{each!r}.{did_you_mean(each, names) or ' Check the spelling.'}"
                )
    if not given.get("scale", 1.0) > 0.0:
        raise CycloptsError(msg=f"reproduce: --scale must be above 0, got {given['scale']:g}.")
    if "processes" in accepted:
        given = {"processes": os.cpu_count() or 1, "clock": process_time} | given
    return given
