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
    └── MissingExtraError     (ImportError)     an optional package is not installed

    UserWarning
    ├── CheckpointWarning                       a checkpoint was not written; learning goes on
    ├── MemoryFullWarning                       a memory holds all directions
    ├── MergeWarning                            two networks know what hardly goes together
    ├── MixedColumnWarning                      a column is numbers but for a few cells
    ├── ModuleModeWarning                       a network in training mode is asked as in evaluation
    ├── RowsRefusedWarning                      rows whose error or gradient is not finite
    └── TaskWarning                             a task is over, and nothing was kept of it as such

Each message has four parts: where, what was expected, what came, what to do.
Whatever is raised while learning, the learner stays exactly as it was.
"""

from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ColumnError",
    "LabelError",
    "MemoryFullWarning",
    "MergeError",
    "MergeWarning",
    "MissingExtraError",
    "MixedColumnWarning",
    "ModuleError",
    "ModuleModeWarning",
    "NotFiniteError",
    "NotFittedError",
    "NumericalError",
    "OnepassError",
    "ParameterError",
    "ProcessError",
    "RowsRefusedWarning",
    "ShapeError",
    "SourceError",
    "TaskWarning",
    "TypeMismatchError",
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


class MissingExtraError(OnepassError, ImportError):
    """An optional package is not installed."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the one before is unchanged, and learning goes on."""


class MemoryFullWarning(UserWarning):
    """A memory holds all directions: without noise nothing more can be learned."""


class MergeWarning(UserWarning):
    """What two networks learned hardly goes together: the merged one is between them."""


class MixedColumnWarning(UserWarning):
    """A column is taken as text although most of its values are numbers."""


class ModuleModeWarning(UserWarning):
    """A network in training mode has dropout or batch normalisation, and is asked without."""


class RowsRefusedWarning(UserWarning):
    """A network's error or gradient was not finite for some rows, and these were not learned."""


class TaskWarning(UserWarning):
    """A learner that knows of no tasks was told that one is over: nothing was done."""
