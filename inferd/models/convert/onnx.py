"""Read the weights of a BERT graph in ONNX whose matrices are quantised to integers."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from .source import SourceError

Array = npt.NDArray[np.float32]

_QUANTIZED = "_quantized"
_MATRIX = re.compile(r"/(.+?)/(?:Gemm_)?MatMul_quant")


def read_onnx(path: Path) -> dict[str, Array]:
    """Read all weights and biases, by the names from before the export.

    Matrices are ``(out, in)``, as before the export.

    Raises:
        SourceError: the file is not ONNX, is damaged, or its data is in other files.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
        stored = {tensor.name: _values(tensor) for tensor in graph.initializer}
        matrices = _matrices(graph.node, stored)
        return {**_plain(stored), **_embeddings(stored), **matrices}
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path.name}: {error}") from error


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


def _matrices(
    nodes: Iterable[onnx.NodeProto], stored: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the matrices, named after the nodes that multiply by them."""
    found = {}
    for node in nodes:
        name = _MATRIX.fullmatch(node.name)
        if name and node.op_type == "MatMulInteger":
            _, factor, *_ = node.input
            matrix = _dequantized(factor.removesuffix(_QUANTIZED), stored)
            found[name[1].replace("/", ".") + ".weight"] = matrix.T
    return found


def _dequantized(name: str, stored: Mapping[str, Array]) -> Array:
    """Convert integers to floats, with the tensor's zero point and scale."""
    values, zero = stored[name + _QUANTIZED], stored[name + "_zero_point"]
    return (values - zero) * stored[name + "_scale"]


def _values(tensor: onnx.TensorProto) -> Array:
    """Decode a tensor to floats; data in another file is not read.

    Raises:
        KeyError: it has a type that the library does not know.
        TypeError: it has no type.
        ValueError: it has more or fewer values than its shape, or is in another file.
    """
    if uses_external_data(tensor):
        raise ValueError(f"{tensor.name} is in another file")
    return np.asarray(numpy_helper.to_array(tensor), np.float32)
