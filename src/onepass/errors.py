"""Everything onepass raises, as one tree.

::

    OnepassError
    ├── ShapeError            (ValueError)      an array's dimensions or columns do not fit
    ├── NotFiniteError        (ValueError)      nan or infinity where a number belongs
    ├── TypeMismatchError     (TypeError, ValueError)  text, objects, sparse or complex numbers
    ├── ParameterError        (ValueError)      a hyperparameter outside its range
    ├── LabelError            (ValueError)      labels that no classifier can tell apart
    ├── ColumnError           (KeyError, ValueError)  a named column is missing or unknown
    ├── NumericalError        (ArithmeticError) numbers that float64 cannot hold
    ├── ModuleError           (RuntimeError)    a network's own forward raised at a row
    ├── NotFittedError        (sklearn.exceptions.NotFittedError)  asked before anything was learned
    ├── SourceError           (OSError, ValueError)  a stream cannot be opened or read
    ├── CheckpointError       (ValueError)      a model file is damaged, hostile or too new
    ├── MergeError            (ValueError)      what two learners learned cannot be made one
    ├── ProcessError          (RuntimeError)    a process was gone before its work was done
    ├── StoreError            (OSError)         a durable learner's file cannot be opened or written
    │   ├── LockedError        (OSError)         another process holds it
    │   └── CorruptStoreError      (ValueError)      it is not as it was written
    ├── ServiceError          (RuntimeError)    what a service has answered its client instead
    ├── NotFoundError          (LookupError)     there is nothing of the name that was asked for
    ├── AlreadyExistsError            (ValueError)      there is something of that name already
    ├── MethodNotAllowedError           (LookupError)     a path is there, but not by this method
    ├── UnauthorizedError     (PermissionError) no token came, or an unknown one
    ├── ForbiddenError        (PermissionError) a token has not the role
    ├── BusyError             (RuntimeError)    more rows wait to be learned than may
    ├── CommitTimeoutError          (TimeoutError)    rows are not known to be on the disk in time
    ├── PayloadTooLargeError             (ValueError)      a request's body is longer than may be
    ├── IdempotencyConflictError        (ValueError)      an idempotency key came with another request
    ├── RequestError          (ValueError)      a request's bytes are not what they should be
    └── MissingExtraError     (ImportError)     an optional package is not installed

    UserWarning
    ├── CheckpointWarning                       a checkpoint was not written; learning goes on
    ├── LargeStateWarning                       a learner's state will take gigabytes
    ├── MemoryFullWarning                       a memory holds all directions
    ├── MergeWarning                            two networks know what hardly goes together
    ├── MixedColumnWarning                      a column of numbers or dates is text
    ├── ModuleModeWarning                       a network in training mode is asked as in evaluation
    ├── RowsRefusedWarning                      rows that were not learned
    └── TaskWarning                             a task is over, and nothing was kept of it as such

Each message has four parts: where, what was expected, what came, what to do.
Whatever is raised while learning, the learner stays exactly as it was.

The module also has the suggestions for misspelt names, and the import of optional packages, whose
error names the extra.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

__all__ = [
    "BusyError",
    "CheckpointError",
    "CheckpointWarning",
    "ColumnError",
    "CorruptStoreError",
    "ForbiddenError",
    "LockedError",
    "IdempotencyConflictError",
    "LabelError",
    "LargeStateWarning",
    "PayloadTooLargeError",
    "MemoryFullWarning",
    "MergeError",
    "MergeWarning",
    "MethodNotAllowedError",
    "MissingExtraError",
    "MixedColumnWarning",
    "ModuleError",
    "ModuleModeWarning",
    "NotFiniteError",
    "NotFittedError",
    "NumericalError",
    "OnepassError",
    "ParameterError",
    "CommitTimeoutError",
    "ProcessError",
    "RequestError",
    "RowsRefusedWarning",
    "ServiceError",
    "ShapeError",
    "SourceError",
    "StoreError",
    "AlreadyExistsError",
    "TaskWarning",
    "TypeMismatchError",
    "UnauthorizedError",
    "NotFoundError",
    "listed",
    "meant",
    "need",
    "unencodable",
]


class OnepassError(Exception):
    """The root: catch this to catch all that onepass raises on purpose."""


class ShapeError(OnepassError, ValueError):
    """An array's dimensions or columns do not fit."""


class NotFiniteError(OnepassError, ValueError):
    """An array holds nan or infinity where a number belongs."""


class TypeMismatchError(OnepassError, TypeError, ValueError):
    """Text, objects, sparse or complex numbers stand where real numbers belong."""


class ParameterError(OnepassError, ValueError):
    """A hyperparameter is outside its range."""


class LabelError(OnepassError, ValueError):
    """Labels that no classifier can tell apart or put in order."""


class ColumnError(OnepassError, KeyError, ValueError):
    """A named column is missing or unknown."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would quote the message


class NumericalError(OnepassError, ArithmeticError):
    """The numbers of a block are too large for float64 once squared or summed."""


class ModuleError(OnepassError, RuntimeError):
    """A network's own forward raised at a row that was to be learned."""


