"""Read a GGUF file's header, and see that the file can hold what it promises.

The library's own parser has let files write past its memory before. So each count, length
and offset is held against the file's size here first, and no more is read than the
header: numbers and texts are passed over by their lengths, weights are not looked at.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from inferd.worker.files import another_format
from inferd.worker.limits import (
    GGUF_ALIGNMENT_BYTES,
    GGUF_ARRAY_TEXTS,
    GGUF_KEYS,
    GGUF_NAME_BYTES,
    GGUF_TENSORS,
    GGUF_TEXT_BYTES,
)
from inferd.worker.llama.ggml_types import BLOCKS

MAGIC: Final = b"GGUF"
VERSIONS: Final = range(2, 4)

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_DIMENSIONS: Final = 4
_MAX_TENSOR_NAME_BYTES: Final = 63  # ggml's own bound, without the final NUL
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = b"general.alignment"
_PARTS_KEY: Final = b"split.count"
_NUMBERS: Final = {_ALIGNMENT_KEY: 4, _PARTS_KEY: 2}
"""Keys whose values matter here, and the only type that each may have."""

_ARCHITECTURE_KEY: Final = b"general.architecture"
_TOKENS_KEY: Final = b"tokenizer.ggml.tokens"
_ARCHITECTURE_BYTES: Final = 64

_TEXT: Final = 8
_ARRAY: Final = 9
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a number, by its type in the header."""


class GgufError(Exception):
    """The file is no GGUF file that could be loaded; its text says what is wrong."""


class Header(NamedTuple):
    """What a file says of itself."""

    n_tensors: int
    n_parts: int = 0
    """Files that its model is made of; 0 or 1 where it is whole."""
    architecture: bytes = b""
    """What its keys begin with; empty where it does not say."""
    n_tokens: int = 0
    """Of the vocabulary."""
    n_texts: int = 0
    """Tokens, and how they are merged: all texts in arrays."""


def read_header(file: BinaryIO, n_bytes: int) -> Header:
    """Read a header and see that the file has room for all that it promises.

    Args:
        file: that can seek, at any place.
        n_bytes: its size.

    Raises:
        GgufError: it is not one, its header contradicts itself, or it ends too soon.

    Bounds:
        Memory: a chunk of 1 MiB or one name, and the names. Time: 0.2 µs for each text
        that it holds.
    """
    reader = _Reader(file, n_bytes)
    magic = reader.take(min(n_bytes, len(MAGIC)))
    if magic != MAGIC:
        raise GgufError(another_format(MAGIC, magic))
    version = reader.number(4)
    if version not in VERSIONS:
        raise GgufError(f"GGUF version {version} is not supported (2 and 3 are)")
    n_tensors, n_keys = reader.number(8), reader.number(8)
    _refuse_over("tensors", n_tensors, GGUF_TENSORS)
    _refuse_over("keys", n_keys, GGUF_KEYS)
    values = _read_values(reader, n_keys)
    alignment = values.numbers.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    if not 0 < alignment <= GGUF_ALIGNMENT_BYTES or alignment & (alignment - 1):
        raise GgufError(f"its alignment of {alignment} bytes is none")
    sizes = list(_read_tensors(reader, n_tensors, alignment))
    _refuse_short(reader, sizes, alignment)
    return Header(
        n_tensors,
        values.numbers.get(_PARTS_KEY, 0),
        values.architecture,
        values.n_tokens,
        values.n_texts,
    )


