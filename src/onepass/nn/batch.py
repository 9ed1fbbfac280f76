"""Rows as the inputs of a module, and its outputs as a matrix.

Rows are a tensor, or a tuple, list or dict of tensors. A tuple or list holds positional arguments
of ``forward``, a dict its keyword arguments; both may be nested. The first axis of every tensor
counts rows. Text, numbers, booleans and None are passed to ``forward`` as they are. A list of plain
numbers is read as an array, and so is a table of numbers. Named columns are found by name, as in
other learners.

Integer inputs of a module are mostly indices of an embedding. An index outside the embedding raises
an error that does not name the embedding, and on an accelerator it ends the program. So embeddings
are watched in one more forward pass, and such rows are refused.
"""

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

__all__ = [
    "SHAPED",
    "Batch",
    "RowsLike",
    "as_matrix",
    "batch",
    "by_module",
    "chosen",
    "holds_indices",
    "in_a_line",
    "joined",
    "mapped",
    "numbers",
    "refuse_places",
    "refuse_width",
    "tensors",
    "told",
]


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

    def __getitem__(self, at: int | slice | Tensor) -> "Batch":
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
        return self.with_tensors(leaves, len(leaves[0]))

    def __iter__(self) -> Iterator["Batch"]:
        return (self[i] for i in range(self.n))

    def clone(self) -> "Batch":
        """A copy of the rows."""
        return self.with_tensors([each.clone() for each in self.tensors], self.n)

    def real(self, dtype: torch.dtype) -> "Batch":
        """The rows with integers and booleans converted to a floating dtype."""
        leaves = [
            each if each.is_floating_point() or each.is_complex() else each.to(dtype)
            for each in self.tensors
        ]
        return self.with_tensors(leaves, self.n)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The number of rows, and the tree of the shapes of a row."""
        return self.n, mapped((self.args, self.kwargs), lambda each: tuple(each.shape[1:]))

    @property
    def dtype(self) -> Any:
        """The tree of the dtypes."""
        return mapped((self.args, self.kwargs), lambda each: each.dtype)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        return list(tensors((self.args, self.kwargs)))

    @property
    def came(self) -> str:
        """The tensors in words, of the shapes that were given."""
        shapes = ((each, (self.given or self.n, *each.shape[1:])) for each in self.tensors)
        return ", ".join(f"{str(each.dtype)[6:]} {shape}" for each, shape in shapes)

    def with_tensors(self, leaves: Iterable[Tensor], n: int) -> "Batch":
        """The same tree with other tensors, given in the order of ``tensors``."""
        rest = iter(leaves)
        args, kwargs = mapped((self.args, self.kwargs), lambda _: next(rest))
        return replace(self, args=args, kwargs=kwargs, n=n)


RowsLike: TypeAlias = Batch | Table | Tensor | ArrayLike | Mapping[str, object] | Sequence[object]
"""Rows as a module takes them: a tensor or array, or a tuple, list or dict of them; a table."""


def joined(parts: Sequence[Batch | Tensor]) -> Any:
    """Concatenate batches of one shape, or tensors."""
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(list(parts))
    leaves = zip(*(part.tensors for part in parts), strict=True)
    return parts[0].with_tensors([torch.cat(each) for each in leaves], sum(map(len, parts)))


def mapped(tree: object, change: Callable[[Tensor], object]) -> Any:
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


def tensors(tree: object) -> Iterator[Tensor]:
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
    x: RowsLike,
    dtype: torch.dtype,
    device: torch.device,
    where: str,
    columns: Mapping[str, list[str]] | None = None,
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
        try:
            x = np.asarray(x)
        except ValueError as wrong:
            raise ShapeError(
                f"{where}: `x` must have as many numbers in each row, got rows of several lengths. "
                "Give an array of shape (n, …), padded if need be."
            ) from wrong
    reader = _Reader(dtype, device, where, columns or {})
    tree = reader.read(x, "x")
    n = _agreed(reader.found, where)
    _refuse_nonfinite(reader.found, dtype, where)
    if isinstance(tree, dict):  # sorted: batches are joined tensor by tensor
        kwargs = {str(key): tree[key] for key in sorted(tree, key=str)}
        return Batch((), kwargs, n, where, n, reader.columns)
    args = tuple(tree) if isinstance(tree, (tuple, list)) else (tree,)
    return Batch(args, {}, n, where, n, reader.columns)


def _numeric(values: object) -> bool:
    """Whether a list is one of plain numbers, however deep."""
    if isinstance(values, list):
        return bool(values) and all(_numeric(each) for each in values)
    return isinstance(values, (int, float, np.number)) and not isinstance(values, bool)


class _Reader:
    """Reads a tree, and remembers its tensors with the words that lead to each."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, where: str, known: Mapping[str, list[str]]
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.where = where
        self.known = known
        self.columns: dict[str, list[str]] = {}
        self.found: list[tuple[str, Any]] = []

    def read(self, x: Any, path: str) -> Any:
        if isinstance(x, torch.nn.utils.rnn.PackedSequence):
            raise TypeMismatchError(
                f"{self.where}: `{path}` must be a tensor whose first axis counts rows, got a "
                "PackedSequence. Give padded rows and their lengths, and pack them in `forward`."
            )
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
            tensor = torch.from_numpy(self._array(x, path)).to(self.device)
        if tensor.is_complex():
            return tensor.to(_COMPLEX.get(self.dtype, torch.complex64))
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _placed(self, x: Tensor, path: str) -> Tensor:
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

    def _array(self, x: TableLike, path: str) -> Array:
        if isinstance(x, Table) or is_frame(x):
            return torch_compatible(self._by_name(x, path))
        try:
            array = np.asarray(x)
        except (ValueError, TypeError) as wrong:
            raise self._no_numbers(path, str(wrong)) from wrong
        if array.dtype.kind == "O" or array.dtype.kind not in "biufc":
            raise self._no_numbers(path, f"{type(x).__name__} of {array.dtype}")
        return torch_compatible(array)

    def _by_name(self, x: TableLike, path: str) -> Array:
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


