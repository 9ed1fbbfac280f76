"""Continual course: learners go through experiences, and are tested after each."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from onepass.errors import Array, OnepassError
from onepass.evaluate.continual_learner import Pupil, silence
from onepass.evaluate.infinite import numbers
from onepass.evaluate.metrics import metric_class
from onepass.stream import Exam, Experience

_WHERE = "op.evaluate.continual"

__all__ = ["Course", "Known", "Rules", "Run", "arriving", "through"]


class Known(Protocol):
    """Experiences that are known beforehand."""

    @property
    def borders(self) -> bool:
        """Whether a learner may be told that an experience ended."""

    def exams(self) -> Iterator[Exam]:
        """All rows to test, task by task."""

    def __iter__(self) -> Iterator[Experience]: ...


@dataclass(frozen=True)
class Run:
    """One learner through all experiences, with one seed.

    Parameters
    ----------
    model : str
        Its name.
    seed : int
        Of what was drawn.
    matrix : list of list of float or None
        After experience i on the rows to test of task j; None where that could not be tested.
    before : list of float or None
        The same before anything was learned.
    when : list of int
        The experience after which task j has been learned, counted from 0.
    rows : int
        Rows learned.
    nbytes : int or None
        Kept from row to row: the most, after any experience and when it ended.
    prototypes : int or None
        How many, if it has any.
    repeated : int or None
        How often a row was learned again; 0 in one pass, None if it does not tell.
    learning, answering : float or None
        Seconds a row; None without a clock.
    stopped : str or None
        Where and why it could not go on; what it knew till then counts.
    notes : list of str
        What is known of its limits in this setting.
    """

    model: str
    seed: int
    matrix: list[list[float | None]]
    before: list[float | None]
    when: list[int]
    rows: int
    nbytes: int | None = None
    prototypes: int | None = None
    repeated: int | None = None
    learning: float | None = None
    answering: float | None = None
    stopped: str | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def restored(cls, tree: Mapping[str, Any]) -> "Run":
        """A run that was written with infinite numbers as text.

        Raises
        ------
        ValueError
            If numbers are not as many as they must be, or none.
        """
        plain = {**tree, "before": numbers(tree["before"])}
        run = cls(**{**plain, "matrix": [numbers(row) for row in tree["matrix"]]})
        _refuse_unlike(run)
        return run


@dataclass(frozen=True)
class Rules:
    """What holds for all runs.

    Parameters
    ----------
    scenario : {"class", "task", "domain"}
    task : {"regression", "classification"}
    metric : str
        Name from ``METRICS[task]``.
    batch, block : int
        Rows a call of networks, and of others.
    clock : callable, optional
        Gives seconds.
    """

    scenario: str
    task: str
    metric: str
    batch: int
    block: int
    clock: Callable[[], float] | None = None


class Course:
    """One learner on its way.

    Parameters
    ----------
    model : learner
        It learns in place.
    rules : Rules
    labels : ndarray or None
        All labels of the stream, if they are known.
    called : str
        What it is, for messages.
    """

    def __init__(self, model: Any, rules: Rules, labels: Array | None, called: str) -> None:
        self.pupil = Pupil(model, labels, rules.batch, rules.block)
        self.rules = rules
        self._called = called
        self._undefined = False
        self.matrix: list[list[float]] = []
        self.before: list[float] = []
        self.stopped: str | None = None
        self.failed: Exception | None = None
        self._took = [0.0, 0.0]
        self._asked = 0
        self._most: int | None = None

    def learn(self, experience: Experience, *, borders: bool) -> None:
        """Learn an experience; a learner that refuses it learns no more."""
        if self.stopped is not None:
            return
        began = self._now()
        try:
            self.pupil.teach(experience.X, experience.y)
            self._weigh()
            if borders:
                self.pupil.end()
                self._weigh()
        except (OnepassError, ValueError, NotImplementedError) as refused:
            self.stopped = f"{experience.name}: {refused}"
            self.failed = refused
        except Exception as wrong:
            wrong.add_note(f"{_WHERE}: {self._called} raised this at {experience.name!r}.")
            raise
        self._took[0] += self._now() - began

    def _weigh(self) -> None:
        """What is let go when a task ends had to be kept till then."""
        size = self.pupil.nbytes
        self._most = size if self._most is None else max(size or 0, self._most)

    def score(self, exam: Exam) -> float:
        """How right it is of the rows to test of a task.

        Who was stopped amid a block, and cannot answer since, says nothing.
        """
        among = exam.classes if self.rules.scenario == "task" and exam.classes else None
        began = self._now()
        try:
            said = self.pupil.say(exam.X, among, exam.y)
        except Exception as wrong:
            if self.stopped is None:
                asked = f"raised this when it was asked about {exam.name!r}"
                wrong.add_note(f"{_WHERE}: {self._called} {asked}.")
                raise
            said = silence(exam.y)
        self._undefined |= said.dtype.kind == "f" and bool(np.isnan(said).any())
        self._took[1] += self._now() - began
        self._asked += len(exam.y)
        metric = metric_class(self.rules.metric, self.rules.task, _WHERE)()
        return float(metric.add(exam.y, said).value)

    def run(self, name: str, seed: int, when: Iterable[int]) -> Run:
        """All of it, told."""
        width = len(self.before)
        rows = [[*row, *[np.nan] * (width - len(row))] for row in self.matrix]
        timed = self.rules.clock is not None
        return Run(
            name,
            seed,
            [[_plain(value) for value in row] for row in rows],
            [_plain(value) for value in self.before],
            list(when),
            self.pupil.rows,
            self._most,
            self.pupil.prototypes,
            self.pupil.repeated,
            self._took[0] / self.pupil.rows if timed and self.pupil.rows else None,
            self._took[1] / self._asked if timed and self._asked else None,
            self.stopped,
            self._notes(),
        )

    def _notes(self) -> list[str]:
        """What is known of the learner's limits, and what it could not be told."""
        known: Mapping[str, str] = getattr(self.pupil.inner, "limits", {})
        scenario = self.rules.scenario
        notes = [known[scenario]] if scenario in known else []
        if scenario == "task" and self.rules.task == "classification" and not self.pupil.masks:
            notes.append("cannot be told a task's classes: it answered among all")
        if self._undefined:
            notes.append("said nan of some rows, of which nothing can be known")
        return notes

    def _now(self) -> float:
        return 0.0 if self.rules.clock is None else self.rules.clock()


