"""Rows as the inputs of a module, and its outputs as a matrix.

Rows are a tensor, or a tuple, list or dict of tensors. A tuple or list contains positional
arguments of ``forward``, a dict keyword arguments; both may be nested. The first axis of every
tensor counts rows. Text, numbers, booleans and None are passed to ``forward`` unchanged. A list of
plain numbers or a table of numbers is read as an array. Named columns are matched by name, as in
other learners.

Integer inputs of a module are mostly indices of an embedding. An index outside the embedding raises
an error that does not name the embedding, and on an accelerator it aborts the program. Indices are
therefore checked by hooks on embeddings, in an additional forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from onepass import linalg
from onepass.errors import NotFiniteError, OnepassError, ShapeError, TypeMismatchError
from onepass.types import Array, ArrayLike
from onepass.validation import matrix, torch_compatible
from onepass.validation.table import Table, TableLike, is_frame

_CONSTANTS = (str, bool, int, float, type(None))
_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


@dataclass(frozen=True)
class Batch:
    """Validated rows: finite, on the module's device, of its dtype.

    Parameters
    ----------
    args : tuple
        Positional arguments of ``forward``.
    kwargs : dict
        Keyword arguments of ``forward``.
    n : int
        Number of rows.
    given : int
        Number of rows of the public call, which may be more than n.
    columns : mapping of str to list of str
        Column names of each table, by its path in the input.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n: int
    given: int = 0
    columns: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, at: int | slice | Tensor) -> Batch:
        """Select rows by an index, a slice with step 1, or a tensor of indices or booleans."""
        if isinstance(at, int):
            i = range(self.n)[at]
            at = slice(i, i + 1)
        if isinstance(at, slice) and at.indices(self.n) == (0, self.n, 1):
            return self
        leaves = [each[at] for each in self.tensors]
        return self.with_tensors(leaves, len(leaves[0]))

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(self.n))

    def clone(self) -> Batch:
        """Return a copy of the rows."""
        return self.with_tensors([each.clone() for each in self.tensors], self.n)

    def real(self, dtype: torch.dtype) -> Batch:
        """Convert integers and booleans to a floating dtype."""
        leaves = [
            each if each.is_floating_point() or each.is_complex() else each.to(dtype)
            for each in self.tensors
        ]
        return self.with_tensors(leaves, self.n)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of rows, and the tree of the shapes of a row."""
        return self.n, map_tensors((self.args, self.kwargs), lambda each: tuple(each.shape[1:]))

    @property
    def dtype(self) -> Any:
        """Tree of the dtypes."""
        return map_tensors((self.args, self.kwargs), lambda each: each.dtype)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        return tensors((self.args, self.kwargs))

    @property
    def description(self) -> str:
        """Dtypes and shapes of the input, as text."""
        shapes = ((each, (self.given or self.n, *each.shape[1:])) for each in self.tensors)
        return ", ".join(f"{str(each.dtype)[6:]} {shape}" for each, shape in shapes)

    def with_tensors(self, leaves: Iterable[Tensor], n: int) -> Batch:
        """Replace the tensors, in the order of ``tensors``."""
        rest = iter(leaves)
        args, kwargs = map_tensors((self.args, self.kwargs), lambda _: next(rest))
        return replace(self, args=args, kwargs=kwargs, n=n)


RowsLike: TypeAlias = Batch | Table | Tensor | ArrayLike | Mapping[str, object] | Sequence[object]
"""Rows that a module accepts: a tensor or array, a tuple, list or dict of these, or a table."""


def joined(parts: Sequence[Batch | Tensor]) -> Any:
    """Concatenate batches of one shape, or tensors."""
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(list(parts))
    leaves = zip(*(part.tensors for part in parts), strict=True)
    return parts[0].with_tensors([torch.cat(each) for each in leaves], sum(map(len, parts)))


def map_tensors(tree: object, change: Callable[[Tensor], object]) -> Any:
    """Apply a function to each tensor of a tree of tuples, lists and dicts."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(each, change) for key, each in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(each, change) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(each, change) for each in tree)
    return tree


