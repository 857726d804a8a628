"""Parse the values of a GGUF file's header."""

import math
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from inferd.limits.model_files import GGUF_ARRAY_NUMBERS, GGUF_ARRAY_TEXTS

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
"""Types of values, by their numbers in the file."""

FLOATS: Final = frozenset({F32, F64})
SIZES: Final = {
    U8: 1,
    I8: 1,
    U16: 2,
    I16: 2,
    U32: 4,
    I32: 4,
    F32: 4,
    BOOL: 1,
    U64: 8,
    I64: 8,
    F64: 8,
}
"""Bytes of a number, by its type."""
KEPT_ITEMS: Final = 1024
"""Longest array whose numbers are kept: one per layer, of which there are at most 512."""
KEPT_TEXT_BYTES: Final = 64
"""Longest text that is kept, in bytes: names of kinds are shorter."""

_CODES: Final = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "b",
    U64: "Q",
    I64: "q",
    F64: "d",
}
_CHUNK_ITEMS: Final = 64 * 1024
_LONG_ARRAYS: Final = frozenset(
    {
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.suppress_tokens",
    }
)
"""Arrays as long as the vocabulary."""

Number = int | float


class Value(NamedTuple):
    """A value, or a summary of an array."""

    kind: int
    """Its type, or that of its items."""
    n_items: int | None = None
    """Length of an array; ``None`` for a single value."""
    items: tuple[Number, ...] = ()
    """The number, or the items of an array of at most ``KEPT_ITEMS``."""
    low: Number = 0
    """Minimum of all items; meaningless if some are not finite, and -inf if the array was
    too long to be read."""
    high: Number = 0
    """Maximum of all items, likewise."""
    is_finite: bool = True
    text: bytes | None = None
    """A text; empty if it was too long to be kept."""

    @property
    def is_number(self) -> bool:
        """Whether it is a single number."""
        return self.n_items is None and self.text is None


class ByteSource(Protocol):
    """Interface of ``Reader`` that parsing needs."""

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes."""

    def skip(self, n_bytes: int) -> None:
        """Skip bytes."""


def read_number(source: ByteSource, kind: int) -> Value:
    """Read a single number."""
    return _value(kind, None, [_numbers(source, kind, 1)])


def read_numbers(source: ByteSource, key: str, kind: int, n_items: int) -> Value:
    """Read an array of numbers, or skip one that is too long to be checked.

    Bounds:
        Memory: a chunk of 64 Ki numbers.
    """
    most = GGUF_ARRAY_TEXTS if key in _LONG_ARRAYS else GGUF_ARRAY_NUMBERS
    if n_items > most:
        source.skip(SIZES[kind] * n_items)
        return Value(kind, n_items, low=-math.inf, high=math.inf)
    chunks = (
        _numbers(source, kind, min(_CHUNK_ITEMS, n_items - begin))
        for begin in range(0, n_items, _CHUNK_ITEMS)
    )
    return _value(kind, n_items, chunks)


def _numbers(source: ByteSource, kind: int, n_items: int) -> tuple[Number, ...]:
    return struct.unpack(
        f"<{n_items}{_CODES[kind]}", source.take(SIZES[kind] * n_items)
    )


def _value(
    kind: int, n_items: int | None, chunks: Iterable[tuple[Number, ...]]
) -> Value:
    items: tuple[Number, ...] = ()
    low, high, is_finite = math.inf, -math.inf, True
    for chunk in chunks:
        if len(items) + len(chunk) <= KEPT_ITEMS:
            items += chunk
        is_finite = is_finite and (kind not in FLOATS or all(map(math.isfinite, chunk)))
        low, high = min(low, *chunk), max(high, *chunk)
    is_kept = len(items) == (1 if n_items is None else n_items)
    return Value(kind, n_items, items if is_kept else (), low, high, is_finite)