class _Reader:
    """Takes one thing after the other; never beyond the file's end."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._chunk = b""
        self._chunk_at = 0
        self.n_bytes = n_bytes
        self.at = 0

    def take(self, n_bytes: int) -> bytes:
        """Give the next bytes."""
        begin = self._have(n_bytes)
        self.at += n_bytes
        return self._chunk[begin : begin + n_bytes]

    def number(self, n_bytes: int) -> int:
        """Give the next bytes as a whole number without a sign."""
        return int.from_bytes(self.take(n_bytes), "little")

    def skip(self, n_bytes: int) -> None:
        """Pass over bytes without reading them."""
        self._refuse_beyond(n_bytes)
        self.at += n_bytes

    def skip_texts(self, n_texts: int) -> None:
        """Pass over texts, each behind its length.

        They are the vocabulary, so this is where the time goes: the loop has no calls of
        our own but for a new chunk.
        """
        unpack = struct.Struct("<Q").unpack_from
        n_left = n_texts
        while n_left:
            place, chunk = self._have(8), self._chunk
            begin, end = place, len(chunk) - 8
            while n_left and place <= end:
                (length,) = unpack(chunk, place)
                if length > GGUF_TEXT_BYTES:
                    raise GgufError(f"it has a text of {length} bytes")
                place += 8 + length
                n_left -= 1
            self.skip(place - begin)

    def _have(self, n_bytes: int) -> int:
        """Have the next bytes in the chunk; give their place in it."""
        self._refuse_beyond(n_bytes)
        begin = self.at - self._chunk_at
        if begin < 0 or begin + n_bytes > len(self._chunk):
            self._file.seek(self.at)
            self._chunk = self._file.read(max(n_bytes, _CHUNK_BYTES))
            self._chunk_at, begin = self.at, 0
            if len(self._chunk) < n_bytes:
                raise GgufError("it became shorter while it was read")
        return begin

    def _refuse_beyond(self, n_bytes: int) -> None:
        if n_bytes > self.n_bytes - self.at:
            raise GgufError(f"it ends after {self.n_bytes} bytes, amid its header")


def _refuse_over(what: str, n_found: int, most: int) -> None:
    if n_found > most:
        raise GgufError(f"it has {n_found} {what}, over {most}")


def _read_name(reader: _Reader, most: int) -> bytes:
    length = reader.number(8)
    if length > most:
        raise GgufError(f"it has a name of {length} bytes, over {most}")
    return reader.take(length)


class _Values:
    """Those that matter, of all that a header has."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.architecture = b""
        self.n_tokens = 0
        self.n_texts = 0

    def read(self, reader: _Reader, key: bytes) -> None:
        """Read one, or pass over it."""
        kind = reader.number(4)
        if key in _NUMBERS and kind == _NUMBERS[key]:
            self.numbers[key] = reader.number(_SIZES[kind])
        elif key in _NUMBERS:
            raise _wrong_kind(key, kind)
        elif kind == _ARRAY:
            self._pass_array(reader, key)
        elif kind == _TEXT and key == _ARCHITECTURE_KEY:
            self.architecture = _read_name(reader, _ARCHITECTURE_BYTES)
        elif kind == _TEXT:
            reader.skip_texts(1)
        else:
            reader.skip(_size_of(kind, key))

    def _pass_array(self, reader: _Reader, key: bytes) -> None:
        kind = reader.number(4)
        n_items = reader.number(8)
        if kind != _TEXT:
            reader.skip(_size_of(kind, key) * n_items)
            return
        _refuse_over("texts in arrays", n_items, GGUF_ARRAY_TEXTS - self.n_texts)
        reader.skip_texts(n_items)
        self.n_texts += n_items
        if key == _TOKENS_KEY:
            self.n_tokens = n_items


def _read_values(reader: _Reader, n_keys: int) -> _Values:
    values = _Values()
    seen: set[bytes] = set()
    for _ in range(n_keys):
        key = _read_name(reader, GGUF_NAME_BYTES)
        if key in seen:
            raise GgufError(f"it has the key {_quoted(key)} twice")
        seen.add(key)
        values.read(reader, key)
    return values


def _size_of(kind: int, key: bytes) -> int:
    if kind not in _SIZES:
        raise _wrong_kind(key, kind)
    return _SIZES[kind]


def _wrong_kind(key: bytes, kind: int) -> GgufError:
    return GgufError(f"its key {_quoted(key)} has a value of type {kind}")


def _read_tensors(reader: _Reader, n_tensors: int, alignment: int) -> Iterator[int]:
    """Read what each tensor is; give its bytes.

    Tensors follow one another without gaps but for alignment, as ggml has it, so that no
    two can overlap.
    """
    seen: set[bytes] = set()
    expected = 0
    for _ in range(n_tensors):
        name = _read_name(reader, _MAX_TENSOR_NAME_BYTES)
        if name in seen:
            raise GgufError(f"it has the tensor {_quoted(name)} twice")
        seen.add(name)
        size = _tensor_bytes(reader, name)
        offset = reader.number(8)
        if offset != expected:
            raise GgufError(
                f"its tensor {_quoted(name)} is at {offset}, not at {expected}"
            )
        expected = _aligned(offset + size, alignment)
        yield size


def _tensor_bytes(reader: _Reader, name: bytes) -> int:
    n_dimensions = reader.number(4)
    if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
        raise GgufError(f"its tensor {_quoted(name)} has {n_dimensions} dimensions")
    shape = [reader.number(8) for _ in range(n_dimensions)]
    kind = reader.number(4)
    if kind not in BLOCKS:
        raise GgufError(f"its tensor {_quoted(name)} is of the unknown type {kind}")
    n_numbers, n_bytes = BLOCKS[kind]
    n_items = 1
    for each in shape:
        n_items *= each
        if not 0 < n_items * n_bytes <= reader.n_bytes * n_numbers:
            raise GgufError(
                f"its tensor {_quoted(name)} of the shape {shape} cannot be in a file of "
                f"{reader.n_bytes} bytes"
            )
    if shape[0] % n_numbers:
        raise GgufError(f"its tensor {_quoted(name)} has rows of parts of blocks")
    return n_items // n_numbers * n_bytes


def _refuse_short(reader: _Reader, sizes: list[int], alignment: int) -> None:
    """Refuse a file that ends before its last tensor does."""
    needed = _aligned(reader.at, alignment)
    for size in sizes:
        needed = _aligned(needed, alignment) + size
    if sizes and needed > reader.n_bytes:
        raise GgufError(f"it has {reader.n_bytes} bytes of {needed}: part is missing")


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment


def _quoted(name: bytes) -> str:
    """Write a name of the file's so that it can stand in one line."""
    return ascii(name[:_MAX_TENSOR_NAME_BYTES].decode("utf-8", "replace"))
