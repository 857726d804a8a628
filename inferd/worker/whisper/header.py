"""Read the header of a whisper.cpp model, and see that the file has all that it promises.

The library asserts, or reads on, where a file is not what it should be. So each number is
held against what the models of that kind have, and each tensor against the shape that
follows from them; weights are passed over.
"""

import math
import struct
from typing import BinaryIO, Final, NamedTuple

from inferd.worker.files import another_format
from inferd.worker.limits import WHISPER_TEXT_BYTES
from inferd.worker.llama.ggml_types import BLOCKS
from inferd.worker.whisper.tensors import Shape, shapes

MAGIC: Final = b"lmgg"
"""``ggml`` as a number, little endian."""
AUDIO_CTX: Final = 1500
"""Positions of sound: 50 a second, of 30 s. Timestamps are tokens that count them."""
TEXT_CTX: Final = 448
VOCABULARIES: Final = (51_864, 51_865, 51_866)
"""Tokens, timestamps and all: of English alone, of 99 languages, of 100."""
MELS: Final = (80, 128)
FREQUENCIES: Final = 201
"""Half the samples of a frame, and one: what the library computes."""
STATES: Final = range(1, 4097)
LAYERS: Final = range(1, 129)
TYPES: Final = {
    1: 1,  # F16
    2: 2,  # Q4_0
    3: 3,  # Q4_1
    7: 8,  # Q8_0
    8: 6,  # Q5_0
    9: 7,  # Q5_1
    10: 10,  # Q2_K
    11: 11,  # Q3_K
    12: 12,  # Q4_K
    13: 13,  # Q5_K
    14: 14,  # Q6_K
}
"""ggml's type of the large tensors, by the kind of file. There are files of F32, too: their
convolutions end the process."""
F32: Final = 0
F16: Final = 1

_KINDS_OF_FILES: Final = 1000
"""A file's kind is below it; above it stands the version of its quantisation."""
_NAME_BYTES: Final = 63
_LENGTH_BYTES: Final = 4
_MAX_DIMENSIONS: Final = 4
_CHUNK_BYTES: Final = 1024 * 1024
_SPACE: Final = b" "


class HeaderError(Exception):
    """The file is no model that whisper.cpp could load; its text says what is wrong."""


class Header(NamedTuple):
    """What a model is, in the order in which its file says so."""

    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    n_mels: int
    kind: int

    @property
    def is_multilingual(self) -> bool:
        """Whether it knows more than English."""
        return self.n_vocab > VOCABULARIES[0]

    @property
    def n_languages(self) -> int:
        """How many it knows: of the library's list, the first ones."""
        return self.n_vocab - 51_766 if self.is_multilingual else 1

    @property
    def weights_type(self) -> int:
        """The type of its large tensors, as ggml has it."""
        return TYPES[self.kind % _KINDS_OF_FILES]


def read_header(file: BinaryIO, n_bytes: int) -> Header:
    """Read a header and see that the file has room for all that belongs to the model.

    Args:
        file: that can seek, at its beginning.
        n_bytes: its size.

    Raises:
        HeaderError: it is no such file, contradicts itself, or ends too soon.

    Bounds:
        Memory: a chunk of 1 MiB. Time: 0.5 µs for each token of the vocabulary.
    """
    reader = _Reader(file, n_bytes)
    magic = reader.take(min(n_bytes, len(MAGIC)))
    if magic != MAGIC:
        raise HeaderError(another_format(MAGIC, magic))
    header = Header(*reader.numbers(len(Header._fields)))
    _check(header)
    n_mels, n_frequencies = reader.numbers(2)
    if (n_mels, n_frequencies) != (header.n_mels, FREQUENCIES):
        raise HeaderError(f"its filters of {n_mels} by {n_frequencies} do not fit")
    if not all(map(math.isfinite, reader.reals(n_mels * n_frequencies))):
        raise HeaderError("its filters are not all finite")
    _read_vocabulary(reader, header.n_vocab)
    _read_tensors(reader, header)
    return header


def _check(header: Header) -> None:
    if header.n_vocab not in VOCABULARIES:
        raise HeaderError(f"a vocabulary of {header.n_vocab} tokens is not supported")
    if (header.n_audio_ctx, header.n_text_ctx) != (AUDIO_CTX, TEXT_CTX):
        raise HeaderError(
            f"contexts of {header.n_audio_ctx} and {header.n_text_ctx} are not supported"
        )
    if header.n_mels not in MELS:
        raise HeaderError(f"{header.n_mels} bands of frequency are not supported")
    if header.kind % _KINDS_OF_FILES not in TYPES:
        raise HeaderError(f"its kind {header.kind} is not supported")
    for n_state, n_head, n_layer in (header[2:5], header[6:9]):
        _check_half(n_state, n_head, n_layer, BLOCKS[header.weights_type][0])
    if header.n_audio_state != header.n_text_state:
        raise HeaderError("its two halves are not of one size")


