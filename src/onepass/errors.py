"""Exceptions and warnings of onepass.

::

    OnepassError
    ├── ShapeError                (ValueError)             wrong number of dimensions or columns
    ├── NotFiniteError            (ValueError)             an array contains NaN or infinity
    ├── TypeMismatchError         (TypeError, ValueError)  text, objects, sparse or complex numbers
    ├── ParameterError            (ValueError)             a parameter is outside its range
    ├── LabelError                (ValueError)             labels that cannot be compared or sorted
    ├── ColumnError               (KeyError, ValueError)   a named column is missing or unknown
    ├── NumericalError            (ArithmeticError)        values overflow float64
    ├── ModuleError               (RuntimeError)           the forward pass of a torch module failed
    ├── NotFittedError            (sklearn.exceptions.NotFittedError)  predict before learning
    ├── SourceError               (OSError, ValueError)    a stream cannot be opened or read
    │   └── EmptySourceError      (OSError, ValueError)    a source has no rows
    ├── CheckpointError           (ValueError)             a model file is corrupt or too new
    ├── MergeError                (ValueError)             two learners cannot be merged
    ├── ProcessError              (RuntimeError)           a worker process failed
    ├── StoreError                (OSError)                a durable learner's file cannot be used
    │   ├── LockedError           (OSError)                another process holds the file
    │   └── CorruptStoreError     (ValueError)             the file is corrupt
    ├── ServiceError              (RuntimeError)           a server returned an error
    ├── NotFoundError             (LookupError)            no learner or endpoint of this name
    ├── AlreadyExistsError        (ValueError)             a learner of this name exists
    ├── MethodNotAllowedError     (LookupError)            the endpoint does not support the method
    ├── UnauthorizedError         (PermissionError)        missing or unknown token
    ├── ForbiddenError            (PermissionError)        the token lacks the required role
    ├── BusyError                 (RuntimeError)           the queue of rows to learn is full
    ├── CommitTimeoutError        (TimeoutError)           rows were not committed in time
    ├── PayloadTooLargeError      (ValueError)             a request body is too large
    ├── IdempotencyConflictError  (ValueError)             a key was reused for another request
    ├── OutlierError              (ValueError)             a row is far from its prediction
    ├── SchemaError               (ValueError)             a row does not conform to a schema
    ├── RequestError              (ValueError)             a malformed request
    └── MissingExtraError         (ImportError)            an optional package is not installed

    UserWarning
    ├── CheckpointWarning          a checkpoint could not be written
    ├── LargeStateWarning          a learner's state exceeds 1 GiB
    ├── ManyCategoriesWarning      a column of text has too many categories
    ├── MemoryFullWarning          a memory has no free direction left
    ├── MergeWarning               two networks are hard to merge
    ├── MixedColumnWarning         a column of numbers or dates is read as text
    ├── MixtureWarning             a mixture continues without one of its members
    ├── ModuleModeWarning          a module in training mode runs in evaluation mode
    ├── NotCompiledWarning         the compiled loops are not installed
    ├── RowsRefusedWarning         rows were not learned
    └── TaskWarning                a task ended, which the learner ignores

Each message has four parts: the call, what was expected, what was received, and a remedy. A learner
that raises an error remains unchanged. Callers change the fields of an error, such as its row; they
do not read its text.

The module also has helpers for messages and for imports of optional packages.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ContextDecorator
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, Self, TypeVar, cast

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

__all__ = [
    "AlreadyExistsError",
    "BusyError",
    "CheckpointError",
    "CheckpointWarning",
    "ColumnError",
    "CommitTimeoutError",
    "CorruptStoreError",
    "EmptySourceError",
    "ForbiddenError",
    "ForecastWarning",
    "IdempotencyConflictError",
    "LabelError",
    "LargeStateWarning",
    "LockedError",
    "ManyCategoriesWarning",
    "MemoryFullWarning",
    "MergeError",
    "MergeWarning",
    "MethodNotAllowedError",
    "MissingExtraError",
    "MixedColumnWarning",
    "MixtureWarning",
    "ModuleError",
    "ModuleModeWarning",
    "NotCompiledWarning",
    "NotFiniteError",
    "NotFittedError",
    "NotFoundError",
    "NumericalError",
    "OnepassError",
    "OutlierError",
    "ParameterError",
    "PayloadTooLargeError",
    "ProcessError",
    "RequestError",
    "RowsRefusedWarning",
    "SchemaError",
    "ServiceError",
    "ShapeError",
    "SourceError",
    "StoreError",
    "TaskWarning",
    "TypeMismatchError",
    "UnauthorizedError",
    "WindupWarning",
    "WorseThanTrivialWarning",
    "calling",
    "did_you_mean",
    "first_unencodable",
    "import_extra",
    "join_names",
    "public",
]


_Call = TypeVar("_Call", bound=Callable[..., Any])


class OnepassError(Exception):
    """Base class of all exceptions that onepass raises; ``str`` joins the fields to a sentence.

    Parameters
    ----------
    text : str
        What was expected; what was received and the remedy may follow, if the error is not about
        a row or column. A name in backquotes is an argument of the call.
    where : str, default=""
        The call.
    got : object, default=""
        What was received.
    remedy : str, default=""
        Sentences.
    row : int, optional
        The row of the block that the caller passed, from 0.
    column : str, int or tuple, optional
        Name or index of a column.
    source : str, default=""
        The origin of the row, such as a line of a file.

    Attributes
    ----------
    argument : str
        The argument that the error is about: the name in backquotes at the beginning of the text,
        or "".

    Examples
    --------
    >>> error = OnepassError("`X` must be finite", "A.fit", got="nan", remedy="Drop it.", row=2)
    >>> print(error)
    A.fit: `X` must be finite, got nan in row 2. Drop it.
    >>> print(error.at(where="B.fit", row=7, source="b.csv: row 9"))
    B.fit: `X` must be finite, got nan in row 7. Drop it. (Row 7 of the block is b.csv: row 9.)
    >>> len(error.argument)
    1
    """

    def __init__(
        self,
        text: str = "",
        where: str = "",
        *,
        got: object = "",
        remedy: str = "",
        row: int | None = None,
        column: object = None,
        source: str = "",
    ) -> None:
        super().__init__(text)
        self.text, self.where, self.got, self.remedy = text, where, str(got), remedy
        self.row, self.column, self.source = row, column, source

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.args, self.__dict__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def argument(self) -> str:  # noqa: D102  described above
        found = _NAME.match(self.text)
        return found[1] if found else ""

    def at(self, **fields: Any) -> Self:
        """Return a copy with other fields, for ``raise error.at(where=...) from error``."""
        twin = copy.copy(self)
        if unknown := fields.keys() - vars(twin).keys():
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}")
        vars(twin).update(fields)
        vars(twin).pop("__notes__", None)  # they are shown with the cause
        return twin

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """Return a copy whose names in backquotes are replaced, with their backquotes."""
        texts = {name: getattr(self, name) for name in ("where", "text", "remedy")}
        renamed = {k: _NAME.sub(lambda found: rename(found[1]), v) for k, v in texts.items()}
        return self.at(**renamed)

    def __str__(self) -> str:
        text = f"{self.where}: {self.text}" if self.where else self.text
        text += f", got {self.got}" if self.got else ""
        text += "" if self.row is None else f" in row {self.row}"
        if self.column is not None:
            text += f"{' in' if self.row is None else ','} column {self.column!r}"
        text += f". {self.remedy}" if self.remedy else ""
        return text + (f" (Row {self.row} of the block is {self.source}.)" if self.source else "")


class calling(ContextDecorator):  # noqa: N801  a context manager
    """Name a public call in the errors raised inside, unless they name one already.

    Parameters
    ----------
    where : str
        The call, such as "RLSRegressor.fit".
    """

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, OnepassError) and not error.where:
            error.where = self._where


def public(call: _Call) -> _Call:
    """Decorate a method: errors raised in it name its class and the method, as ``calling`` does.

    Of a constructor or a private method only the class is named.

    Parameters
    ----------
    call : callable
        A method that is not a generator.
    """
    verb = "" if call.__name__.startswith("_") else f".{call.__name__}"

    @wraps(call)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except OnepassError as error:
            if not error.where:
                owner = self if isinstance(self, type) else type(self)
                error.where = owner.__name__ + verb
            raise

    return cast("_Call", named)


_NAME = re.compile(r"`(\w+)`")
"""A name in backquotes."""


def _restored(kind: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> OnepassError:
    """Restore a copied or pickled error, without its constructor."""
    error: OnepassError = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ShapeError(OnepassError, ValueError):
    """An array has the wrong number of dimensions or columns."""


class NotFiniteError(OnepassError, ValueError):
    """An array contains NaN or infinity."""


class TypeMismatchError(OnepassError, TypeError, ValueError):
    """Real numbers are required; text, objects, sparse or complex numbers were given."""


class ParameterError(OnepassError, ValueError):
    """A parameter is outside its range."""


class LabelError(OnepassError, ValueError):
    """Labels cannot be compared or sorted."""


class ColumnError(OnepassError, KeyError, ValueError):
    """A named column is missing or unknown."""

    __str__ = OnepassError.__str__  # KeyError would quote the message


class NumericalError(OnepassError, ArithmeticError):
    """Values overflow float64 when they are squared or summed."""


class ModuleError(OnepassError, RuntimeError):
    """The forward pass of a torch module raised an exception for a row."""


class NotFittedError(OnepassError, _SklearnNotFittedError):  # type: ignore[misc]
    """A prediction was requested before any row was learned."""


class SourceError(OnepassError, OSError, ValueError):
    """A stream or data set cannot be opened or read."""


class EmptySourceError(SourceError):
    """A source has no rows."""


class CheckpointError(OnepassError, ValueError):
    """A model file is corrupt, unsafe, or of a newer format."""


class MergeError(OnepassError, ValueError):
    """Two learners cannot be merged."""


class ProcessError(OnepassError, RuntimeError):
    """A worker process ended early, or its exception cannot be sent back."""


class StoreError(OnepassError, OSError):
    """The file of a durable learner cannot be opened or written.

    Parameters
    ----------
    text, where, **fields
        As of OnepassError.
    full : bool, default False
        Whether the disk is full. The file is unchanged; the learner can continue when space is
        free.
    """

    def __init__(
        self, text: str = "", where: str = "", *, full: bool = False, **fields: Any
    ) -> None:
        super().__init__(text, where, **fields)
        self.full = full


class LockedError(StoreError):
    """Another process has locked the file of a durable learner."""


class CorruptStoreError(StoreError, ValueError):
    """The file of a durable learner is corrupt."""


class IdempotencyConflictError(OnepassError, ValueError):
    """An idempotency key was reused for a different request."""


class RequestError(OnepassError, ValueError):
    """A request to a server is malformed."""


class ServiceError(OnepassError, RuntimeError):
    """A server returned an error to its client.

    Parameters
    ----------
    text, where, **fields
        As of OnepassError.
    status : int
        HTTP status; 0 if there was no response.
    """

    def __init__(self, text: str = "", where: str = "", *, status: int, **fields: Any) -> None:
        super().__init__(text, where, **fields)
        self.status = status


class NotFoundError(OnepassError, LookupError):
    """There is no learner or endpoint of the requested name."""


class OutlierError(OnepassError, ValueError):
    """A target is further from its prediction than ``onepass serve --reject-beyond`` allows."""


class SchemaError(OnepassError, ValueError):
    """A row does not conform to the schema of ``onepass serve --schema``."""


class AlreadyExistsError(OnepassError, ValueError):
    """A learner of this name already exists."""


class MethodNotAllowedError(OnepassError, LookupError):
    """The endpoint does not support the HTTP method.

    Parameters
    ----------
    text, where, **fields
        As of OnepassError.
    allowed : str
        The supported methods.
    """

    def __init__(self, text: str = "", where: str = "", *, allowed: str, **fields: Any) -> None:
        super().__init__(text, where, **fields)
        self.allowed = allowed


class UnauthorizedError(OnepassError, PermissionError):
    """The token is missing or unknown."""


class ForbiddenError(OnepassError, PermissionError):
    """The token lacks the required role."""


class BusyError(OnepassError, RuntimeError):
    """The queue of rows to be learned is full.

    Parameters
    ----------
    text, where, **fields
        As of OnepassError.
    seconds : float
        Seconds to wait before the request is retried.
    """

    def __init__(self, text: str = "", where: str = "", *, seconds: float, **fields: Any) -> None:
        super().__init__(text, where, **fields)
        self.seconds = seconds


class CommitTimeoutError(OnepassError, TimeoutError):
    """Rows were not committed in time; they may still be learned.

    Parameters
    ----------
    text, where, **fields
        As of OnepassError.
    seconds : float
        Seconds to wait before the request is retried.
    """

    def __init__(self, text: str = "", where: str = "", *, seconds: float, **fields: Any) -> None:
        super().__init__(text, where, **fields)
        self.seconds = seconds


class PayloadTooLargeError(OnepassError, ValueError):
    """The body of a request exceeds the limit."""


class MissingExtraError(OnepassError, ImportError):
    """An optional package is not installed."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the previous one is unchanged and learning continues."""


