"""Read a GGUF file's header, and check that the file can hold what the header declares.

llama.cpp's parser has had bugs by which files wrote out of bounds. So each count, length and
offset is compared with the file's size here first. Only the header is read: long arrays and
texts are skipped by their lengths, and weights are not read.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import BinaryIO, Final, NamedTuple

from inferd.limits.model_files import (
    GGUF_ALIGNMENT_BYTES,
    GGUF_ARRAY_TEXTS,
    GGUF_KEYS,
    GGUF_NAME_BYTES,
    GGUF_TENSORS,
)
from inferd.models.file_error import ModelFileError, WrongFormatError
from inferd.models.ggml_types import BLOCKS
from inferd.models.gguf_header.reader import Reader, read_name, refuse_over
from inferd.models.gguf_header.rules import TOKENS_KEY, fault_of
from inferd.models.gguf_header.values import (
    ARRAY,
    I32,
    KEPT_TEXT_BYTES,
    SIZES,
    TEXT,
    U16,
    U32,
    Value,
    read_number,
    read_numbers,
)

MAGIC: Final = b"GGUF"
VERSIONS: Final = range(2, 4)

_MAX_DIMENSIONS: Final = 4
_MAX_TENSOR_NAME_BYTES: Final = 63  # ggml's own bound, without the final NUL
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = b"general.alignment"
_PARTS_KEY: Final = b"split.count"
_PART_KEY: Final = b"split.no"
_ALL_TENSORS_KEY: Final = b"split.tensors.count"
_NUMBERS: Final = {
    _ALIGNMENT_KEY: U32,
    _PARTS_KEY: U16,
    _PART_KEY: U16,
    _ALL_TENSORS_KEY: I32,
}
"""Keys whose values matter here, and the only type that each may have."""

_ARCHITECTURE_KEY: Final = b"general.architecture"
_ARCHITECTURE_BYTES: Final = 64


class GgufHeader(NamedTuple):
    """Facts from a file's header."""

    n_tensors: int
    n_parts: int = 0
    """Files of a split model; 0 or 1 if it is not split."""
    architecture: bytes = b""
    """``general.architecture``, the prefix of its keys; empty if missing."""
    n_tokens: int = 0
    """Tokens of the vocabulary."""
    n_texts: int = 0
    """Texts in all arrays: tokens and merges."""
    part: int = 0
    """Number of this file among those of a split model, from 0."""
    n_all_tensors: int = 0
    """Tensors in all files of a split model."""


class Tensor(NamedTuple):
    """A tensor's description."""

    name: bytes
    kind: int
    """Its type, as ggml numbers types."""
    n_items: int
    """Its numbers."""
    n_bytes: int


class GgufContents(NamedTuple):
    """All that a header says, but for long texts and the items of long arrays."""

    header: GgufHeader
    values: Mapping[str, Value]
    """By key, without the architecture."""
    tensors: tuple[Tensor, ...]


_NO_TEXTS: Final[Mapping[str, int]] = MappingProxyType({})


def read_header(file: BinaryIO, n_bytes: int) -> GgufHeader:
    """Read the facts that loading needs, and check the header as ``read_contents`` does."""
    return read_contents(file, n_bytes).header