def through(courses: Iterable[Course], source: Known, told: Callable[[int], object]) -> None:
    """Learners go through a stream that is known, and are tested on all tasks after each.

    Parameters
    ----------
    courses : iterable of Course
    source : Known
        Such as Experiences.
    told : callable
        Called with the number of experiences learned.
    """
    exams = list(source.exams())
    everyone = list(courses)
    for course in everyone:
        course.before = [course.score(exam) for exam in exams]
    for i, experience in enumerate(source):
        for course in everyone:
            course.learn(experience, borders=source.borders)
            course.matrix.append([course.score(exam) for exam in exams])
        told(i + 1)


def arriving(
    courses: Iterable[Course], source: Iterator[Any], told: Callable[[int], object]
) -> list[str]:
    """Learners go through experiences as they come, and are tested on those that have come.

    Each is said before it is learned, so that what came before is seen to help; nothing is known
    of what is still to come.

    Parameters
    ----------
    courses : iterable of Course
    source : iterator of Experience
    told : callable
        Called with the number of experiences learned.

    Returns
    -------
    names : list of str
        Of the experiences.
    """
    everyone, exams = list(courses), list[Exam]()
    for i, experience in enumerate(source):
        exams.append(
            Exam(experience.name, experience.X_test, experience.y_test, experience.classes)
        )
        for course in everyone:
            first = course.score(exams[-1])
            if i:
                course.matrix[-1].append(first)
            course.before.append(first if i == 0 else np.nan)
            course.learn(experience, borders=True)
            course.matrix.append([course.score(exam) for exam in exams])
        told(i + 1)
    return [exam.name for exam in exams]


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _refuse_unlike(run: Run) -> None:
    sizes = {len(run.when), *map(len, run.matrix)}
    if not run.matrix or sizes != {len(run.before)}:
        raise ValueError("a matrix must have a column for each task")
    if any(i not in range(len(run.matrix)) for i in run.when):
        raise ValueError("`when` must name experiences")
    counts = (run.rows, run.nbytes, run.prototypes, run.repeated, run.learning, run.answering)
    if not all(value is None or isinstance(value, (int, float)) for value in counts):
        raise ValueError("what it took must be numbers")