def _check_half(n_state: int, n_head: int, n_layer: int, block: int) -> None:
    if n_state not in STATES or n_layer not in LAYERS:
        raise HeaderError(f"{n_layer} layers of {n_state} numbers are not supported")
    if n_head <= 0 or n_state % n_head:
        raise HeaderError(f"{n_head} heads cannot share {n_state} numbers")
    if n_state % block:
        raise HeaderError(f"{n_state} numbers do not fill blocks of {block}")


def _read_vocabulary(reader: "_Reader", most: int) -> None:
    (n_tokens,) = reader.numbers(1)
    if not 0 < n_tokens <= most:
        raise HeaderError(f"it has {n_tokens} tokens, over {most}")
    # Without a token for a space the library would end the process.
    if not reader.has_text(_SPACE, n_tokens):
        raise HeaderError("its vocabulary has no space")


def _read_tensors(reader: "_Reader", header: Header) -> None:
    missing = shapes(header.n_audio_layer, header.n_text_layer)
    while reader.n_left:
        n_dimensions, n_name, kind = reader.numbers(3)
        if not 0 < n_dimensions <= _MAX_DIMENSIONS or not 0 < n_name <= _NAME_BYTES:
            raise HeaderError("it has a tensor that is none")
        found = reader.numbers(n_dimensions)
        name = reader.take(n_name).decode(errors="replace")
        shape = missing.pop(name, None)
        if shape is None:
            raise HeaderError(
                f"it has a tensor {name!r} that is unknown, or there twice"
            )
        _check_tensor(name, shape, header, (found, kind))
        reader.skip(_tensor_bytes(found, kind))
    if missing:
        raise HeaderError(f"its tensor {min(missing)} is missing")


def _check_tensor(
    name: str, shape: Shape, header: Header, found: tuple[tuple[int, ...], int]
) -> None:
    numbers = header._asdict() | {"n_wide": 4 * header.n_audio_state}
    sizes = tuple(each if isinstance(each, int) else numbers[each] for each in shape)
    is_large = len(sizes) > 1 and not name.endswith(("bias", "positional_embedding"))
    kind = F32
    if is_large:
        # Convolutions are not quantised.
        kind = F16 if ".conv" in name else header.weights_type
    if found != (sizes, kind):
        raise HeaderError(f"its tensor {name} is not of the size that it must have")


def _tensor_bytes(sizes: tuple[int, ...], kind: int) -> int:
    n_numbers, n_bytes = BLOCKS[kind]
    total = n_bytes
    for each in sizes:
        total *= each
    return total // n_numbers


class _Reader:
    """Takes one thing after the other; never beyond the file's end."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._n_bytes = n_bytes
        self._chunk = b""
        self._chunk_at = 0
        self._at = 0

    @property
    def n_left(self) -> int:
        """Bytes of the file after what was taken."""
        return self._n_bytes - self._at

    def take(self, n_bytes: int) -> bytes:
        """Give the next bytes."""
        begin = self._have(n_bytes)
        self._at += n_bytes
        return self._chunk[begin : begin + n_bytes]

    def numbers(self, n: int) -> tuple[int, ...]:
        """Give the next whole numbers."""
        return struct.unpack(f"<{n}i", self.take(4 * n))

    def reals(self, n: int) -> tuple[float, ...]:
        """Give the next numbers of 32 bits."""
        return struct.unpack(f"<{n}f", self.take(4 * n))

    def has_text(self, wanted: bytes, n_texts: int) -> bool:
        """Pass over texts, each behind its length; tell whether one is among them."""
        unpack = struct.Struct("<I").unpack_from
        found = False
        while n_texts:
            whole = _LENGTH_BYTES + WHISPER_TEXT_BYTES
            place = begin = self._have(max(_LENGTH_BYTES, min(whole, self.n_left)))
            chunk = self._chunk
            while n_texts and place + _LENGTH_BYTES <= len(chunk):
                (length,) = unpack(chunk, place)
                if length > WHISPER_TEXT_BYTES:
                    raise HeaderError(f"it has a token of {length} bytes")
                if place + _LENGTH_BYTES + length > len(chunk) and place > begin:
                    break  # the next chunk has all of it
                text = place + _LENGTH_BYTES
                found = found or chunk[text : text + length] == wanted
                place = text + length
                n_texts -= 1
            self.skip(place - begin)
        return found

    def skip(self, n_bytes: int) -> None:
        """Pass over bytes without reading them."""
        self._refuse_beyond(n_bytes)
        self._at += n_bytes

    def _have(self, n_bytes: int) -> int:
        """Have the next bytes in the chunk; give their place in it."""
        self._refuse_beyond(n_bytes)
        begin = self._at - self._chunk_at
        if begin + n_bytes > len(self._chunk):
            self._file.seek(self._at)
            self._chunk = self._file.read(max(n_bytes, _CHUNK_BYTES))
            self._chunk_at, begin = self._at, 0
            if len(self._chunk) < n_bytes:
                raise HeaderError("it became shorter while it was read")
        return begin

    def _refuse_beyond(self, n_bytes: int) -> None:
        if n_bytes > self.n_left:
            raise HeaderError(f"it ends after {self._n_bytes} bytes, too soon")
