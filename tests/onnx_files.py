"""Small ONNX networks for tests."""

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
    """The bytes of an ONNX file with these nodes; shapes hold None, names or sizes."""
    input_infos = [
        helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()
    ]
    output_infos = [
        helper.make_tensor_value_info(name, gives or kind, shape) for name, shape in outputs.items()
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", input_infos, output_infos, initializers)
    opset = helper.make_opsetid("", 13)
    data: bytes = helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString()
    return data


def doubling(d: int | str, rows: Any = "n", kind: int = TensorProto.FLOAT) -> bytes:
    """A network that doubles its input."""
    node = helper.make_node("Add", ["x", "x"], ["z"])
    return onnx_bytes([node], {"x": [rows, d]}, {"z": [rows, d]}, kind=kind)


def convolution(filters: np.ndarray, side: Any, rows: Any = "n") -> bytes:
    """A convolution followed by ReLU."""
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