class NotFittedError(OnepassError, _SklearnNotFittedError):  # type: ignore[misc]
    """A learner was asked for an answer before it learned anything."""


class SourceError(OnepassError, OSError, ValueError):
    """A stream or data set cannot be opened or read."""


class CheckpointError(OnepassError, ValueError):
    """A model file is damaged, hostile, or from a newer format."""


class MergeError(OnepassError, ValueError):
    """What two learners learned cannot be made one as if one had seen all rows."""


class ProcessError(OnepassError, RuntimeError):
    """A process that was begun for a part of the work was gone before this was done."""


class StoreError(OnepassError, OSError):
    """The file of a durable learner cannot be opened or written.

    Parameters
    ----------
    message : str
    full : bool, default False
        Whether the disk is full: then the file is as it was, and room is all that it needs.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class LockedError(StoreError):
    """The file of a durable learner is held by another process."""


class CorruptStoreError(StoreError, ValueError):
    """The file of a durable learner is not as it was written."""


class IdempotencyConflictError(OnepassError, ValueError):
    """An idempotency key came with another request than the first time."""


class RequestError(OnepassError, ValueError):
    """The bytes of a request to a server are not what they should be, or too many."""


class ServiceError(OnepassError, RuntimeError):
    """What a service has answered its client in place of what was asked for.

    Parameters
    ----------
    message : str
    status : int
        Of HTTP; 0 where none came.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotFoundError(OnepassError, LookupError):
    """There is nothing of the name that was asked for."""


class AlreadyExistsError(OnepassError, ValueError):
    """There is a learner of that name already."""


class MethodNotAllowedError(OnepassError, LookupError):
    """A path is there, but not by this method.

    Parameters
    ----------
    message : str
    allowed : str
        The methods by which it is.
    """

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class UnauthorizedError(OnepassError, PermissionError):
    """No token came, or an unknown one."""


class ForbiddenError(OnepassError, PermissionError):
    """The token has not the role."""


class BusyError(OnepassError, RuntimeError):
    """More rows wait to be learned than may.

    Parameters
    ----------
    message : str
    seconds : float
        After so long it is worth to ask again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class CommitTimeoutError(OnepassError, TimeoutError):
    """Rows are not known to be on the disk in time; they may be learned yet.

    Parameters
    ----------
    message : str
    seconds : float
        After so long it is worth to ask again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class PayloadTooLargeError(OnepassError, ValueError):
    """The body of a request is longer than may be."""


class MissingExtraError(OnepassError, ImportError):
    """An optional package is not installed."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the one before is unchanged, and learning goes on."""


class LargeStateWarning(UserWarning):
    """The state of a learner, quadratic in its features, takes more than 1 GiB."""


class MemoryFullWarning(UserWarning):
    """A memory holds all directions: without noise nothing more can be learned."""


class MergeWarning(UserWarning):
    """What two networks learned hardly goes together: the merged one is between them."""


class MixedColumnWarning(UserWarning):
    """A column is read as text although some of its values are numbers or dates."""


class ModuleModeWarning(UserWarning):
    """A network in training mode has dropout or batch normalisation, and is asked without."""


class RowsRefusedWarning(UserWarning):
    """Rows were not learned: they could not be read, or the learner refused them."""


class TaskWarning(UserWarning):
    """A learner that knows of no tasks was told that one is over: nothing was done."""


def meant(name: str, known: Iterable[str]) -> str:
    """The known names that look like this one, as the end of a message; ``""`` if none does.

    Parameters
    ----------
    name : str
        What came.
    known : iterable of str
        What was expected.

    Examples
    --------
    >>> meant("dep_dealy", ["arr_delay", "carrier", "dep_delay"])
    " Did you mean 'dep_delay'?"
    >>> len(meant("tailnum", ["arr_delay", "carrier"]))
    0
    """
    names = list(dict.fromkeys(known))
    small = {each.lower(): each for each in reversed(names)}
    close = [small[each] for each in get_close_matches(name.lower(), small, n=3, cutoff=0.66)]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in quotation marks, the first ones where they are many.

    Parameters
    ----------
    names : sequence of str
        What is there.
    most : int, default 8
        How many are shown.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def unencodable(texts: Iterable[str | None]) -> str | None:
    """The first text with a lone surrogate, which UTF-8 cannot encode; None if there is none.

    Parameters
    ----------
    texts : iterable of str or None

    Examples
    --------
    >>> print(unencodable(["a", None, "\U0001f697"]))
    None
    >>> len(unencodable(["a", "b" + chr(0xD83D)]))
    2
    """
    given = [text for text in texts if text]
    try:
        "".join(given).encode()
    except UnicodeEncodeError:
        return next(text for text in given if any("\ud800" <= c <= "\udfff" for c in text))
    return None


def need(module: str, *, extra: str, where: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Parameters
    ----------
    module : str
        Dotted name of the module, such as ``"matplotlib.figure"``.
    extra : str
        The extra of onepass that installs it.
    where : str
        What the user called, for the message.

    Raises
    ------
    MissingExtraError
        If the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{where} needs {package}. Install it with: pip install 'onepass[{extra}]'"
        ) from missing
