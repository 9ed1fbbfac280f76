"""Experiments of the papers, one file each, run by ``onepass reproduce NAME``.

Each experiment is a function whose keyword arguments default to the paper's settings. It returns an
:class:`~onepass_experiments.outcome.Outcome`: a table, JSON and a figure that show the published
numbers beside the reproduced ones.
"""

from collections.abc import Callable

from onepass_experiments.art_ipca import ArtOutcome, art_table1, art_table2, art_tables
from onepass_experiments.continual import ContinualOutcome, continual
from onepass_experiments.orfit import RotatedDigits, orfit_figure6, orfit_figure7
from onepass_experiments.orfit_deep import choose_settings, orfit_deep
from onepass_experiments.orfit_deep_outcome import DeepOutcome
from onepass_experiments.outcome import Outcome

__all__ = [
    "ALIASES",
    "EXPERIMENTS",
    "ArtOutcome",
    "ContinualOutcome",
    "DeepOutcome",
    "Outcome",
    "RotatedDigits",
    "art_table1",
    "art_table2",
    "art_tables",
    "choose_settings",
    "continual",
    "orfit_deep",
    "orfit_figure6",
    "orfit_figure7",
]

# name on the command line -> function that runs the experiment
EXPERIMENTS: dict[str, Callable[..., Outcome | DeepOutcome | ArtOutcome | ContinualOutcome]] = {
    "orfit-fig6": orfit_figure6,
    "orfit-fig7": orfit_figure7,
    "orfit-deep": orfit_deep,
    "art-table1": art_table1,
    "art-table2": art_table2,
    "continual": continual,
}

# figure number in CDC 2022 -> the same figure in the extended paper
ALIASES: dict[str, str] = {
    "orfit-2022-fig2": "orfit-fig6",
    "orfit-2022-fig3": "orfit-fig7",
}
