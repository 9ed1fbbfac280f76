"""Small networks as files of ONNX, for the tests that ask them."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def onnx_bytes(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    *,
    weights: dict[str, np.ndarray] | None = None,
    kind: int = TensorProto.FLOAT,
    gives: int | None = None,
) -> bytes:
    """The bytes of a file of these nodes; shapes hold None, names or sizes."""
    taken = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    given = [
        helper.make_tensor_value_info(name, gives or kind, shape) for name, shape in outputs.items()
    ]
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", taken, given, held)
    opset = helper.make_opsetid("", 13)
    whole: bytes = helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString()
    return whole


def doubling(d: int, rows: Any = "n", kind: int = TensorProto.FLOAT) -> bytes:
    """A network that adds a row to itself."""
    node = helper.make_node("Add", ["x", "x"], ["z"])
    return onnx_bytes([node], {"x": [rows, d]}, {"z": [rows, d]}, kind=kind)


def convolution(filters: np.ndarray, side: Any, rows: Any = "n") -> bytes:
    """Filters over pictures, cut off at zero."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["z"]),
    ]
    return onnx_bytes(
        nodes,
        {"x": [rows, filters.shape[1], side, side]},
        {"z": [rows, len(filters), None, None]},
        weights={"w": filters},
    )
