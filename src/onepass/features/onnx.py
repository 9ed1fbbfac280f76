"""Outputs of a network in an ONNX file as features.

ONNX is a format for networks of any framework; onnxruntime evaluates them. The file defines the
shape and type of the input, and its outputs:

    z = f(x),                 one output of the file, flattened                                (1)

Cost: one evaluation of f per row, and memory for the outputs of one row.

[1] ONNX, Open Neural Network Exchange, intermediate representation, https://onnx.ai.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from onepass.declared import param
from onepass.errors import ParameterError, TypeMismatchError, import_extra
from onepass.features.pretrained import FrozenNetwork, OpenNetwork
from onepass.types import Array, Floats

_TYPES = {
    "tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2",
    "tensor(uint8)": "u1", "tensor(uint16)": "u2", "tensor(uint32)": "u4", "tensor(uint64)": "u8",
    "tensor(int8)": "i1", "tensor(int16)": "i2", "tensor(int32)": "i4", "tensor(int64)": "i8",
}  # fmt: skip
_FATAL = 4  # onnxruntime raises errors and need not log them


@dataclass(eq=False, repr=False)
class ONNXFeatures(FrozenNetwork):
    """Outputs of a network in an ONNX file as features (extra ``onnx``).

    Nothing is learned, so a learner after it stays exact. The file defines the shape and type of a
    row; other rows are rejected. If the network accepts a fixed number of rows, the last batch is
    padded with zeros.

    Rows are passed on unchanged, without division of bytes by 255: scale them as in training. Block
    sizes affect the last bits of the features, since rounding in matrix products depends on the
    number of rows; with ``batch_size=1`` they have no effect.

    Model files contain the path and the digest of the ONNX file, not the network. ``op.load`` opens
    the file at that path, and raises an error if the file has changed; ``op.load(path, model=...)``
    uses another path. A network that was passed as bytes must be passed again in this way.

    Parameters
    ----------
    model : path-like or bytes
        The file, or its content.
    output : str, optional
        The name of the output, if the file has several.
    shape : tuple of int, optional
        Shape of one row that the network accepts, such as (3, 32, 32), if the file does not define
        it.
    batch_size : int, default=64
        Number of rows per forward pass, >= 1, unless the file fixes it.
    providers : sequence of str, optional
        Execution providers of onnxruntime, in order of preference; by default
        ``["CPUExecutionProvider"]``. ``onnxruntime.get_available_providers()`` lists them.

    Attributes
    ----------
    digest_ : str
        SHA-256 of the file.
    shape_ : tuple of int
        Shape of one row that the network accepts.
    trial_ : ndarray of shape (n_features_out_,)
        Output of the network for a row of noise.
    n_features_in_, rows_seen_ : int

    Raises
    ------
    ParameterError
        If a parameter is out of range, the file is missing, is not a network with one input, mixes
        rows, or has changed since learning began.
    ShapeError, ModuleError
        If rows do not have the shape of the input, or the network fails, or does not return numbers
        for each row.
    TypeMismatchError
        If the network accepts integers and the rows contain other numbers.
    NumericalError
        If a feature is not finite; the message contains the row.
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

    _outside: ClassVar[Mapping[str, str]] = {"model": "the path or the content of an ONNX file"}

    _prefix: ClassVar[str] = "onnx"
    _what: ClassVar[str] = "file"

    model: str | os.PathLike[str] | bytes
    _: KW_ONLY
    output: str | None = None
    shape: tuple[int, ...] | None = None
    batch_size: int = param(64, whole=True, low=1)
    providers: Sequence[str] | None = None

    # -- hooks -------------------------------------------------------------------------------------

    def _key(self) -> tuple[Hashable, ...]:
        wanted = (self.output, None if self.providers is None else repr(self.providers))
        if isinstance(self.model, bytes):
            return (*wanted, hash(self.model))
        opened: tuple[Hashable, ...] = vars(self).get("_opened", ((),))[0]
        if (
            opened[: len(wanted) + 1] == (*wanted, str(self.model))
            and not Path(self.model).is_file()
        ):
            return opened  # an open network does not need its file
        at = _path(self.model).stat()
        return (*wanted, str(self.model), at.st_mtime_ns, at.st_size)

    def _digest(self) -> str:
        return hashlib.sha256(_bytes(self.model)).hexdigest()

    def _open(self) -> OpenNetwork:
        runtime = import_extra("onnxruntime", extra="onnx")
        digest, session = self._digest(), self._session(runtime)
        inputs = session.get_inputs()
        sizes = inputs[0].shape if len(inputs) == 1 else []
        if len(sizes) < 2 or inputs[0].type not in _TYPES:
            got = ", ".join(f"{each.name!r} of {each.type} {each.shape}" for each in inputs)
            raise ParameterError(
                "the network must have one input, a tensor whose first axis counts "
                f"rows, got {got or 'no input'}. Export it with this input only."
            )
        rows, *shape = (k if type(k) is int and k > 0 else None for k in sizes)
        name, dtype = inputs[0].name, np.dtype(_TYPES[inputs[0].type])
        output = self._output_name(session)

        def forward(rows: Array) -> Floats:
            with np.errstate(over="ignore"):  # overflow is detected in the features
                given = np.array(rows, dtype=dtype, order="C")
            Z = np.asarray(session.run([output], {name: given})[0])
            return Z.astype(np.float64 if Z.dtype == np.float64 else np.float32, copy=False)

        return OpenNetwork(
            forward, digest, tuple(shape), rows, dtype if dtype.kind in "iu" else None
        )

    def _transform_block(self, X: Floats) -> Floats:
        if (dtype := self._network().integer_dtype) is not None:
            _check_integers(X, dtype)
        return super()._transform_block(X)

    def _session(self, runtime: ModuleType) -> Any:
        providers = self.providers or ["CPUExecutionProvider"]
        there = runtime.get_available_providers()
        if not isinstance(providers, (list, tuple)) or any(p not in there for p in providers):
            raise ParameterError(
                f"`providers` must be a list of providers of onnxruntime, {', '.join(there)}, got "
                f"{providers!r}. Pass some of these, or install another build of onnxruntime."
            )
        options = runtime.SessionOptions()
        options.log_severity_level = _FATAL
        options.use_deterministic_compute = True
        # by path: the weights of a large network are in other files of its folder
        model = self.model if isinstance(self.model, bytes) else str(_path(self.model))
        try:
            return runtime.InferenceSession(model, options, providers=providers)
        except Exception as error:  # onnxruntime's errors have no common base class
            got = "bytes" if isinstance(self.model, bytes) else repr(str(self.model))
            raise ParameterError(
                "`model` must be a network in ONNX that onnxruntime "
                f"{runtime.__version__} can read, got {got}: "
                f"{str(error).strip()[:300]}. Export it again, or upgrade onnxruntime."
            ) from error

    def _output_name(self, session: Any) -> str:
        """Return the name of the output, a tensor of numbers."""
        found = {each.name: each.type for each in session.get_outputs()}
        name = self.output
        if name is None and len(found) == 1:
            name = next(iter(found))
        if not isinstance(name, str) or found.get(name) not in _TYPES:
            got = "none" if name is None else repr(name)
            raise ParameterError(
                "`output` must be the name of a numeric output of the file, which has "
                f"{', '.join(f'{n!r} ({t})' for n, t in found.items())}, got {got}. "
                "Pass one of these as `output`."
            )
        return str(name)