class ForecastWarning(UserWarning):
    """Several rows were predicted with the lags of the first; ``forecast`` may be meant."""


class LargeStateWarning(UserWarning):
    """The state of a learner, quadratic in the number of features, exceeds 1 GiB."""


class ManyCategoriesWarning(UserWarning):
    """A column of text has more categories than output columns; further ones are hashed."""


class MemoryFullWarning(UserWarning):
    """A memory has no free direction left: no further row can be learned without noise."""


class MergeWarning(UserWarning):
    """Two networks are hard to merge: the merged weights are between those of the networks."""


class MixedColumnWarning(UserWarning):
    """A column is read as text although some of its values are numbers or dates."""


class MixtureWarning(UserWarning):
    """A mixture continues without a member that raised an error."""


class ModuleModeWarning(UserWarning):
    """A module in training mode has dropout or batch normalisation; it runs in evaluation mode."""


class NotCompiledWarning(UserWarning):
    """The compiled loops are not installed; the same algorithms run on NumPy, slower."""


class RowsRefusedWarning(UserWarning):
    """Rows were not learned: they could not be read, or the learner raised an error."""


class TaskWarning(UserWarning):
    """A learner ignores ``after_task``, or is likely to forget classes that it learned earlier."""


class WindupWarning(UserWarning):
    """Plain forgetting has lost the information about a coefficient."""


