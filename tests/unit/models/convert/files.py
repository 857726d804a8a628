"""Write the kinds of file that the converter reads, the other way round."""

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from safetensors.numpy import save

Array = npt.NDArray[np.float32]
Stored = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.int8]

N_HEADS = 4
WIDTH = 64
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "!"]


def weights(n_layers: int = 2, n_ctx: int = 8) -> dict[str, Array]:
    """Make up all tensors of a small model: noise, pooler and classifier included."""
    random = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (n_ctx, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    shapes |= norm("embeddings.LayerNorm")
    for layer in range(n_layers):
        block = f"encoder.layer.{layer}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= linear(f"{block}attention.{part}", WIDTH, WIDTH)
        shapes |= norm(f"{block}attention.output.LayerNorm")
        shapes |= linear(f"{block}intermediate.dense", 2 * WIDTH, WIDTH)
        shapes |= linear(f"{block}output.dense", WIDTH, 2 * WIDTH)
        shapes |= norm(f"{block}output.LayerNorm")
    shapes |= linear("pooler.dense", WIDTH, WIDTH) | linear("classifier", 1, WIDTH)
    return {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def linear(name: str, n_out: int, n_in: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


# --- safetensors --------------------------------------------------------------------


def safetensors(tensors: Mapping[str, Array]) -> bytes:
    ids = {"embeddings.position_ids": np.arange(4).reshape(1, 4)}
    return bytes(save({**ids, **tensors}, {"format": "pt"}))


# --- CTranslate2 --------------------------------------------------------------------

CT2_KINDS = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}


def ctranslate2(
    tensors: Mapping[str, npt.NDArray[np.generic]],
    kind: str = "WhisperSpec",
    version: int = 6,
) -> bytes:
    data = struct.pack("<I", version) + ct2_text(kind)
    data += struct.pack("<II", 3, len(tensors))
    for name, values in tensors.items():
        data += ct2_text(name) + struct.pack("<B", values.ndim)
        data += struct.pack(f"<{values.ndim}I", *values.shape)
        data += struct.pack("<BI", CT2_KINDS[values.dtype.name], values.nbytes)
        data += values.tobytes()
    aliases = struct.pack("<I", 1) + ct2_text("an alias") + ct2_text("a tensor")
    return data + aliases


def ct2_text(text: str) -> bytes:
    octets = text.encode() + b"\0"
    return struct.pack("<H", len(octets)) + octets


# --- ONNX ---------------------------------------------------------------------------


def tensor(name: str, values: Stored, *, is_raw: bool = True) -> onnx.TensorProto:
    """Write values as bytes, or in a field of their type."""
    if is_raw:
        return numpy_helper.from_array(values, name)
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    return helper.make_tensor(name, kind, values.shape, values.ravel().tolist())


def node(operation: str, name: str, inputs: Sequence[str]) -> onnx.NodeProto:
    return helper.make_node(operation, inputs, ["y"], name, axis=1)


def quantised(
    name: str, values: Stored, scale: float, zero: int
) -> list[onnx.TensorProto]:
    is_signed = values.dtype == np.int8
    zeros: Stored = np.array(zero, np.int8) if is_signed else np.array(zero, np.uint8)
    return [
        tensor(f"{name}_quantized", values),
        tensor(f"{name}_scale", np.array(scale, np.float32), is_raw=False),
        tensor(f"{name}_zero_point", zeros, is_raw=False),
    ]


def onnx_file(
    tensors: Sequence[onnx.TensorProto], nodes: Sequence[onnx.NodeProto] = ()
) -> bytes:
    graph = helper.make_graph(nodes, "tests", [], [], tensors)
    return bytes(helper.make_model(graph).SerializeToString())