def tensors(tree: object) -> list[Tensor]:
    """Return the tensors of a tree, in the order of ``map_tensors``."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Batch):
        return tree.tensors
    parts = list(tree.values()) if isinstance(tree, Mapping) else tree
    found: list[Tensor] = []
    if not isinstance(parts, (tuple, list)):
        return found
    for part in parts:
        found += [part] if isinstance(part, torch.Tensor) else tensors(part)
    return found


def batch(
    x: RowsLike,
    dtype: torch.dtype,
    device: torch.device,
    columns: Mapping[str, list[str]] | None = None,
) -> Batch:
    """Validate and convert the inputs of a module.

    Parameters
    ----------
    x : Tensor, array, or tuple, list or dict of them
        n rows. Real and complex numbers are converted to the precision of ``dtype``; integers and
        booleans are not converted (token ids, masks). Arrays are moved to ``device``.
    dtype : torch.dtype
    device : torch.device
    columns : mapping of str to list of str, optional
        Column names of the tables that were learned, by path in the input.

    Raises
    ------
    ColumnError
        If a table lacks columns that were learned, or has additional columns.
    ShapeError
        If there are no tensors, tensors without rows, or different numbers of rows.
    TypeMismatchError
        If an input is not a tensor of numbers, or is on another device.
    NotFiniteError
        If a number is nan or infinite.
    """
    if isinstance(x, list) and _numeric(x):
        x = _array(x, "x")
    reader = _Reader(dtype, device, columns or {})
    tree = reader.read(x, "x")
    n = _agreed(reader.found)
    _refuse_nonfinite(reader.found, dtype)
    if isinstance(tree, dict):  # sorted: batches are joined tensor by tensor
        kwargs = {str(key): tree[key] for key in sorted(tree, key=str)}
        return Batch((), kwargs, n, n, reader.columns)
    args = tuple(tree) if isinstance(tree, (tuple, list)) else (tree,)
    return Batch(args, {}, n, n, reader.columns)


def _numeric(values: object) -> bool:
    """Return whether a list contains only numbers, at any depth."""
    if isinstance(values, list):
        return bool(values) and all(_numeric(each) for each in values)
    return isinstance(values, (int, float, np.number)) and not isinstance(values, bool)


class _Reader:
    """Converts a tree and collects its tensors with their paths."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, learned: Mapping[str, list[str]]
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.learned_columns = learned
        self.columns: dict[str, list[str]] = {}
        self.found: list[tuple[str, Any]] = []

    def read(self, x: Any, path: str) -> Any:
        if isinstance(x, Mapping):
            return {key: self.read(each, f"{path}[{key!r}]") for key, each in x.items()}
        if isinstance(x, (tuple, list)):
            parts = [self.read(each, f"{path}[{i}]") for i, each in enumerate(x)]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, _CONSTANTS) and path != "x":
            return x
        tensor = self._tensor(x, path)
        self.found.append((path, tensor))
        return tensor

    def _tensor(self, x: Any, path: str) -> Tensor:
        if isinstance(x, torch.Tensor):
            tensor = self._placed(x, path)
        else:
            named = isinstance(x, Table) or is_frame(x)
            array = self._by_name(x, path) if named else _array(x, path)
            tensor = torch.from_numpy(torch_compatible(array)).to(self.device)
        if tensor.is_complex():
            return tensor.to(_COMPLEX.get(self.dtype, torch.complex64))
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _placed(self, x: Tensor, path: str) -> Tensor:
        if x.device != self.device:
            raise TypeMismatchError(
                f"`{path}` must be on {self.device}, the device of the module, got a "
                f"tensor on {x.device}. Move it with .to({str(self.device)!r})."
            )
        # tensors created in inference_mode cannot take part in autograd, but copies can
        return x.clone() if x.is_inference() else x.detach()

    def _by_name(self, x: TableLike, path: str) -> Array:
        """Return the columns of a table or frame, in the learned order if they are named."""
        values, names = matrix(x, names=self.learned_columns.get(path))
        if names is not None:
            self.columns[path] = names
        plain = values if isinstance(x, Table) else np.asarray(x)
        if plain.dtype.kind not in "biu":
            return values
        order = Table.from_frame(x).names  # integers stay integers, for embeddings
        return plain if names is None else plain[:, [order.index(name) for name in names]]


