"""Reproduce: experiments of the papers, one file each, run by ``onepass reproduce NAME``.

Each is a function that takes keyword arguments with defaults as in the paper, and gives an
:class:`~onepass_experiments.outcome.Outcome`: a table, JSON and a figure with the paper's numbers
beside ours.
"""

from collections.abc import Callable

from onepass_experiments.art_ipca import ArtOutcome, art_table1, art_table2, art_tables
from onepass_experiments.continual import ContinualOutcome, continual, continual_names
from onepass_experiments.orfit import RotatedDigits, orfit_figure6, orfit_figure7
from onepass_experiments.orfit_deep import choose_settings, known_names, orfit_deep
from onepass_experiments.orfit_deep_outcome import DeepOutcome
from onepass_experiments.outcome import Outcome

__all__ = [
    "ALIASES",
    "EXPERIMENTS",
    "OPTION_CHOICES",
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

# name on the command line -> what it runs
EXPERIMENTS: dict[str, Callable[..., Outcome | DeepOutcome | ArtOutcome | ContinualOutcome]] = {
    "orfit-fig6": orfit_figure6,
    "orfit-fig7": orfit_figure7,
    "orfit-deep": orfit_deep,
    "art-table1": art_table1,
    "art-table2": art_table2,
    "continual": continual,
}

# name on the command line -> what its options may name
OPTION_CHOICES: dict[str, Callable[[], dict[str, list[str]]]] = {
    "orfit-deep": known_names,
    "continual": continual_names,
}

# the numbering of CDC 2022 -> the same figure of the extended paper
ALIASES: dict[str, str] = {
    "orfit-2022-fig2": "orfit-fig6",
    "orfit-2022-fig3": "orfit-fig7",
}
