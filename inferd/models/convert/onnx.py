"""Read the weights of a BERT graph in ONNX whose matrices are quantised to integers.

These fields of the messages are read:

=============  ============================================================
`ModelProto`   7 graph
`GraphProto`   1 node, 5 initializer
`NodeProto`    1 input, 3 name, 4 op_type
`TensorProto`  1 dims, 2 data_type, 4 float_data, 5 int32_data, 8 name,
               9 raw_data
=============  ============================================================
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .protobuf import fields, integers

Array = npt.NDArray[np.float32]

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_TYPES = {1: "<f4", 2: "u1", 3: "i1", 7: "<i8"}
_QUANTIZED = "_quantized"
_MATRIX = re.compile(r"/(.+?)/(?:Gemm_)?MatMul_quant")


def read_onnx(path: Path) -> dict[str, Array]:
    """Read all weights and biases, by the names from before the export.

    Matrices are ``(out, in)``, as before the export.
    """
    model = fields(memoryview(path.read_bytes()))
    graph = next(field.data for field in model if field.number == _GRAPH)
    nodes, stored = [], {}
    for field in fields(graph):
        if field.number == _NODE:
            nodes.append(field.data)
        elif field.number == _INITIALIZER:
            name, values = _tensor(field.data)
            stored[name] = values
    return {**_plain(stored), **_embeddings(stored), **_matrices(nodes, stored)}


def _plain(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors that are not quantised."""
    return {
        name: values
        for name, values in stored.items()
        if name.endswith((".weight", ".bias"))
    }


def _embeddings(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Take tables of rows, which kept their names."""
    names = [name.removesuffix(_QUANTIZED) for name in stored if "embeddings" in name]
    return {
        name: _dequantized(name, stored)
        for name in names
        if name + _QUANTIZED in stored
    }


def _matrices(nodes: list[memoryview], stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return the matrices, named after the nodes that multiply by them."""
    found = {}
    for node in nodes:
        inputs = [field.text for field in fields(node) if field.number == 1]
        rest = {field.number: field for field in fields(node)}
        name = _MATRIX.fullmatch(rest[3].text)
        if name and rest[4].text == "MatMulInteger":
            matrix = _dequantized(inputs[1].removesuffix(_QUANTIZED), stored)
            found[name[1].replace("/", ".") + ".weight"] = matrix.T
    return found


def _dequantized(name: str, stored: Mapping[str, Array]) -> Array:
    """Convert integers to floats, with the tensor's zero point and scale."""
    values, zero = stored[name + _QUANTIZED], stored[name + "_zero_point"]
    return (values - zero) * stored[name + "_scale"]


def _tensor(message: memoryview) -> tuple[str, Array]:
    """Decode a tensor: its name, and its values as floats."""
    shape = [field.integer for field in fields(message) if field.number == 1]
    rest = {field.number: field for field in fields(message)}
    kind = _TYPES[rest[2].integer]
    if small := rest.get(5):
        values = np.array([*integers(small.data)]).astype(kind)
    else:
        values = np.frombuffer((rest.get(9) or rest[4]).data, kind)
    return rest[8].text, values.astype(np.float32).reshape(shape)