def _agreed(found: list[tuple[str, Tensor]]) -> int:
    """Return the number of rows, which must be equal for all tensors."""
    if not found:
        raise ShapeError(
            "`x` must contain at least one tensor of shape (n, …), got none. Pass the "
            "arguments of the module's forward."
        )
    for path, each in found:
        if each.ndim == 0:
            raise ShapeError(
                f"`{path}` must have a first axis that counts rows, got a single number. Pass an "
                "array of shape (n, …); for one row, X[0:1] instead of X[0]."
            )
    n = int(found[0][1].shape[0])
    for path, each in found[1:]:
        if each.shape[0] != n:
            raise ShapeError(
                f"all tensors must have the same number of rows, got {n} in `{found[0][0]}` and "
                f"{each.shape[0]} in `{path}`. The first axis of each tensor counts rows; register "
                "a tensor that all rows share as a buffer of the module."
            )
    return n


def _refuse_nonfinite(found: list[tuple[str, Tensor]], dtype: torch.dtype) -> None:
    """Check that all values are finite; the error locates the first non-finite value."""
    plain = [torch.view_as_real(each) if each.is_complex() else each for _, each in found]
    floating = [each for each in plain if each.is_floating_point()]
    if not floating:
        return
    if linalg.on_device(
        floating[0]
    ):  # synchronises once: rows must be checked before they are learned
        all_finite = bool(torch.stack([torch.isfinite(each).all() for each in floating]).all())
    else:
        all_finite = linalg.finite(*floating)
    if all_finite:
        return
    for path, each in found:
        bad = (~torch.isfinite(each)).nonzero()
        if len(bad):
            row, *inner = bad[0].tolist()
            value = each[tuple(bad[0].tolist())].item()
            word = "nan" if value != value else "infinity"  # noqa: PLR0124  only nan differs from itself
            raise NotFiniteError(
                f"`{path}` must be finite in {dtype}",
                got=word,
                remedy="Drop the row, or impute it before learning; numbers too large for the "
                "dtype need scaling.",
                row=row,
                column=inner[0] if len(inner) == 1 else tuple(inner) or None,
            )


def numbers(given: ArrayLike | Tensor, name: str) -> Tensor:
    """Convert real numbers to a detached tensor; tensors stay on their device.

    Parameters
    ----------
    given : Tensor, array, or list of numbers or of tensors of one shape
    name : str
        Name of the argument, for messages.

    Raises
    ------
    ShapeError
        If the rows have several lengths.
    TypeMismatchError
        If ``given`` does not contain real numbers.
    """
    if isinstance(given, torch.Tensor):
        tensor = given
    elif isinstance(given, (list, tuple)) and given and all(map(torch.is_tensor, given)):
        try:
            tensor = torch.stack([each.detach() for each in given])
        except RuntimeError as error:
            raise _uneven(name) from error
    else:
        tensor = torch.from_numpy(torch_compatible(_array(given, name)))
    if tensor.is_complex():
        raise TypeMismatchError(
            f"`{name}` must contain real numbers, got complex numbers. Pass real and "
            "imaginary parts as two outputs."
        )
    return tensor.detach()


