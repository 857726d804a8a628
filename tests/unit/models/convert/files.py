"""Write the kinds of file that the converter reads, the other way round."""

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Stored = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.int8]

N_HEADS = 4
WIDTH = 64
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "!"]
KINDS = {"float32": 1, "uint8": 2, "int8": 3}


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
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = np.arange(4).tobytes()
    header["embeddings.position_ids"] = {
        "dtype": "I64",
        "shape": [1, 4],
        "data_offsets": [0, len(data)],
    }
    for name, values in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        entry = {"dtype": "F32", "shape": values.shape, "data_offsets": offsets}
        header[name] = entry
        data += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


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


# --- protobuf and ONNX --------------------------------------------------------------


def varint(number: int) -> bytes:
    number %= 1 << 64
    groups = []
    while True:
        number, group = number >> 7, number & 0x7F
        groups.append(group | (0x80 if number else 0))
        if not number:
            return bytes(groups)


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, values: Stored, *, is_raw: bool = True) -> bytes:
    """Write a ``TensorProto``; small values lie in fields of their type."""
    message = b"".join(field(1, size) for size in values.shape)
    message += field(2, KINDS[values.dtype.name])
    if is_raw:
        message += field(9, values.tobytes())
    elif values.dtype == np.float32:
        message += field(4, values.tobytes())
    else:
        message += field(5, b"".join(varint(int(each)) for each in values.ravel()))
    return field(5, message + field(8, name))


def node(operation: str, name: str, inputs: Sequence[str]) -> bytes:
    attribute = field(1, "axis") + field(4, b"\xa0\xff")
    message = b"".join(field(1, each) for each in inputs)
    return field(
        1, message + field(3, name) + field(4, operation) + field(5, attribute)
    )


def quantised(name: str, values: Stored, scale: float, zero: int) -> bytes:
    is_signed = values.dtype == np.int8
    zeros: Stored = np.array(zero, np.int8) if is_signed else np.array(zero, np.uint8)
    return (
        tensor(f"{name}_quantized", values)
        + tensor(f"{name}_scale", np.array(scale, np.float32), is_raw=False)
        + tensor(f"{name}_zero_point", zeros, is_raw=False)
    )


def onnx(graph: bytes) -> bytes:
    return field(1, 7) + field(2, "tests") + field(7, graph) + field(8, field(2, 14))
