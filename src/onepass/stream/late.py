"""Late columns: empty in the first bytes of a file, and then no longer.

Such a column is read as text. The first batch in which it has values says what it holds, by the
order number, truth, date, text; from then on every value must be of that type.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from onepass.errors import SourceError
from onepass.stream.misread import remedy

__all__ = ["Late"]

_WORDS = {"double": "a number", "bool": "true or false"}


class Late:
    """Decides what late columns hold.

    Parameters
    ----------
    names : iterable of str
        The late columns.
    pa : module
        pyarrow, which is optional and so handed in.
    source : str
        The source's name, for messages.
    """

    def __init__(self, names: Iterable[str], pa: ModuleType, source: str) -> None:
        self._pa = pa
        self._source = source
        self._types: dict[str, Any] = dict.fromkeys(names)

    def decided(self, name: str, column: Any, first: int) -> Any:
        """The column by its own type, if it is late and has one; else as it came.

        Parameters
        ----------
        name : str
            Its name.
        column : pyarrow.Array
            Its values; text if it is late.
        first : int
            Where its first row stands in the source.

        Raises
        ------
        SourceError
            If a value is not of the type of the column's first values.
        """
        if name not in self._types:
            return column
        if self._types[name] is None:
            if column.null_count == len(column):
                return self._pa.nulls(len(column))
            self._types[name] = self._first(column)
        kind = self._types[name]
        if self._fits(column, kind):
            return column.cast(kind)
        i = next(i for i in range(len(column)) if not self._fits(column[i : i + 1], kind))
        raise SourceError(
            f"op.stream.read: {self._source}: row {first + i} (counting from 0), column {name!r} "
            f"must be {_WORDS.get(str(kind), 'a date')}, as its first values are, got "
            f"{column[i].as_py()!r}. {remedy(name, repr(column[i].as_py()))}."
        )

    def _first(self, column: Any) -> Any:
        pa = self._pa
        kinds = (pa.float64(), pa.bool_(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
        return next((kind for kind in kinds if self._fits(column, kind)), pa.string())

    def _fits(self, column: Any, kind: Any) -> bool:
        try:
            column.cast(kind)
        except self._pa.ArrowInvalid:
            return False
        return True
