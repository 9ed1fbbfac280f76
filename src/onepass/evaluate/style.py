"""Style: how all figures look: fit to print, and told apart by all kinds of eyes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onepass.errors import ParameterError, need
from onepass.serialization.atomic import writing

__all__ = ["COLOURS", "DARK", "DASHES", "GREY", "sheet"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's; black and yellow left out."""

GREY, DARK = "#767676", "#444444"
DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))

_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": DARK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "xtick.major.width": 0.6,
    "xtick.major.size": 3.0,
    "xtick.minor.size": 0.0,
    "ytick.major.width": 0.0,
    "pdf.fonttype": 42,  # letters, not outlines: journals ask for it
    "svg.fonttype": "none",
}


@contextmanager
def sheet(
    size: tuple[float, float],
    path: str | os.PathLike[str] | None,
    where: str,
    layout: str | None = None,
) -> Iterator[Any]:
    """An empty figure to draw on, written when the block ends without an error.

    Settings of matplotlib that the user made are left alone.

    Parameters
    ----------
    size : tuple of float
        Width and height, in inches.
    path : path, optional
        Where to write it: .png, .svg or .pdf.
    where : str
        The public call, for messages.
    layout : str, optional
        Which of matplotlib's layout engines places the axes.

    Yields
    ------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ParameterError
        If the path has a suffix that stands for no kind of figure.
    SourceError
        If the file cannot be written.
    """
    matplotlib = need("matplotlib", extra="plot", where=where)
    figures = need("matplotlib.figure", extra="plot", where=where)
    with matplotlib.rc_context(_SETTINGS):
        figure = figures.Figure(figsize=size, dpi=200, layout=layout)
        if path is not None:
            _check_suffix(figure, path, where)
        yield figure
        if path is not None:
            with writing(path, where):
                figure.savefig(path, bbox_inches="tight", pad_inches=0.04)


def _check_suffix(figure: Any, path: str | os.PathLike[str], where: str) -> None:
    if Path(path).suffix.lower().lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise ParameterError(
            f"{where}: `path` must end in .png, .svg or .pdf, got {os.fspath(path)!r}. "
            "Give the file another name."
        )
