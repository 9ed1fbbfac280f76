"""ART-IPCA on Split MNIST and Split Fashion-MNIST: Tables 1 and 2 of its paper.

Five tasks of two classes each, 2,000 rows of a class to learn and 500 to test, pixels from 0 to 1,
in one pass. Accuracy is that of each task's rows to test after the last task, averaged over tasks:
among all ten classes (Table 1), or among the two of the task (Table 2).

The paper's runs differ in the order of a task's rows, and in nothing else ([1] A.5.4); which rows
of a class it took, it does not say. Here each run draws its own, to learn and to test. Its IPCA is
given all rows of a task before prototypes are learned; *rows as they come* is the same without
tasks. Methods are compared on the same rows in the same order, so that a paired t-test tells
whether they differ by more than chance ([1] A.5.2).

[1] N. Ashtekar, V. Honavar, "A simple, fast algorithm for continual learning from high-dimensional
    data", ICLR 2023, Tiny Papers.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from onepass import validation
from onepass.reproduce.art_outcome import ArtOutcome, Entry
from onepass.reproduce.art_runs import WAYS, Found, Job, Setting, done
from onepass.stream import Images
from onepass.stream import images as images_of

__all__ = ["art_table1", "art_table2", "art_tables"]

Progress: TypeAlias = Callable[[int, int], object]
Clock: TypeAlias = Callable[[], float]

_DATA = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}

PAPER: dict[int, dict[str, dict[str, tuple[float, float]]]] = {
    1: {
        "MNIST": {
            "No PCA": (92.99, 0.41),
            "IPCA": (94.03, 0.26),
            "Static PCA": (94.04, 0.24),
        },
        "Fashion-MNIST": {
            "No PCA": (76.09, 0.50),
            "IPCA": (77.56, 0.60),
            "Static PCA": (77.48, 0.39),
        },
    },
    2: {
        "MNIST": {
            "No PCA": (99.47, 0.05),
            "IPCA": (99.46, 0.07),
            "Static PCA": (99.41, 0.06),
        },
        "Fashion-MNIST": {
            "No PCA": (98.86, 0.09),
            "IPCA": (98.86, 0.10),
            "Static PCA": (98.79, 0.13),
        },
    },
}
"""Table -> data -> method -> accuracy and its standard deviation over 25 runs, percent ([1])."""


def art_table1(
    images: dict[str, Images] | None = None,
    *,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ArtOutcome:
    """ART-IPCA, classes told apart among all ten: Table 1 of its paper.

    Parameters
    ----------
    images : dict of str to Images, optional
        ``"MNIST"`` and ``"Fashion-MNIST"``, or one of them; both as ``op.stream.images`` finds
        them, if not given.
    draws : int, default=25
        Runs, each of rows drawn anew.
    seed : int, default=0
        Of all that is drawn.
    vigilance : float, default=0.5
        ρ.
    processes : int, default=1
        In which runs are made side by side, each on one thread. With more than 1, a script needs
        ``if __name__ == "__main__":`` around its work, and the clock must be a named function.
    clock : callable, optional
        Gives seconds, to tell how long learning takes.
    progress : callable, optional
        Called with the runs done and their number.

    Returns
    -------
    outcome : ArtOutcome

    Raises
    ------
    ParameterError
        If a number is out of range.
    SourceError
        If a data set cannot be had.
    """
    given = (images, draws, seed, vigilance, processes, clock, progress)
    return _tables("art_table1", *given)[0]


def art_table2(
    images: dict[str, Images] | None = None,
    *,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ArtOutcome:
    """ART-IPCA, classes told apart among the two of a task: Table 2 of its paper.

    Parameters
    ----------
    images, draws, seed, vigilance, processes, clock, progress
        As in :func:`art_table1`; the runs are the same.

    Returns
    -------
    outcome : ArtOutcome

    Raises
    ------
    ParameterError, SourceError
        As there.
    """
    given = (images, draws, seed, vigilance, processes, clock, progress)
    return _tables("art_table2", *given)[1]


def art_tables(
    images: dict[str, Images] | None = None,
    *,
    draws: int = 25,
    seed: int = 0,
    vigilance: float = 0.5,
    processes: int = 1,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> tuple[ArtOutcome, ArtOutcome]:
    """Tables 1 and 2 from the same runs.

    Parameters
    ----------
    images, draws, seed, vigilance, processes, clock, progress
        As in :func:`art_table1`.

    Returns
    -------
    outcomes : two of ArtOutcome

    Raises
    ------
    ParameterError, SourceError
        As there.
    """
    return _tables("art_tables", images, draws, seed, vigilance, processes, clock, progress)


def _tables(
    where: str,
    images: dict[str, Images] | None,
    draws: int,
    seed: int,
    vigilance: float,
    processes: int,
    clock: Clock | None,
    progress: Progress | None,
) -> tuple[ArtOutcome, ArtOutcome]:
    validation.whole(draws, "draws", where, low=1)
    validation.whole(processes, "processes", where, low=1)
    validation.in_range(vigilance, "vigilance", where, low=-1.0, high=1.0)
    validation.whole(seed, "seed", where, low=0)
    known = images if images is not None else {name: images_of(of) for name, of in _DATA.items()}
    jobs = [Job(data, way, run) for data in known for run in range(draws) for way in WAYS]
    runs: dict[tuple[str, str], dict[int, Found]] = {}
    setting = Setting(known, seed, vigilance, clock)
    for count, (job, found) in enumerate(done(jobs, setting, processes), 1):
        runs.setdefault((job.data, job.method), {})[job.run] = found
        if progress is not None:
            progress(count, len(jobs))
    setup = {"draws": draws, "seed": seed, "vigilance": vigilance}
    one, two = (
        ArtOutcome(
            f"art-table{number}",
            f"ART-IPCA, {heads}: accuracy after the last task, %",
            setup,
            tuple(
                _entry(number, data, way, [runs[data, way][run] for run in range(draws)])
                for data in known
                for way in WAYS
            ),
        )
        for number, heads in ((1, "single-headed"), (2, "multi-headed"))
    )
    return one, two


def _entry(number: int, data: str, way: str, runs: Sequence[Found]) -> Entry:
    seconds = [one.seconds for one in runs if one.seconds is not None]
    return Entry(
        data,
        way,
        PAPER[number].get(data, {}).get(way),
        [one.single if number == 1 else one.multi for one in runs],
        float(np.mean([one.prototypes for one in runs])),
        max(one.nbytes for one in runs),
        max(one.compact for one in runs),
        float(np.mean(seconds)) if seconds else None,
    )
