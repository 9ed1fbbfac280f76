"""Shelf: the learners that are served, each with a file of its own in one folder."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any

from onepass.errors import (
    InUseError,
    OnepassError,
    ParameterError,
    StoreError,
    TakenError,
    UnknownError,
)
from onepass.evaluate.drift import hold_suited
from onepass.integrations.river import detectors
from onepass.service.charge import Charge
from onepass.service.diary import Diary
from onepass.service.gauges import Gauges, task_of
from onepass.service.holding import unheld
from onepass.service.opening import durable
from onepass.service.policy import Watcher
from onepass.service.served import Served
from onepass.service.sources import Source

__all__ = ["Shelf"]

_LOG = logging.getLogger("onepass.service")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ENDING = ".db"
_RETIRED = ".retired"
_GAUGES = ".gauges"
_OF_ONE = ("", "-wal", _GAUGES, _ENDING)  # the files that a name may have


class Shelf:
    """Named learners.

    Parameters
    ----------
    folder : path-like
        Made if it is not there.
    where : str
        The public call, for messages.
    window : int
        Rows of the recent error.
    drift : iterable of str
        River's detectors, by name; those that count mistakes watch classifiers alone.
    most_waiting : int
        Rows that may wait to be learned, for each learner.
    **options
        For :func:`onepass.service.durable`.

    Attributes
    ----------
    failed : dict of str to str
        The learners whose files could not be opened, and the reasons. They are not served until
        ``load`` opens them.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        where: str,
        *,
        window: int = 1000,
        drift: tuple[str, ...] = (),
        most_waiting: int = 1 << 16,
        **options: Any,
    ) -> None:
        self.folder, self.where = Path(folder), where
        self._window, self._drift, self._most = window, drift, most_waiting
        self._options = options
        self._served: dict[str, Served] = {}
        self.failed: dict[str, str] = {}
        self._sources: list[tuple[str, Source, Any]] = []
        self._turn = RLock()
        self._retiring = RLock()  # taken before the other
        self._going: str | None = None  # what is being retired
        detectors(drift, where)  # unknown names are refused before anything is opened
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise StoreError(
                f"{where}: {folder} must be a folder, or one that can be made, got: "
                f"{failed.strerror}. Choose another."
            ) from failed

    def open_all(self) -> None:
        """Open all files in the folder; a file that cannot be opened is noted in ``failed``.

        Raises
        ------
        ParameterError
            If a detector counts mistakes where a learner makes none.
        InUseError
            If another process holds a file: most likely a second service of the same folder.
        """
        try:
            for path in sorted(self.folder.glob(f"*{_ENDING}")):
                if path.stem in self._served or not _NAME.fullmatch(path.stem):
                    continue
                try:
                    self._open(path.stem, None)
                except (InUseError, ParameterError):
                    raise
                except Exception as wrong:  # noqa: BLE001  one file does not stop the others
                    self._fail(path.stem, wrong)
        except BaseException:
            self.close()
            raise

    def load(self, name: str) -> Served:
        """Open a learner that failed, or a file that is not served yet.

        A learner that can learn is returned unchanged. One that cannot goes on predicting, also if
        its file cannot be opened again.

        Raises
        ------
        UnknownError
            If there is neither a learner nor a file of this name.
        StoreError
            If the file cannot be opened.
        """
        with self._retiring, self._turn:
            before = self._served.get(name)
            if before is not None:
                with suppress(StoreError):
                    before.hold_ready()
                    return before
            elif not (_NAME.fullmatch(name) and os.path.lexists(self._path(name))):
                self.failed.pop(name, None)
                return self[name]  # raises
            try:
                if before is not None:
                    before.close()
                return self._open(name, None)
            except Exception as wrong:
                if before is not None:
                    before.failed = str(wrong) or repr(wrong)
                    raise
                self._fail(name, wrong)
                return self[name]  # raises

    def feed(self, name: str, source: Source, log: Any = None) -> None:
        """Learn from a source, now or when the file of the learner is opened.

        Parameters
        ----------
        name, source, log
            As for :meth:`.Served.feed`.
        """
        if name in self._served:
            self._served[name].feed(source, log)
        self._sources.append((name, source, log))

    def create(self, name: str, model: Any, *, there: bool = False) -> Served:
        """Serve a new learner.

        Parameters
        ----------
        name : str
            1 to 100 letters, digits, ``_``, ``.`` and ``-``; a letter or digit first.
        model : learner or Pipeline
        there : bool, default False
            Whether it may be there already: then what is there goes on.

        Raises
        ------
        TakenError
            If there is one of this name.
        ParameterError
            If it is no name, or a detector counts mistakes where the learner makes none.
        TypeMismatchError, StoreError
            As ``op.durable``.
        """
        if not _NAME.fullmatch(name):
            raise ParameterError(
                f"{self.where}: a name must be 1 to 100 letters, digits, '_', '.' and '-', a "
                f"letter or digit first, got {name[:120]!r}. Choose another."
            )
        with self._turn:
            if name in self._served and there:
                self._served[name].durable.hold_like(model)
                return self._served[name]
            if (
                name in self._served
                or name == self._going
                or (not there and os.path.lexists(self._path(name)))
            ):
                raise TakenError(
                    f"{self.where}: there must be no learner {name!r} yet, but there is. Choose "
                    "another name, or retire it first."
                )
            return self._open(name, model)

    def retire(self, name: str) -> Path:
        """Stop serving a learner; its file is renamed, and the new path returned.

        Raises
        ------
        UnknownError
            If there is none of this name.
        StoreError
            If its file was moved or removed, or another stands there: then it goes on answering.
        """
        with self._retiring:
            with self._turn:
                if name in self.failed and os.path.lexists(self._path(name)):
                    with unheld(self._path(name), self.where):
                        moved = self._moved(name)
                    del self.failed[name]
                    return moved
                served = self[name]
                served.durable.hold_in_place()  # nor is another's file taken for its own
                self._going = name
                del self._served[name]
            try:
                served.close()  # what waits may take long: others are made meanwhile
                return self._moved(name)
            except BaseException:
                self._served[name] = served
                raise
            finally:
                self._going = None

    def _moved(self, name: str) -> Path:
        """Rename the files of a learner, and return the new path."""
        old, new = self._path(name), self._free(name)
        old.rename(new)
        with suppress(FileNotFoundError):  # of a full disk: what the file has had no room for
            Path(f"{old}-wal").rename(f"{new}-wal")
        with suppress(OSError):
            (self.folder / f"{name}{_GAUGES}").rename(f"{new}{_GAUGES}")
        with suppress(OSError):
            Path(f"{old}.lock").unlink()
        return new

    def close(self) -> None:
        """Stop all; what waits is learned first."""
        with self._retiring, self._turn:
            closing, self._served = self._served, {}
            with ExitStack() as all_of_them:  # one that fails does not keep others open
                for served in closing.values():
                    all_of_them.callback(served.close)

    def __getitem__(self, name: str) -> Served:
        found = self._served.get(name)
        if found is None and name in self.failed:
            raise StoreError(
                f"{name}: its file must be one that can be opened, got: {self.failed[name]} Once "
                "that is fixed, load the model again; or DELETE it, which renames the file: see "
                "/openapi.json."
            )
        if found is None:
            raise UnknownError(
                f"there must be a learner of the name asked for, got {name[:120]!r}; "
                "GET /v2/repository/index lists those that there are."
            )
        return found

    @property
    def names(self) -> list[str]:
        """The names of all learners, also of those whose files could not be opened."""
        return [*self._served, *self.failed]

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._served.values()))

    def __len__(self) -> int:
        return len(self._served)

    def _fail(self, name: str, wrong: Exception) -> None:
        """Note and log that a file could not be opened."""
        self.failed[name] = str(wrong) or repr(wrong)
        told = {"name": name, "reason": self.failed[name]}
        unexpected = None if isinstance(wrong, OnepassError) else wrong
        _LOG.error("a learner cannot be opened", exc_info=unexpected, extra={"told": told})

    def _free(self, name: str) -> Path:
        """Where nothing is of one that was retired, nor of one that is served by that name."""
        names = (f"{name}{_RETIRED}-{number}" for number in count(1))
        return next(
            self.folder / new
            for new in names
            if not any((self.folder / f"{new}{end}").exists() for end in _OF_ONE)
        )

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _detectors(self, name: str, learner: Any) -> dict[str, Any]:
        """New detectors for a learner; refused if they do not suit it."""
        chosen = detectors(self._drift, self.where)
        hold_suited(chosen, task_of(learner), f"{self.where}: {name}")
        return chosen

    def _open(self, name: str, model: Any) -> Served:
        gauges: list[Gauges] = []

        def watched(learner: Any) -> Watcher:
            chosen = self._detectors(name, learner)
            gauges.append(Gauges(learner, window=self._window, detectors=chosen))
            return gauges[0].learned

        if model is not None:  # what is refused leaves no file
            self._detectors(name, Charge.of(model, self.where).learner)
        held = durable(self._path(name), model, watch=watched, **self._options)
        diary = Diary(self.folder / f"{name}{_GAUGES}")
        diary.read(gauges[0], held.rows_seen)
        served = Served(name, held, gauges[0], diary, most_waiting=self._most)
        try:
            for fed, source, log in self._sources:
                if fed == name and model is None:  # not of a new learner of this name
                    served.feed(source, log)
        except BaseException:
            served.close()
            raise
        self._served[name] = served
        self.failed.pop(name, None)
        return served