def _path(model: object) -> Path:
    """Return the path of an existing file."""
    if not isinstance(model, (str, os.PathLike)):
        raise TypeMismatchError(
            "`model` must be the path or the bytes of an ONNX file, got "
            f"{type(model).__name__}. Use TorchFeatures for a network of PyTorch."
        )
    path = Path(model)
    if not path.is_file():  # devices and pipes are rejected: they may be endless
        raise ParameterError(
            f"`model` must be an existing ONNX file, got {str(path)!r}, which is not a file. "
            "Restore it, or pass its new path; for a saved model, op.load(path, model=...)."
        )
    return path


def _bytes(model: object) -> bytes:
    """Return the content of the file."""
    if isinstance(model, bytes):
        return model
    path = _path(model)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ParameterError(
            f"`model` must be a readable file, got {str(path)!r}: {error}. Fix its "
            "permissions, or pass another file."
        ) from error


def _check_integers(X: Floats, dtype: np.dtype[Any]) -> None:
    """Reject rows that are not integers of this dtype."""
    info = np.iinfo(dtype)
    # beyond 2⁵³ floats do not represent all integers
    low, high = max(info.min, -(2**53)), min(info.max, 2**53)
    bad = (np.floor(X) != X) | (low > X) | (high < X)
    if bad.any():
        i, j = np.argwhere(bad)[0].tolist()
        raise TypeMismatchError(
            f"rows must contain integers from {low} to {high}, as the file requires",
            got=X[i, j],
            remedy="Do not scale bytes, or export the network with an input of floats.",
            row=i,
            column=j,
        )
