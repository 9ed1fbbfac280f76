"""Inputs: rows as a module takes them: a tensor, or a tuple, list or dict of tensors.

A tuple or list holds positional arguments of ``forward``, a dict its keyword arguments; both may
be nested. The first axis of every tensor counts rows. Text, numbers, truth values and None go to
``forward`` as they are. A list of plain numbers is read as an array, and so is a table of numbers,
as blocks of a stream are. Columns with names are found by name, as in other learners.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from onepass import linalg
from onepass.errors import NotFiniteError, ShapeError, TypeMismatchError
from onepass.validation import matrix, native
from onepass.validation.table import Table, is_frame

__all__ = ["Batch", "batch", "joined", "mapped", "tensors"]

_CONSTANTS = (str, bool, int, float, type(None))
_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


@dataclass(frozen=True)
class Batch:
    """Rows that were looked over: finite, on the module's device, of its dtype.

    Parameters
    ----------
    args : tuple
        Positional arguments of ``forward``.
    kwargs : dict
        Keyword arguments of ``forward``.
    n : int
        Number of rows.
    where : str
        The public call that they were given to, for messages.
    given : int
        Number of rows that were given there; these are some of them.
    columns : mapping of str to list of str
        The names of the columns of each table among them, by its place in the input.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n: int
    where: str = ""
    given: int = 0
    columns: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, at: Any) -> "Batch":
        """Some of the rows, by an index, a slice, or a tensor of indices or booleans."""
        if isinstance(at, int):
            if not -self.n <= at < self.n:
                raise IndexError(f"row {at} of {self.n}")
            at = slice(at % self.n, at % self.n + 1)
        if isinstance(at, slice):
            i, j, step = at.indices(self.n)
            if step != 1:
                raise ShapeError(
                    f"op.nn: a slice of rows must have step 1, got {step}. "
                    "Take the rows you want with batch[i:j]."
                )
            if i == 0 and j == self.n:
                return self
        leaves = [each[at] for each in self.tensors]
        return self.holding(leaves, len(leaves[0]))

    def __iter__(self) -> Iterator["Batch"]:
        return (self[i] for i in range(self.n))

    def clone(self) -> "Batch":
        """A copy of the rows."""
        return self.holding([each.clone() for each in self.tensors], self.n)

    def real(self, dtype: Any) -> "Batch":
        """The rows with integers and booleans converted to a floating dtype."""
        leaves = [
            each if each.is_floating_point() or each.is_complex() else each.to(dtype)
            for each in self.tensors
        ]
        return self.holding(leaves, self.n)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The number of rows, and the tree of the shapes of a row."""
        return self.n, mapped((self.args, self.kwargs), lambda each: tuple(each.shape[1:]))

    @property
    def dtype(self) -> Any:
        """The tree of the dtypes."""
        return mapped((self.args, self.kwargs), lambda each: each.dtype)

    @property
    def tensors(self) -> list[Any]:
        """All tensors, in a fixed order."""
        return list(tensors((self.args, self.kwargs)))

    @property
    def came(self) -> str:
        """The tensors in words, of the shapes that were given."""
        shapes = ((each, (self.given or self.n, *each.shape[1:])) for each in self.tensors)
        return ", ".join(f"{str(each.dtype)[6:]} {shape}" for each, shape in shapes)

    def holding(self, leaves: Any, n: int) -> "Batch":
        """The same tree with other tensors, given in the order of ``tensors``."""
        rest = iter(leaves)
        args, kwargs = mapped((self.args, self.kwargs), lambda _: next(rest))
        return replace(self, args=args, kwargs=kwargs, n=n)


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate batches of one shape, or tensors."""
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(list(parts))
    leaves = zip(*(part.tensors for part in parts), strict=True)
    return parts[0].holding([torch.cat(each) for each in leaves], sum(map(len, parts)))


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of tuples, lists and dicts with each tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: mapped(each, change) for key, each in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(each, change) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(mapped(each, change) for each in tree)
    return tree