def _agreed(found: list[tuple[str, Tensor]], where: str) -> int:
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


def _refuse_nonfinite(found: list[tuple[str, Tensor]], dtype: torch.dtype, where: str) -> None:
    """Refuse nan and infinity, saying the first place where one stands."""
    plain = [torch.view_as_real(each) if each.is_complex() else each for _, each in found]
    loose = [each for each in plain if each.is_floating_point()]
    if not loose:
        return
    if linalg.on_device(loose[0]):  # the one time: a row that is refused must not have been learned
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


def numbers(given: ArrayLike | Tensor, name: str, where: str, remedy: str) -> Tensor:
    """Real numbers as a tensor, detached, wherever they lie.

    Parameters
    ----------
    given : Tensor, array, or list of numbers or of tensors of one shape
    name : str
        What the user calls it, for messages.
    where : str
        The public call, for messages.
    remedy : str
        What to do where there are no numbers, as a sentence.

    Raises
    ------
    ShapeError
        If its rows have several lengths.
    TypeMismatchError
        If it holds no real numbers.
    """
    if isinstance(given, torch.Tensor):
        tensor = given
    elif isinstance(given, (list, tuple)) and given and all(map(torch.is_tensor, given)):
        try:
            tensor = torch.stack([each.detach() for each in given])
        except RuntimeError as wrong:
            raise _uneven(name, where) from wrong
    else:
        tensor = torch.from_numpy(torch_compatible(_array(given, name, where, remedy)))
    if tensor.is_meta:
        raise TypeMismatchError(
            f"{where}: `{name}` must hold numbers, got a tensor on the device 'meta', where there "
            "are none. Make it on the module's device."
        )
    if tensor.is_complex():
        raise TypeMismatchError(
            f"{where}: `{name}` must hold real numbers, got complex ones. Give real and imaginary "
            "parts as two outputs."
        )
    return tensor.detach()


def _array(given: ArrayLike | Tensor, name: str, where: str, remedy: str) -> Array:
    try:
        array = np.asarray(given)
    except ValueError as wrong:
        raise _uneven(name, where) from wrong
    except (TypeError, RuntimeError) as wrong:  # of things that will not be numbers
        said = f"{where}: `{name}` must hold numbers, got {type(given).__name__}: {wrong}. {remedy}"
        raise TypeMismatchError(said) from wrong
    if array.dtype.kind not in "biufc":
        objects = array.dtype.kind == "O" and not array.ndim
        came = type(given).__name__ if objects else f"{array.dtype}"
        raise TypeMismatchError(f"{where}: `{name}` must hold numbers, got {came}. {remedy}")
    return array


