"""Outputs of a network in an ONNX file as features.

ONNX is a format for networks of any framework; onnxruntime evaluates them. The file defines the
shape and type of the input, and its outputs:

    z = f(x),                 one output of the file, flattened                                (1)

Cost: that of f a row, and memory for the outputs of one row.

[1] ONNX, Open Neural Network Exchange, intermediate representation, https://onnx.ai.
"""

import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from onepass.errors import ParameterError, TypeMismatchError, import_extra
from onepass.features.pretrained import FrozenNetwork, Opened
from onepass.types import Array, Floats

__all__ = ["ONNXFeatures"]

_WHO = "ONNXFeatures"
_TYPES = {
    "tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2",
    "tensor(uint8)": "u1", "tensor(uint16)": "u2", "tensor(uint32)": "u4", "tensor(uint64)": "u8",
    "tensor(int8)": "i1", "tensor(int16)": "i2", "tensor(int32)": "i4", "tensor(int64)": "i8",
}  # fmt: skip
_FATAL = 4  # onnxruntime raises what is wrong, and need not write it as well


class ONNXFeatures(FrozenNetwork):
    """A network in a file of ONNX as features (extra ``onnx``).

    Nothing is learned, so that a learner behind it is as exact as it is on raw columns. The file
    says in which shape and type a row goes in; rows that do not fit are refused. Where it takes a
    fixed number of rows at once, the last ones are filled up with zeros.

    Numbers go in as they come, bytes not divided by 255: scale them as they were in training.
    How a stream is cut shows in the last bits of the network's type, as matrix products round a
    little differently for other numbers of rows; with ``batch_size=1`` it does not.

    A model file holds the path and the digest of the ONNX file, not the network. ``op.load``
    looks for it there, and refuses it where it is another; ``op.load(path, model=...)`` says where
    else it lies. What was made from bytes wants them again in that way.

    Parameters
    ----------
    model : path-like or bytes
        The file, or what stands in one.
    output : str, optional
        The name of the output that is wanted, where the file has several.
    shape : tuple of int, optional
        Of one row as the network takes it, such as (3, 32, 32), where the file leaves it open.
    batch_size : int, default=64
        Rows that are asked at once, >= 1; where the file fixes their number, that one is taken.
    providers : sequence of str, optional
        What is to compute, by onnxruntime's names, the best first; by default
        ``["CPUExecutionProvider"]``. ``onnxruntime.get_available_providers()`` lists them.

    Attributes
    ----------
    digest_ : str
        SHA-256 of the file.
    shape_ : tuple of int
        Of one row as it goes in.
    trial_ : ndarray of shape (n_features_out_,)
        What the network says of a row of noise.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        If a parameter is out of range, the file is gone, is no network with one input, mixes rows,
        or is another than when learning began.
    ShapeError, ModuleError
        If rows do not fit into the network, or it fails, or gives no number for each row.
    TypeMismatchError
        If it takes whole numbers and is given others.
    NumericalError
        If a feature is not finite; the row is named.
    MissingExtraError
        If onnxruntime is not installed.

    Examples
    --------
    >>> from onnx import TensorProto, helper
    >>> rows, out = (
    ...     helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xz"
    ... )
    >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["z"])], "abs", [rows], [out])
    >>> opset = helper.make_opsetid("", 13)
    >>> net = helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString()
    >>> import onepass as op
    >>> X, y = [[-1.0, 1.0], [-2.0, -2.0], [3.0, -1.0], [0.0, 1.0]], [2.0, 4.0, 4.0, 1.0]
    >>> model = op.Pipeline(ONNXFeatures(net), op.RLSRegressor(ridge=1e-9)).partial_fit(X, y)
    >>> float(model.predict([[-5.0, 5.0]])[0].round(3))
    10.0
    """

    outside: ClassVar[Mapping[str, str]] = {"model": "the path or the bytes of a file of ONNX"}

    _letter: ClassVar[str] = "onnx"
    _who: ClassVar[str] = _WHO
    _what: ClassVar[str] = "file"

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        output: str | None = None,
        shape: tuple[int, ...] | None = None,
        batch_size: int = 64,
        providers: Sequence[str] | None = None,
    ) -> None:
        self.model = model
        self.output = output
        self.shape = shape
        self.batch_size = batch_size
        self.providers = providers

    # -- hooks -------------------------------------------------------------------------------------

    def _key(self) -> tuple[Hashable, ...]:
        wanted = (self.output, None if self.providers is None else repr(self.providers))
        if isinstance(self.model, bytes):
            return (*wanted, hash(self.model))
        held: tuple[Hashable, ...] = vars(self).get("_opened", ((),))[0]
        if held[: len(wanted) + 1] == (*wanted, str(self.model)) and not Path(self.model).is_file():
            return held  # what is open goes on without its file
        at = _path(self.model).stat()
        return (*wanted, str(self.model), at.st_mtime_ns, at.st_size)

    def _digest(self) -> str:
        return hashlib.sha256(_bytes(self.model)).hexdigest()

    def _open(self) -> Opened:
        runtime = import_extra("onnxruntime", extra="onnx", where=_WHO)
        digest, session = self._digest(), self._session(runtime)
        inputs = session.get_inputs()
        sizes = inputs[0].shape if len(inputs) == 1 else []
        if len(sizes) < 2 or inputs[0].type not in _TYPES:
            came = ", ".join(f"{each.name!r} of {each.type} {each.shape}" for each in inputs)
            raise ParameterError(
                f"{_WHO}: the file must take one tensor of rows, along its first axis, got "
                f"{came or 'no input'}. Export the network with such an input alone."
            )
        rows, *shape = (k if type(k) is int and k > 0 else None for k in sizes)
        name, dtype = inputs[0].name, np.dtype(_TYPES[inputs[0].type])
        output = self._wanted(session)

        def ask(rows: Array) -> Floats:
            with np.errstate(over="ignore"):  # what overflows shows in the features
                given = np.array(rows, dtype=dtype, order="C")
            Z = np.asarray(session.run([output], {name: given})[0])
            return Z.astype(np.float64 if Z.dtype == np.float64 else np.float32, copy=False)

        return Opened(ask, digest, tuple(shape), rows, dtype if dtype.kind in "iu" else None)

    def _seen(self, X: Floats) -> Floats:
        if (whole := self._network().whole) is not None:
            _check_whole(X, whole)
        return super()._seen(X)

    def _session(self, runtime: ModuleType) -> Any:
        providers = self.providers or ["CPUExecutionProvider"]
        there = runtime.get_available_providers()
        if not isinstance(providers, (list, tuple)) or any(p not in there for p in providers):
            raise ParameterError(
                f"{_WHO}: `providers` must be a list of those of onnxruntime here, "
                f"{', '.join(there)}, got {providers!r}. Choose of these, or install the "
                "onnxruntime that has it."
            )
        options = runtime.SessionOptions()
        options.log_severity_level = _FATAL
        options.use_deterministic_compute = True
        # by its path, as a large network keeps its weights in files beside it
        model = self.model if isinstance(self.model, bytes) else str(_path(self.model))
        try:
            return runtime.InferenceSession(model, options, providers=providers)
        except Exception as wrong:  # onnxruntime's errors have no root of their own
            came = "bytes" if isinstance(self.model, bytes) else repr(str(self.model))
            raise ParameterError(
                f"{_WHO}: `model` must be a network in ONNX that onnxruntime "
                f"{runtime.__version__} can read, got {came}: {str(wrong).strip()[:300]}. Export "
                "it anew, or upgrade onnxruntime."
            ) from wrong

    def _wanted(self, session: Any) -> str:
        """The name of the output, which is a tensor of numbers."""
        found = {each.name: each.type for each in session.get_outputs()}
        name = self.output
        if name is None and len(found) == 1:
            name = next(iter(found))
        if not isinstance(name, str) or found.get(name) not in _TYPES:
            came = "none" if name is None else repr(name)
            raise ParameterError(
                f"{_WHO}: `output` must be the name of an output of numbers of the file, which "
                f"gives {', '.join(f'{n!r} ({t})' for n, t in found.items())}, got {came}. "
                "Construct it with output=..., one of these."
            )
        return str(name)


