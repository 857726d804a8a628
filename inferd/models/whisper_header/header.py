"""Read the header of a whisper.cpp model, and check that the file is complete.

The library aborts or reads out of bounds if a file is malformed. So every number is compared
with those of known models, and every tensor with the shape that follows from them. Weights
are skipped.
"""

import math
import struct
from typing import BinaryIO, Final, NamedTuple

from inferd.limits.model_files import WHISPER_TEXT_BYTES
from inferd.models.file_error import ModelFileError, WrongFormatError
from inferd.models.ggml_types import BLOCKS
from inferd.models.whisper_header.tensors import Shape, tensor_shapes

MAGIC: Final = b"lmgg"
"""``ggml`` as a number, little endian."""
AUDIO_CTX: Final = 1500
"""Encoder positions: 50 per second, of 30 s. Timestamp tokens count them."""
TEXT_CTX: Final = 448
VOCABULARIES: Final = (51_864, 51_865, 51_866)
"""Vocabulary sizes, timestamps included: for English only, 99 languages, 100 languages."""
MELS: Final = (80, 128)
FREQUENCIES: Final = 201
"""Bins of the Fourier transform: half the samples of a frame, plus one."""
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
"""ggml's type of the large tensors, by the header's file type. F32 files exist, but their
convolutions make the library abort the process."""
F32: Final = 0
F16: Final = 1

_QUANTISATION_FACTOR: Final = 1000
"""The file type is ``kind`` modulo this; the quotient is the quantisation version."""
_NAME_BYTES: Final = 63
_LENGTH_BYTES: Final = 4
_MAX_DIMENSIONS: Final = 4
_CHUNK_BYTES: Final = 1024 * 1024
_SPACE: Final = b" "


class WhisperHeader(NamedTuple):
    """The hyperparameters of a model, in the order of the file."""

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
        """Whether the model knows languages other than English."""
        return self.n_vocab > VOCABULARIES[0]

    @property
    def n_languages(self) -> int:
        """Languages that the model knows: the first ones of the library's list."""
        return self.n_vocab - 51_766 if self.is_multilingual else 1

    @property
    def weights_type(self) -> int:
        """The type of the large tensors, as ggml numbers types."""
        return TYPES[self.kind % _QUANTISATION_FACTOR]


def read_header(file: BinaryIO, n_bytes: int) -> WhisperHeader:
    """Read a header, and check that the file holds all tensors of the model.

    Args:
        file: seekable, at its beginning.
        n_bytes: its size.

    Raises:
        ModelFileError: the file has another format, is inconsistent or is truncated.

    Bounds:
        Memory: a chunk of 1 MiB. Time: 0.5 µs per token of the vocabulary.
    """
    reader = _Reader(file, n_bytes)
    magic = reader.take(min(n_bytes, len(MAGIC)))
    if magic != MAGIC:
        raise WrongFormatError("whisper.cpp model", magic)
    header = WhisperHeader(*reader.numbers(len(WhisperHeader._fields)))
    _check(header)
    n_mels, n_frequencies = reader.numbers(2)
    if (n_mels, n_frequencies) != (header.n_mels, FREQUENCIES):
        raise ModelFileError(
            f"its mel filters are {n_mels} by {n_frequencies}, not "
            f"{header.n_mels} by {FREQUENCIES}"
        )
    if not all(map(math.isfinite, reader.reals(n_mels * n_frequencies))):
        raise ModelFileError("its mel filters are not all finite")
    _read_vocabulary(reader, header.n_vocab)
    _read_tensors(reader, header)
    return header


def _check(header: WhisperHeader) -> None:
    if header.n_vocab not in VOCABULARIES:
        raise ModelFileError(
            f"a vocabulary of {header.n_vocab} tokens is not supported"
        )
    if (header.n_audio_ctx, header.n_text_ctx) != (AUDIO_CTX, TEXT_CTX):
        raise ModelFileError(
            f"contexts of {header.n_audio_ctx} and {header.n_text_ctx} are not supported"
        )
    if header.n_mels not in MELS:
        raise ModelFileError(f"{header.n_mels} mel bands are not supported")
    if header.kind % _QUANTISATION_FACTOR not in TYPES:
        raise ModelFileError(f"its file type {header.kind} is not supported")
    for n_state, n_head, n_layer in (header[2:5], header[6:9]):
        _check_half(n_state, n_head, n_layer, BLOCKS[header.weights_type][0])
    if header.n_audio_state != header.n_text_state:
        raise ModelFileError(
            f"its encoder has {header.n_audio_state} numbers per state and its decoder "
            f"{header.n_text_state}"
        )


def _check_half(n_state: int, n_head: int, n_layer: int, block: int) -> None:
    if n_state not in STATES or n_layer not in LAYERS:
        raise ModelFileError(f"{n_layer} layers of size {n_state} are not supported")
    if n_head <= 0 or n_state % n_head:
        raise ModelFileError(
            f"a layer of size {n_state} does not divide by {n_head} heads"
        )
    if n_state % block:
        raise ModelFileError(
            f"a layer of size {n_state} does not divide into blocks of {block}"
        )