def _uneven(name: str, where: str) -> ShapeError:
    return ShapeError(
        f"{where}: `{name}` must have as many numbers in each row, got rows of several lengths. "
        "Give an array of shape (n,) or (n, c)."
    )


_TABLES = (nn.Embedding, nn.EmbeddingBag)
_AT_ONCE = 1024  # rows


def holds_indices(rows: Batch) -> bool:
    """Whether rows hold whole numbers, and so may ask for places.

    Parameters
    ----------
    rows : Batch
    """
    real = (each.is_floating_point() or each.is_complex() for each in rows.tensors)
    return not all(real)


def refuse_places(
    module: nn.Module, rows: Batch, ask: Callable[[Batch], object], where: str
) -> None:
    """Ask a module with all its tables watched; a device is waited for.

    Parameters
    ----------
    module : torch.nn.Module
    rows : Batch
    ask : callable
        Asks the module.
    where : str
        The public call, for messages.

    Raises
    ------
    ShapeError
        If rows ask for a place that a table has not.
    """
    tables = [(name, each) for name, each in module.named_modules() if isinstance(each, _TABLES)]
    for i in range(0, rows.n if tables else 0, _AT_ONCE):
        part = rows[i : i + _AT_ONCE]
        with ExitStack() as held:
            for name, table in tables:
                watch = _watch(name, i, part.n, where)
                handle = table.register_forward_pre_hook(watch, prepend=True, with_kwargs=True)
                held.callback(handle.remove)
            ask(part)


