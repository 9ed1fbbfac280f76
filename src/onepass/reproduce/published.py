"""Published: what a paper shows in a figure, from files of this package."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["Published", "published"]


@dataclass(frozen=True)
class Published:
    """A curve of a paper.

    Parameters
    ----------
    steps : list of int
        Rows learned so far, rows of later epochs counted again.
    values : list of float
        Means over the runs.
    deviation : float, or None
        Standard deviation over the runs after the last step, where the paper shows it.
    """

    steps: list[int]
    values: list[float]
    deviation: float | None = None


def published(file: str, figure: str) -> tuple[str, Mapping[tuple[str, str], Published]]:
    """What a paper shows in a figure, and where.

    Parameters
    ----------
    file : str
        Such as ``"orfit-published.json"``.
    figure : str
        Such as ``"orfit-fig6"``.

    Returns
    -------
    source : str
    curves : dict of (method, error) to Published

    Examples
    --------
    >>> _, curves = published("orfit-published.json", "orfit-fig7")
    >>> curves["ORFit", "test"].values[-1]
    37.32
    """
    text = files("onepass.reproduce").joinpath(file).read_text(encoding="utf-8")
    tree = json.loads(text)
    curves = {
        (method, error): Published(**curve)
        for method, errors in tree[figure].items()
        for error, curve in errors.items()
    }
    return tree["source"], curves