def tensors(tree: Any) -> Iterator[Any]:
    """The tensors of a tree, in the order in which ``mapped`` meets them."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Batch):
        yield from tree.tensors
    elif isinstance(tree, Mapping):
        for each in tree.values():
            yield from tensors(each)
    elif isinstance(tree, (tuple, list)):
        for each in tree:
            yield from tensors(each)


def batch(
    x: Any, dtype: Any, device: Any, where: str, columns: Mapping[str, list[str]] | None = None
) -> Batch:
    """Rows as the module takes them.

    Parameters
    ----------
    x : Tensor, array, or tuple, list or dict of them
        n rows. Real and complex numbers are converted to the precision of ``dtype``; whole numbers
        and truth values stay what they are (token ids, masks). Arrays go to ``device``.
    dtype : torch.dtype
    device : torch.device
    where : str
        The public call, for messages.
    columns : mapping of str to list of str, optional
        The names of the columns of tables that were learned, by place in the input.

    Raises
    ------
    ColumnError
        If a table lacks columns that were learned, or has others.
    ShapeError
        If there are no tensors, or they have no or different numbers of rows.
    TypeMismatchError
        If something is no tensor of numbers, or lies on another device.
    NotFiniteError
        If a number is nan or infinite.
    """
    if isinstance(x, list) and _numeric(x):
        x = _rectangular(x, where)
    reader = _Reader(dtype, device, where, columns or {})
    tree, found = reader.read(x)
    n = _agreed(found, where)
    _refuse_nonfinite(found, dtype, where)
    if isinstance(tree, dict):  # sorted: batches are joined tensor by tensor
        kwargs = {str(key): tree[key] for key in sorted(tree, key=str)}
        return Batch((), kwargs, n, where, n, reader.columns)
    args = tuple(tree) if isinstance(tree, (tuple, list)) else (tree,)
    return Batch(args, {}, n, where, n, reader.columns)


def _numeric(values: Any) -> bool:
    """Whether a list is one of plain numbers, however deep."""
    if isinstance(values, list):
        return bool(values) and all(_numeric(each) for each in values)
    return isinstance(values, (int, float, np.number)) and not isinstance(values, bool)


def _rectangular(values: list[Any], where: str) -> Any:
    try:
        return np.asarray(values)
    except ValueError as wrong:
        raise ShapeError(
            f"{where}: `x` must have as many numbers in each row, got rows of several lengths. "
            "Give an array of shape (n, …), padded if need be."
        ) from wrong


class _Reader:
    """Reads a tree, and remembers its tensors with the words that lead to each."""

    def __init__(self, dtype: Any, device: Any, where: str, known: Mapping[str, list[str]]) -> None:
        self.dtype = dtype
        self.device = device
        self.where = where
        self.known = known
        self.columns: dict[str, list[str]] = {}
        self.found: list[tuple[str, Any]] = []

    def read(self, x: Any) -> tuple[Any, list[tuple[str, Any]]]:
        return self._read(x, "x"), self.found

    def _read(self, x: Any, path: str) -> Any:
        if isinstance(x, torch.nn.utils.rnn.PackedSequence):
            raise TypeMismatchError(
                f"{self.where}: `{path}` must be a tensor whose first axis counts rows, got a "
                "PackedSequence. Give padded rows and their lengths, and pack them in `forward`."
            )
        if isinstance(x, Mapping):
            return {key: self._read(each, f"{path}[{key!r}]") for key, each in x.items()}
        if isinstance(x, (tuple, list)):
            parts = [self._read(each, f"{path}[{i}]") for i, each in enumerate(x)]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, _CONSTANTS) and path != "x":
            return x
        tensor = self._tensor(x, path)
        self.found.append((path, tensor))
        return tensor

    def _tensor(self, x: Any, path: str) -> Any:
        if isinstance(x, torch.Tensor):
            tensor = self._placed(x, path)
        else:
            tensor = torch.from_numpy(self._array(x, path)).to(self.device)
        if tensor.is_complex():
            return tensor.to(_COMPLEX.get(self.dtype, torch.complex64))
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _placed(self, x: Any, path: str) -> Any:
        if x.layout != torch.strided or x.is_quantized or x.is_nested:
            raise TypeMismatchError(
                f"{self.where}: `{path}` must be a dense tensor, got one that is sparse, nested or "
                "quantized. Convert it with to_dense(), to_padded_tensor() or dequantize()."
            )
        if x.device != self.device:
            raise TypeMismatchError(
                f"{self.where}: `{path}` must lie on {self.device}, where the module is, got a "
                f"tensor on {x.device}. Move it with .to({str(self.device)!r}); it is not moved "
                "unasked."
            )
        # a tensor made under inference_mode cannot take part in a derivative, but its copy can
        return x.clone() if x.is_inference() else x.detach()

    def _array(self, x: Any, path: str) -> Any:
        if isinstance(x, Table) or is_frame(x):
            return native(self._by_name(x, path))
        try:
            array = np.asarray(x)
        except (ValueError, TypeError) as wrong:
            raise self._no_numbers(path, str(wrong)) from wrong
        if array.dtype.kind == "O" or array.dtype.kind not in "biufc":
            raise self._no_numbers(path, f"{type(x).__name__} of {array.dtype}")
        return native(array)

    def _by_name(self, x: Any, path: str) -> Any:
        """The columns of a table or frame; named ones in the order that was learned."""
        values, names = matrix(x, self.where, names=self.known.get(path))
        if names is not None:
            self.columns[path] = names
        plain = values if isinstance(x, Table) else np.asarray(x)
        if plain.dtype.kind not in "biu":
            return values
        came = Table.from_frame(x).names  # integers stay integers, for embeddings
        return plain if names is None else plain[:, [came.index(name) for name in names]]

    def _no_numbers(self, path: str, came: str) -> TypeMismatchError:
        return TypeMismatchError(
            f"{self.where}: `{path}` must hold numbers, got {came}. Give tensors or arrays of "
            "numbers, or tuples, lists or dicts of them."
        )


def _agreed(found: list[tuple[str, Any]], where: str) -> int:
    """The number of rows that all tensors agree on."""
    if not found:
        raise ShapeError(
            f"{where}: `x` must hold at least one tensor of shape (n, …), got none. "
            "Give the module's arguments."
        )
    for path, each in found:
        if each.ndim == 0:
            raise ShapeError(
                f"{where}: `{path}` must have an axis of rows, its first, got a single number. "
                "Give an array of shape (n, …), of one row too: X[0:1] in place of X[0]."
            )
    n = int(found[0][1].shape[0])
    for path, each in found[1:]:
        if each.shape[0] != n:
            raise ShapeError(
                f"{where}: all tensors must have the same number of rows, got {n} in "
                f"`{found[0][0]}` and {each.shape[0]} in `{path}`. The first axis of each counts "
                "rows; a tensor that all rows share belongs into the module."
            )
    return n


def _refuse_nonfinite(found: list[tuple[str, Any]], dtype: Any, where: str) -> None:
    """Refuse nan and infinity, saying the first place where one stands."""
    plain = [torch.view_as_real(each) if each.is_complex() else each for _, each in found]
    loose = [each for each in plain if each.is_floating_point()]
    if not loose:
        return
    if linalg.waits(loose[0]):  # the one time: a row that is refused must not have been learned
        fine = bool(torch.stack([torch.isfinite(each).all() for each in loose]).all())
    else:
        fine = linalg.finite(*loose)
    if fine:
        return
    for path, each in found:
        bad = (~torch.isfinite(each)).nonzero()
        if len(bad):
            row, *inner = bad[0].tolist()
            value = each[tuple(bad[0].tolist())].item()
            word = "nan" if value != value else "infinity"  # noqa: PLR0124  nan alone is unlike itself
            place = f"row {row}" + (f", at {tuple(inner)}" if inner else "")
            raise NotFiniteError(
                f"{where}: `{path}` must be finite in {dtype}, got {word} in {place}. "
                "Drop the row, or impute it before learning; numbers too large for the dtype "
                "need scaling."
            )
