"""Reproduce: experiments of the papers, their numbers beside ours."""

from pathlib import Path
from typing import Any

from cyclopts import CycloptsError

from onepass.cli.arguments import Count, Quiet
from onepass.cli.terminal import advancing, remark, show

__all__ = ["reproduce"]


def reproduce(
    name: str | None = None,
    /,
    *,
    draws: Count | None = None,
    out: Path | None = None,
    quiet: Quiet = False,
) -> None:
    """Repeat an experiment of a paper and show its numbers beside the published ones.

    Parameters
    ----------
    name
        The experiment; without it, all are listed.
    draws
        How often to draw the data anew. By default as often as its file says.
    out
        A folder for the figure, the table and all numbers.
    quiet
        Show the table alone.
    """
    from onepass.reproduce import EXPERIMENTS

    if name is None:
        for each, experiment in EXPERIMENTS.items():
            show(f"{each:12} {(experiment.__doc__ or '').splitlines()[0]}")
        return
    if name not in EXPERIMENTS:
        from onepass.spelling import meant

        raise CycloptsError(
            msg=f"reproduce: the experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}."
            + meant(name, EXPERIMENTS)
        )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {} if draws is None else {"draws": draws}
    share = [0.0]
    with advancing(lambda: share[0], quiet=quiet, unit="draws") as advance:

        def progress(done: int, of: int) -> None:
            """Move the bar on by what is done."""
            share[0] = done / of
            advance(done)

        outcome = EXPERIMENTS[name](progress=progress, **given)
    if out is not None:
        remark(f"Saved: {', '.join(map(str, outcome.save(out)))}", quiet=quiet)
    show(outcome.table())