def _read_vocabulary(reader: "_Reader", most: int) -> None:
    (n_tokens,) = reader.numbers(1)
    if not 0 < n_tokens <= most:
        raise ModelFileError(f"it has {n_tokens} tokens, 1 to {most} are allowed")
    # Without a token for a space the library would abort the process.
    if not reader.has_text(_SPACE, n_tokens):
        raise ModelFileError("its vocabulary has no token for a space")


def _read_tensors(reader: "_Reader", header: WhisperHeader) -> None:
    missing = tensor_shapes(header.n_audio_layer, header.n_text_layer)
    while reader.n_left:
        n_dimensions, n_name, kind = reader.numbers(3)
        if not 0 < n_dimensions <= _MAX_DIMENSIONS or not 0 < n_name <= _NAME_BYTES:
            raise ModelFileError(
                f"it has a tensor with {n_dimensions} dimensions and a name of {n_name} "
                f"bytes, 1 to {_MAX_DIMENSIONS} and 1 to {_NAME_BYTES} are allowed"
            )
        found = reader.numbers(n_dimensions)
        name = reader.take(n_name).decode(errors="replace")
        shape = missing.pop(name, None)
        if shape is None:
            raise ModelFileError(f"its tensor {name!r} is unknown or duplicate")
        _check_tensor(name, shape, header, (found, kind))
        reader.skip(_tensor_bytes(found, kind))
    if missing:
        raise ModelFileError(f"its tensor {min(missing)} is missing")


def _check_tensor(
    name: str, shape: Shape, header: WhisperHeader, found: tuple[tuple[int, ...], int]
) -> None:
    numbers = header._asdict() | {"n_wide": 4 * header.n_audio_state}
    sizes = tuple(size if isinstance(size, int) else numbers[size] for size in shape)
    is_large = len(sizes) > 1 and not name.endswith(("bias", "positional_embedding"))
    kind = F32
    if is_large:
        # Convolutions are not quantised.
        kind = F16 if ".conv" in name else header.weights_type
    if found != (sizes, kind):
        raise ModelFileError(f"its tensor {name} has the wrong shape or type")


def _tensor_bytes(sizes: tuple[int, ...], kind: int) -> int:
    n_numbers, n_bytes = BLOCKS[kind]
    total = n_bytes
    for size in sizes:
        total *= size
    return total // n_numbers


class _Reader:
    """Buffered reader of a file that never reads beyond its end."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._n_bytes = n_bytes
        self._chunk = b""
        self._chunk_at = 0
        self._at = 0

    @property
    def n_left(self) -> int:
        """Bytes of the file that were not read or skipped yet."""
        return self._n_bytes - self._at

    def take(self, n_bytes: int) -> bytes:
        """Give the next bytes."""
        begin = self._buffered(n_bytes)
        self._at += n_bytes
        return self._chunk[begin : begin + n_bytes]

    def numbers(self, n: int) -> tuple[int, ...]:
        """Read ``n`` 32-bit integers."""
        return struct.unpack(f"<{n}i", self.take(4 * n))

    def reals(self, n: int) -> tuple[float, ...]:
        """Read ``n`` 32-bit floats."""
        return struct.unpack(f"<{n}f", self.take(4 * n))

    def has_text(self, wanted: bytes, n_texts: int) -> bool:
        """Skip length-prefixed texts; return whether one of them equals ``wanted``."""
        unpack = struct.Struct("<I").unpack_from
        found = False
        while n_texts:
            whole = _LENGTH_BYTES + WHISPER_TEXT_BYTES
            place = begin = self._buffered(max(_LENGTH_BYTES, min(whole, self.n_left)))
            chunk = self._chunk
            while n_texts and place + _LENGTH_BYTES <= len(chunk):
                (length,) = unpack(chunk, place)
                if length > WHISPER_TEXT_BYTES:
                    raise ModelFileError(
                        f"it has a token of {length} bytes, at most {WHISPER_TEXT_BYTES} "
                        "are allowed"
                    )
                if place + _LENGTH_BYTES + length > len(chunk) and place > begin:
                    break  # the next chunk has all of it
                text = place + _LENGTH_BYTES
                found = found or chunk[text : text + length] == wanted
                place = text + length
                n_texts -= 1
            self.skip(place - begin)
        return found

    def skip(self, n_bytes: int) -> None:
        """Skip bytes without reading them."""
        self._check_left(n_bytes)
        self._at += n_bytes

    def _buffered(self, n_bytes: int) -> int:
        """Load the next bytes into the chunk; return their offset in it."""
        self._check_left(n_bytes)
        begin = self._at - self._chunk_at
        if begin + n_bytes > len(self._chunk):
            self._file.seek(self._at)
            self._chunk = self._file.read(max(n_bytes, _CHUNK_BYTES))
            self._chunk_at, begin = self._at, 0
            if len(self._chunk) < n_bytes:
                raise ModelFileError("it was truncated while it was read")
        return begin

    def _check_left(self, n_bytes: int) -> None:
        if n_bytes > self.n_left:
            raise ModelFileError(
                f"it is truncated: it ends after {self._n_bytes} bytes"
            )