def _path(model: object) -> Path:
    """The path of a file that is there."""
    if not isinstance(model, (str, os.PathLike)):
        raise TypeMismatchError(
            f"{_WHO}: `model` must be the path or the bytes of a file of ONNX, got "
            f"{type(model).__name__}. Give a network of PyTorch to TorchFeatures."
        )
    path = Path(model)
    if not path.is_file():  # nor is a device or a pipe read, which need not end
        raise ParameterError(
            f"{_WHO}: `model` must be a file of ONNX that is there, got {str(path)!r}, which is "
            "none. Put it there again, or give where it lies; of a saved model, "
            "op.load(path, model=...)."
        )
    return path


def _bytes(model: object) -> bytes:
    """What stands in the file."""
    if isinstance(model, bytes):
        return model
    path = _path(model)
    try:
        return path.read_bytes()
    except OSError as wrong:
        raise ParameterError(
            f"{_WHO}: `model` must be a file that can be read, got {str(path)!r}: {wrong}. Let "
            "it be read, or give another."
        ) from wrong


def _check_whole(X: Floats, dtype: np.dtype[Any]) -> None:
    """Refuse rows that are no whole numbers of this dtype."""
    info = np.iinfo(dtype)
    # beyond 2⁵³ no float is sure to be a whole number's own
    low, high = max(info.min, -(2**53)), min(info.max, 2**53)
    bad = (np.floor(X) != X) | (low > X) | (high < X)
    if bad.any():
        i, j = np.argwhere(bad)[0].tolist()
        raise TypeMismatchError(
            f"{_WHO}: rows must hold whole numbers from {low} to {high}, as the file says, got "
            f"{X[i, j]} in row {i}, column {j}. Give bytes as they are, or export the network "
            "with an input of floats."
        )
