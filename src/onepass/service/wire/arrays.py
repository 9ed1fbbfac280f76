"""Arrays: Arrow's columns as NumPy's, in no more memory than they may take.

What is small in Arrow may be large once it is plain: an index into a dictionary is a byte, and the
text that it stands for is as long as it likes; texts that are views may all lie at the same bytes.
So a dictionary's values are made once, and shared; and texts are counted before they are made, as
often as they are there: whoever writes the rows down writes each of them.
"""

from types import ModuleType
from typing import Any

import numpy as np

from onepass.errors import Array, need
from onepass.service.wire.limits import Limits, refused
from onepass.stream.arrow import to_array

__all__ = ["Arrays"]

_UTF8 = 4  # bytes of a character at most
_WHERE = "onepass.service.wire.arrow"


class Arrays:
    """Makes arrays, and counts the bytes of their texts.

    Parameters
    ----------
    pa : module
        pyarrow, which is optional and so handed in.
    limits : Limits
    """

    def __init__(self, pa: ModuleType, limits: Limits) -> None:
        self._pa, self._types, self._limits = pa, pa.types, limits
        self._compute = need("pyarrow.compute", extra="files", where=_WHERE)
        self._bytes = 0

    def of(self, column: Any, place: str) -> Array:
        """A column of a batch that was validated in full.

        Parameters
        ----------
        column : pyarrow.Array of length n
            Of a type that a table's column can have, a dictionary of such, or a fixed-size list of
            numbers.
        place : str
            Where it stands in the request, for messages.

        Returns
        -------
        array : ndarray of shape (n,) or (n, k)
            bool, int64, uint64, float64 with nan, datetime64[us], or objects: text and None.

        Raises
        ------
        RequestError
            If it is too large, or a list is missing.
        """
        types, kind = self._types, column.type
        if types.is_fixed_size_list(kind):
            return self._matrix(column, place)
        if types.is_dictionary(kind):
            return self._decoded(column, place)
        if self._is_text(kind):
            self._count(column, place)
        elif not column.null_count and types.is_integer(kind):
            whole = np.uint64 if kind == self._pa.uint64() else np.int64
            return np.asarray(column.to_numpy(zero_copy_only=False)).astype(whole)
        elif not column.null_count and types.is_boolean(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        found = to_array(column, place, self._pa, "the request")
        if found.dtype == object:
            self._limits.hold_text(max(map(len, filter(None, found)), default=0), place)
        return found

    def texts(self, schema: Any) -> int:
        """How many columns are text, each its own or a dictionary's.

        Parameters
        ----------
        schema : pyarrow.Schema
        """
        dictionary = self._types.is_dictionary
        return sum(self._is_text(kind.value_type if dictionary(kind) else kind)
                   for kind in schema.types)  # fmt: skip

    def empty(self, schema: Any) -> int:
        """How many columns are of nulls alone, which take no bytes.

        Parameters
        ----------
        schema : pyarrow.Schema
        """
        return sum(map(self._types.is_null, schema.types))

    def _matrix(self, column: Any, place: str) -> Array:
        """Lists as rows of numbers."""
        wide = column.type.list_size
        self._limits.hold(len(column), wide, place)
        if column.null_count:
            came = f"{column.null_count:,} that are null"
            raise refused(place, "hold a list in each row", came, "Send lists, of null if need be")
        return self.of(column.flatten(), place).astype(np.float64).reshape(len(column), wide)

    def _decoded(self, column: Any, place: str) -> Array:
        """A dictionary's values, by their indices."""
        values = self.of(column.dictionary, place)
        at = column.indices.drop_null().to_numpy(zero_copy_only=False)
        if self._is_text(column.type.value_type):
            self._add(int(self._sizes(column.dictionary)[at].sum()), place)
        if values.dtype.kind in "biu":
            values = values.astype(np.float64)
        missing: Any = {"O": None, "M": np.datetime64("NaT", "us")}.get(values.dtype.kind, np.nan)
        taken = np.full(len(column), missing, dtype=values.dtype)
        there = np.asarray(column.indices.is_valid().to_numpy(zero_copy_only=False))
        taken[there] = values[at]
        return taken

    def _is_text(self, kind: Any) -> bool:
        types = self._types
        return bool(types.is_string(kind) or types.is_large_string(kind) or self._is_view(kind))

    def _is_view(self, kind: Any) -> bool:
        view = getattr(self._types, "is_string_view", None)  # newer than the oldest pyarrow we take
        return bool(view and view(kind))

    def _count(self, column: Any, place: str) -> None:
        """Refuse texts that are too long, one or all."""
        if not len(column):
            return
        sizes = self._sizes(column)
        self._limits.hold_text(int(sizes.max()) // _UTF8, place)
        self._add(int(sizes.sum()), place)

    def _sizes(self, column: Any) -> Array:
        """The bytes of each text, 0 where it is missing."""
        if self._is_view(column.type):
            views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
            return views[column.offset : column.offset + len(column), 0].astype(np.int64)
        sizes = self._compute.fill_null(self._compute.binary_length(column), 0)
        return np.asarray(sizes.to_numpy(zero_copy_only=False)).astype(np.int64)

    def _add(self, nbytes: int, place: str) -> None:
        """Count bytes of text, and refuse more than may be."""
        self._bytes += nbytes
        if self._bytes > self._limits.unpacked:
            must = f"hold text of at most {self._limits.unpacked:,} bytes in all"
            raise refused(place, must, "more", "Send fewer rows at a time")