def read_contents(
    file: BinaryIO, n_bytes: int, kept_texts: Mapping[str, int] = _NO_TEXTS
) -> GgufContents:
    """Read a header, and check that the file is large enough for its contents.

    Args:
        file: a seekable file, at any offset.
        n_bytes: its size.
        kept_texts: keys whose texts are kept, with the most bytes of each; other texts
            are kept if they have ``KEPT_TEXT_BYTES`` at most.

    Raises:
        ModelFileError: it is not a GGUF file, its header contradicts itself, or it is truncated.

    Bounds:
        Memory: a chunk of 1 MiB or one name, the descriptions of tensors, and the texts
        that are kept. Time: 0.2 µs per text.
    """
    reader = Reader(file, n_bytes)
    magic = reader.take(min(n_bytes, len(MAGIC)))
    if magic != MAGIC:
        raise WrongFormatError("GGUF", magic)
    version = reader.number(4)
    if version not in VERSIONS:
        raise ModelFileError(f"GGUF version {version} is not supported (2 and 3 are)")
    n_tensors, n_keys = reader.number(8), reader.number(8)
    refuse_over("tensors", n_tensors, GGUF_TENSORS)
    refuse_over("keys", n_keys, GGUF_KEYS)
    values = _read_values(reader, n_keys, kept_texts)
    alignment = values.number(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    if not 0 < alignment <= GGUF_ALIGNMENT_BYTES or alignment & (alignment - 1):
        raise ModelFileError(f"its alignment of {alignment} bytes is not valid")
    tensors = tuple(_read_tensors(reader, n_tensors, alignment))
    _refuse_short(reader, [tensor.n_bytes for tensor in tensors], alignment)
    if fault := fault_of(values.architecture.decode("utf-8", "replace"), values.all):
        raise ModelFileError(fault)
    header = GgufHeader(
        n_tensors,
        values.number(_PARTS_KEY, 0),
        values.architecture,
        values.n_tokens,
        values.n_texts,
        values.number(_PART_KEY, 0),
        values.number(_ALL_TENSORS_KEY, 0),
    )
    return GgufContents(header, values.all, tensors)


class _Values:
    """The values of a header that are checked."""

    def __init__(self, kept_texts: Mapping[str, int]) -> None:
        self._kept_texts = kept_texts
        self.all: dict[str, Value] = {}
        self.architecture = b""
        self.n_texts = 0

    def number(self, key: bytes, default: int) -> int:
        """Return a number whose type was checked, or a default."""
        value = self.all.get(key.decode())
        return default if value is None else int(value.low)

    @property
    def n_tokens(self) -> int:
        """Tokens of the vocabulary."""
        tokens = self.all.get(TOKENS_KEY)
        return (tokens.n_items or 0) if tokens else 0

    def read(self, reader: Reader, key: bytes) -> None:
        """Read or skip the value of a key."""
        kind = reader.number(4)
        if key in _NUMBERS and kind != _NUMBERS[key]:
            raise _wrong_kind(key, kind)
        name = key.decode("utf-8", "replace")
        if kind == ARRAY:
            self.all[name] = self._read_array(reader, key, name)
        elif kind == TEXT and key == _ARCHITECTURE_KEY:
            self.architecture = read_name(reader, _ARCHITECTURE_BYTES)
        elif kind == TEXT:
            most = self._kept_texts.get(name, KEPT_TEXT_BYTES)
            self.all[name] = _read_text(reader, most)
        elif kind in SIZES:
            self.all[name] = read_number(reader, kind)
        else:
            raise _wrong_kind(key, kind)

    def _read_array(self, reader: Reader, key: bytes, name: str) -> Value:
        kind = reader.number(4)
        n_items = reader.number(8)
        if kind == TEXT:
            refuse_over("texts in arrays", n_items, GGUF_ARRAY_TEXTS - self.n_texts)
            reader.skip_texts(n_items)
            self.n_texts += n_items
            return Value(kind, n_items)
        if kind not in SIZES:
            raise _wrong_kind(key, kind)
        return read_numbers(reader, name, kind, n_items)


def _read_text(reader: Reader, most: int) -> Value:
    """Read a text, or skip one of more bytes than are kept."""
    if reader.peek() <= most:
        return Value(TEXT, text=read_name(reader, most))
    reader.skip_texts(1)
    return Value(TEXT, text=b"")


def _read_values(reader: Reader, n_keys: int, kept_texts: Mapping[str, int]) -> _Values:
    values = _Values(kept_texts)
    seen: set[bytes] = set()
    for _ in range(n_keys):
        key = read_name(reader, GGUF_NAME_BYTES)
        if key in seen:
            raise ModelFileError(f"it has the key {_quoted(key)} twice")
        seen.add(key)
        values.read(reader, key)
    return values


def _wrong_kind(key: bytes, kind: int) -> ModelFileError:
    return ModelFileError(f"its key {_quoted(key)} has a value of type {kind}")


def _read_tensors(reader: Reader, n_tensors: int, alignment: int) -> Iterator[Tensor]:
    """Read the tensor descriptions.

    As in ggml, tensors must follow one another without gaps except for alignment, so no two
    can overlap.
    """
    seen: set[bytes] = set()
    expected = 0
    for _ in range(n_tensors):
        name = read_name(reader, _MAX_TENSOR_NAME_BYTES)
        if name in seen:
            raise ModelFileError(f"it has the tensor {_quoted(name)} twice")
        seen.add(name)
        tensor = _read_tensor(reader, name)
        offset = reader.number(8)
        if offset != expected:
            raise ModelFileError(
                f"its tensor {_quoted(name)} is at {offset}, not at {expected}"
            )
        expected = _aligned(offset + tensor.n_bytes, alignment)
        yield tensor


def _read_tensor(reader: Reader, name: bytes) -> Tensor:
    n_dimensions = reader.number(4)
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        raise ModelFileError(
            f"its tensor {_quoted(name)} has {n_dimensions} dimensions"
        )
    shape = [reader.number(8) for _ in range(n_dimensions)]
    kind = reader.number(4)
    if kind not in BLOCKS:
        raise ModelFileError(
            f"its tensor {_quoted(name)} is of the unknown type {kind}"
        )
    n_numbers, n_bytes = BLOCKS[kind]
    n_items = 1
    for each in shape:
        n_items *= each
        if not 0 < n_items * n_bytes <= reader.n_bytes * n_numbers:
            raise ModelFileError(
                f"its tensor {_quoted(name)} of the shape {shape} cannot be in a file of "
                f"{reader.n_bytes} bytes"
            )
    if shape[0] % n_numbers:
        raise ModelFileError(
            f"its tensor {_quoted(name)} has rows that are not whole blocks"
        )
    return Tensor(name, kind, n_items, n_items // n_numbers * n_bytes)


def _refuse_short(reader: Reader, sizes: list[int], alignment: int) -> None:
    """Refuse a file that ends before its last tensor."""
    needed = _aligned(reader.at, alignment)
    for size in sizes:
        needed = _aligned(needed, alignment) + size
    if sizes and needed > reader.n_bytes:
        raise ModelFileError(
            f"it has {reader.n_bytes} bytes of {needed}: part is missing"
        )


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _quoted(name: bytes) -> str:
    """Escape and shorten a name from the file for a message."""
    return ascii(name[:_MAX_TENSOR_NAME_BYTES].decode("utf-8", "replace"))