class WorseThanTrivialWarning(UserWarning):
    """The predictions of a learner are worse than those of the mean or the most frequent class."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a suggestion of similar names for a message; ``""`` if there is none.

    Parameters
    ----------
    name : str
        The invalid name.
    valid : iterable of str
        The valid names.

    Examples
    --------
    >>> did_you_mean("dep_dealy", ["arr_delay", "carrier", "dep_delay"])
    " Did you mean 'dep_delay'?"
    >>> len(did_you_mean("tailnum", ["arr_delay", "carrier"]))
    0
    """
    names = list(dict.fromkeys(valid))
    lower = {one.lower(): one for one in reversed(names)}
    close = [lower[one] for one in get_close_matches(name.lower(), lower, n=3, cutoff=0.66)]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def join_names(names: Sequence[str], limit: int = 8) -> str:
    """Join quoted names, at most ``limit`` of them.

    Parameters
    ----------
    names : sequence of str
        All names.
    limit : int, default 8
        Number of names to show.

    Examples
    --------
    >>> join_names(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def first_unencodable(texts: Iterable[str | None]) -> str | None:
    """Return the first text that UTF-8 cannot encode (a lone surrogate), or None.

    Parameters
    ----------
    texts : iterable of str or None

    Examples
    --------
    >>> print(first_unencodable(["a", None, "\U0001f697"]))
    None
    >>> len(first_unencodable(["a", "b" + chr(0xD83D)]))
    2
    """
    given = [text for text in texts if text]
    try:
        "".join(given).encode()
    except UnicodeEncodeError:
        return next(text for text in given if any("\ud800" <= c <= "\udfff" for c in text))
    return None


def import_extra(module: str, *, extra: str) -> ModuleType:
    """Import an optional module; if it is missing, the error names the extra to install.

    Parameters
    ----------
    module : str
        Dotted name of the module, such as ``"matplotlib.figure"``.
    extra : str
        The extra of onepass that installs the module.

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
            f"{package} must be installed. Install it with: pip install 'onepass[{extra}]'"
        ) from missing