def _array(given: Any, name: str) -> Array:
    """Convert to an array of numbers."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise _uneven(name) from error
    if array.dtype.kind not in "biufc":
        raise TypeMismatchError(
            f"`{name}` must contain numbers, got {type(given).__name__} of {array.dtype}. Pass "
            "tensors or arrays of numbers; encode text, and number classes from 0."
        )
    return array


def _uneven(name: str) -> ShapeError:
    return ShapeError(
        f"`{name}` must have as many numbers in each row, got rows of several lengths. "
        "Pass an array, padded if necessary."
    )


_TABLES = (nn.Embedding, nn.EmbeddingBag)
_AT_ONCE = 1024  # rows


def holds_indices(rows: Batch) -> bool:
    """Return whether rows contain integers, which may be indices of embeddings.

    Parameters
    ----------
    rows : Batch
    """
    real = (each.is_floating_point() or each.is_complex() for each in rows.tensors)
    return not all(real)


def check_table_indices(
    module: nn.Module, rows: Batch, evaluate: Callable[[Batch], object]
) -> None:
    """Check indices into embedding tables in a forward pass; synchronises with a device.

    Parameters
    ----------
    module : torch.nn.Module
    rows : Batch
    evaluate : callable
        Evaluates the module.

    Raises
    ------
    ShapeError
        If an index is out of range of a table.
    """
    tables = [(name, each) for name, each in module.named_modules() if isinstance(each, _TABLES)]
    for i in range(0, rows.n if tables else 0, _AT_ONCE):
        part = rows[i : i + _AT_ONCE]
        with ExitStack() as hooks:
            for name, table in tables:
                watch = _watch(name, i, part.n)
                handle = table.register_forward_pre_hook(watch, prepend=True, with_kwargs=True)
                hooks.callback(handle.remove)
            evaluate(part)


def _watch(name: str, first: int, n: int) -> Callable[..., None]:
    """Return a forward pre-hook that checks the indices of n rows, numbered from ``first``."""

    def check(
        table: nn.Embedding | nn.EmbeddingBag,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        places = args[0] if args else kwargs.get("input")
        if not isinstance(places, torch.Tensor) or not places.numel():
            return
        bad = (places < 0) | (places >= table.num_embeddings)
        if not bool(bad.any()):
            return
        at = bad.nonzero()[0]
        raise ShapeError(
            f"indices into {type(table).__name__} {name!r} must be from 0 to "
            f"{table.num_embeddings - 1}",
            got=int(places[tuple(at)]),
            remedy="Number categories from 0, use a table with a row for each category, and map "
            "unknown values to one reserved index.",
            row=first + int(at[0]) if len(places) == n > 1 else None,
        )

    return check


_CALL = re.compile(r"forward\(\) (got|missing|takes)")
_PLACES = re.compile(r"out of (range|bounds)|valid range")
_RAISED = "the module raised this when it was given"
_UNFIT = (RuntimeError, ValueError, IndexError)  # raised by torch for dtypes, indices and shapes
_SHAPES = ("shape", "size", "dimension", "channel", "elements")


def as_matrix(given: object, n: int) -> Tensor:
    """Convert the outputs of a module to shape (n, c); axes after the first are flattened.

    Parameters
    ----------
    given : object
        Result of the module: a tensor, an object or dict with ``logits``, or a tuple, list or dict
        of one tensor.
    n : int
        Number of input rows.

    Raises
    ------
    TypeMismatchError
        If the result is not one tensor of real numbers.
    ShapeError
        If the result does not have n rows, or has no outputs.
    """
    tensor = chosen(given)
    if not tensor.is_floating_point():
        raise TypeMismatchError(
            "the module's outputs must be real numbers with a derivative, got "
            f"{tensor.dtype}. Return scores instead of classes, and complex outputs as "
            "two real outputs (torch.view_as_real)."
        )
    if tensor.ndim == 0 and n == 1:
        return tensor.reshape(1, 1)
    if tensor.ndim == 0 or tensor.shape[0] != n:
        raise ShapeError(
            f"the module must return one row of outputs for each of {n} rows, got shape "
            f"{tuple(tensor.shape)}. The first axis counts rows; for one row, pass "
            "X[0:1] instead of X[0]. Preserve the first axis in forward: "
            "batch_first=True, flatten(1), squeeze(-1), and no mean over rows."
        )
    if 0 in tensor.shape[1:]:
        raise ShapeError(
            "the module must return at least one output per row, got shape "
            f"{tuple(tensor.shape)}. Use a last layer with outputs."
        )
    return tensor.reshape(n, tensor.shape[1:].numel())


def refuse_width(found: int, c: int) -> None:
    """Check that the number of outputs per row is that of the first learned rows.

    Parameters
    ----------
    found, c : int

    Raises
    ------
    ShapeError
    """
    if found != c:
        raise ShapeError(
            f"the module must return {c} output(s) per row, as when first learned, got "
            f"{found}. Pass rows of the same shape; if a row has one output per step, truncate or "
            "pad all rows to the same number of steps, or return only the last output."
        )


def chosen(given: object) -> Tensor:
    """Return the tensor in a module's result: the result, its ``logits``, or its only element.

    Raises
    ------
    TypeMismatchError
        If the result contains several tensors, or none.
    """
    if isinstance(given, torch.Tensor):
        return given
    named = given.get("logits") if isinstance(given, Mapping) else None
    named = getattr(given, "logits", None) if named is None else named
    if isinstance(named, torch.Tensor):
        return named
    parts = list(given.values()) if isinstance(given, Mapping) else given
    if isinstance(parts, (tuple, list)):
        leaves = [each for each in parts if isinstance(each, torch.Tensor)]
        if len(leaves) == 1 and len(parts) == 1:
            return leaves[0]
    size = f" of {len(given)}" if isinstance(given, (tuple, list, Mapping)) else ""
    raise TypeMismatchError(
        "the module must return one tensor, or an object with `logits`, got "
        f"{type(given).__name__}{size}. Wrap the module in another whose forward "
        "returns the tensor to train, such as module(x)[0]."
    )


@contextmanager
def module_errors(batch: Batch, check: Callable[[], None]) -> Iterator[None]:
    """Context that converts errors of a module about shapes or dtypes, and annotates other errors.

    Parameters
    ----------
    batch : Batch
    check : callable
        Raises a more precise error if an index is out of range.
    """
    try:
        yield
    except (torch.OutOfMemoryError, OnepassError):
        raise
    except Exception as error:
        if isinstance(error, _UNFIT):
            _looked(check)
        refused = _refused(error, batch)
        if refused is not None:
            raise refused from error
        error.add_note(f"{_RAISED} {batch.description}.")
        raise


def raised_by_module(error: Exception) -> bool:
    """Return whether an error was raised by the module itself and is not about shapes or dtypes.

    Parameters
    ----------
    error : Exception
    """
    return any(_RAISED in note for note in getattr(error, "__notes__", ()))


def _looked(check: Callable[[], None]) -> None:
    try:
        check()
    except ShapeError:
        raise
    except Exception:  # noqa: BLE001, S110  the original error is raised
        pass


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def _refused(error: Exception, batch: Batch) -> Exception | None:
    """Return the error for arguments, dtypes, indices or shapes that a module rejects, or None."""
    message, description = first_line(error), batch.description
    lowered = message.lower()
    if isinstance(error, TypeError) and _CALL.search(message):
        names = f", named {', '.join(map(repr, batch.kwargs))}" if batch.kwargs else ""
        return TypeMismatchError(
            "`x` must contain the arguments of the module's forward, got "
            f"{len(batch.args) + len(batch.kwargs)}{names}, and forward raised: {message}. Pass "
            "positional arguments as a tuple or list, or keyword arguments as a dict."
        )
    if not isinstance(error, _UNFIT):
        return None
    if "dtype" in lowered or "scalar type" in lowered:
        return TypeMismatchError(
            f"the module must accept its inputs, got {description}, and it raised: {message}. "
            "Integers are not converted, since they may be indices: pass real numbers as floats."
        )
    if holds_indices(batch) and _PLACES.search(lowered):
        return ShapeError(
            f"integers in `x` must be valid indices, got {description}, and the module raised: "
            f"{message}. Number them from 0 to the size of the indexed table minus one."
        )
    if any(word in lowered for word in _SHAPES):
        single = any(each.ndim == 1 for each in batch.tensors)
        return ShapeError(
            f"the module must accept its inputs, got {description}, and it raised: {message}. The "
            "first axis counts rows; for one row, pass X[0:1] instead of X[0]; "
            f"{'for one column, X[:, None]' if single else 'check the other axes'}."
        )
    return None