def _watch(name: str, first: int, n: int, where: str) -> Callable[..., None]:
    """A hook that looks at the places that n rows, of which one is the first, ask a table for."""

    def look(
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
        row = f" in row {first + int(at[0])}" if len(places) == n > 1 else ""
        raise ShapeError(
            f"{where}: the whole numbers that {type(table).__name__} {name!r} is asked for must be "
            f"its places, 0 to {table.num_embeddings - 1}, got {int(places[tuple(at)])}{row}. "
            "Number them from 0 on, and make the table as large as the largest plus one, or give "
            "all that are unknown one place of their own."
        )

    return look


SHAPED = (
    "Give rows of the shape of those; where a row has one output for each of its steps, cut or pad "
    "it to as many steps, or let the module give the last alone."
)
"""What to do where a row has another number of outputs."""

_CALL = re.compile(r"forward\(\) (got|missing|takes)")
_PLACES = re.compile(r"out of (range|bounds)|valid range")
_RAISED = "the module raised this when it was given"
_UNFIT = (RuntimeError, ValueError, IndexError)  # what torch raises of dtypes, places and shapes
_SHAPES = ("shape", "size", "dimension", "channel", "elements")


def as_matrix(given: object, n: int, where: str) -> Tensor:
    """The outputs as a tensor of shape (n, c); (n,) is (n, 1), all axes after the first are c.

    Parameters
    ----------
    given : object
        What the module gave: a tensor, an object or dict with ``logits``, or a tuple, list or dict
        that holds one tensor.
    n : int
        The number of rows that were asked.
    where : str
        The public call, for messages.

    Raises
    ------
    TypeMismatchError
        If no one tensor of real numbers can be chosen.
    ShapeError
        If it has not one row for each row asked, or no outputs.
    """
    tensor = chosen(given, where)
    if not tensor.is_floating_point():
        raise TypeMismatchError(
            f"{where}: the module's outputs must be real numbers with a derivative, got "
            f"{tensor.dtype}. Give scores instead of classes, and complex outputs as two real ones "
            "(torch.view_as_real)."
        )
    if tensor.ndim == 0 and n == 1:
        return tensor.reshape(1, 1)
    if tensor.ndim == 0 or tensor.shape[0] != n:
        raise ShapeError(
            f"{where}: the module must give one row of outputs for each of {n} rows, got the shape "
            f"{tuple(tensor.shape)}. The first axis counts rows, of one row too: give X[0:1] in "
            "place of X[0]. Keep it throughout: batch_first=True, flatten(1), squeeze(-1), and no "
            "mean over rows."
        )
    if 0 in tensor.shape[1:]:
        raise ShapeError(
            f"{where}: the module must give at least one output a row, got the shape "
            f"{tuple(tensor.shape)}. Give a last layer with outputs."
        )
    return tensor.reshape(n, tensor.shape[1:].numel())


def refuse_width(came: int, c: int, where: str) -> None:
    """Refuse another number of outputs a row than there was when rows were learned first.

    Parameters
    ----------
    came, c : int
    where : str
        What the user called, for messages.

    Raises
    ------
    ShapeError
    """
    if came != c:
        raise ShapeError(
            f"{where}: the module must give {c} output(s) a row, as when it first learned, got "
            f"{came}. {SHAPED}"
        )


def chosen(given: object, where: str) -> Tensor:
    """The tensor in the outputs of a module: the output, its ``logits``, or its only part.

    Raises
    ------
    TypeMismatchError
        If there are several, or none.
    """
    if isinstance(given, torch.Tensor):
        return given
    named = given.get("logits") if isinstance(given, Mapping) else None
    named = getattr(given, "logits", None) if named is None else named
    if isinstance(named, torch.Tensor):
        return named
    parts = list(given.values()) if isinstance(given, Mapping) else given
    if isinstance(parts, (tuple, list)):
        found = [each for each in parts if isinstance(each, torch.Tensor)]
        if len(found) == 1 and len(parts) == 1:
            return found[0]
    size = f" of {len(given)}" if isinstance(given, (tuple, list, Mapping)) else ""
    raise TypeMismatchError(
        f"{where}: the module must give one tensor, or an object with `logits`, got "
        f"{type(given).__name__}{size}. Wrap it in a module whose forward gives the tensor that is "
        "to be learned, such as module(x)[0]."
    )


@contextmanager
def told(batch: Batch, where: str, look: Callable[[], None]) -> Iterator[None]:
    """Say what came where a module fails on it; what is no fault of shapes or dtypes passes.

    Parameters
    ----------
    batch : Batch
    where : str
        The public call, for messages.
    look : callable
        Raises what says more of a place that there is not, if it can.
    """
    try:
        yield
    except (torch.OutOfMemoryError, OnepassError):
        raise
    except Exception as wrong:
        if holds_indices(batch) and isinstance(wrong, _UNFIT):
            _looked(look)
        refused = _refused(wrong, batch, where)
        if refused is not None:
            raise refused from wrong
        wrong.add_note(f"{where}: {_RAISED} {batch.came}.")
        raise


def by_module(wrong: Exception) -> bool:
    """Whether this is what a module itself raised, and no fault of shapes or dtypes.

    Parameters
    ----------
    wrong : Exception
    """
    return any(_RAISED in note for note in getattr(wrong, "__notes__", ()))


def _looked(look: Callable[[], None]) -> None:
    try:
        look()
    except ShapeError:
        raise
    except Exception:  # noqa: BLE001, S110  it is told as it was raised at first
        pass


def in_a_line(wrong: Exception) -> str:
    """What was said, in a line."""
    return str(wrong).strip().partition("\n")[0].rstrip(".")


def _refused(wrong: Exception, batch: Batch, where: str) -> Exception | None:
    """The error for arguments, dtypes, places or shapes that a module cannot take, or None."""
    said, came = in_a_line(wrong), batch.came
    words = said.lower()
    if isinstance(wrong, TypeError) and _CALL.search(said):
        names = f", named {', '.join(map(repr, batch.kwargs))}" if batch.kwargs else ""
        return TypeMismatchError(
            f"{where}: `x` must hold the arguments of the module's forward, got "
            f"{len(batch.args) + len(batch.kwargs)}{names}, and it raised: {said}. A tuple or "
            "list holds its positional arguments, a dict its keyword arguments by their names."
        )
    if not isinstance(wrong, _UNFIT):
        return None
    if "dtype" in words or "scalar type" in words:
        return TypeMismatchError(
            f"{where}: the module must take what it is given, got {came}, and it raised: {said}. "
            "Whole numbers stay whole, for embeddings: give real numbers as floats."
        )
    if holds_indices(batch) and _PLACES.search(words):
        return ShapeError(
            f"{where}: whole numbers in `x` must be places that the module has, got {came}, and it "
            f"raised: {said}. Number them from 0 on, below the size of what they choose from."
        )
    if any(word in words for word in _SHAPES):
        single = any(each.ndim == 1 for each in batch.tensors)
        return ShapeError(
            f"{where}: the module must take what it is given, got {came}, and it raised: {said}. "
            "The first axis counts rows, of one row too: give X[0:1] in place of X[0]; "
            f"{'of one column give X[:, None]' if single else 'check the others'}."
        )
    return None
