"""Sequential reader of a GGUF file's header."""

import struct
from typing import BinaryIO, Final

from inferd.limits.model_files import GGUF_TEXT_BYTES
from inferd.models.file_error import ModelFileError

_CHUNK_BYTES: Final = 1024 * 1024


class Reader:
    """Buffered reader that never goes beyond the file's end."""

    def __init__(self, file: BinaryIO, n_bytes: int) -> None:
        self._file = file
        self._chunk = b""
        self._chunk_at = 0
        self.n_bytes = n_bytes
        self.at = 0

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes."""
        begin = self._have(n_bytes)
        self.at += n_bytes
        return self._chunk[begin : begin + n_bytes]

    def number(self, n_bytes: int) -> int:
        """Return the next bytes as an unsigned little-endian integer."""
        return int.from_bytes(self.take(n_bytes), "little")

    def peek(self) -> int:
        """Return the length of the next text without moving on."""
        begin = self._have(8)
        return int.from_bytes(self._chunk[begin : begin + 8], "little")

    def skip(self, n_bytes: int) -> None:
        """Skip bytes without reading them."""
        self._refuse_beyond(n_bytes)
        self.at += n_bytes

    def skip_texts(self, n_texts: int) -> None:
        """Skip length-prefixed texts.

        These are the vocabulary, which takes most of the time, so the loop calls no method
        except for a new chunk.
        """
        unpack = struct.Struct("<Q").unpack_from
        n_left = n_texts
        while n_left:
            place, chunk = self._have(8), self._chunk
            begin, end = place, len(chunk) - 8
            while n_left and place <= end:
                (length,) = unpack(chunk, place)
                if length > GGUF_TEXT_BYTES:
                    raise ModelFileError(f"it has a text of {length} bytes")
                place += 8 + length
                n_left -= 1
            self.skip(place - begin)

    def _have(self, n_bytes: int) -> int:
        """Load the next bytes into the chunk; return their offset in it."""
        self._refuse_beyond(n_bytes)
        begin = self.at - self._chunk_at
        if begin < 0 or begin + n_bytes > len(self._chunk):
            self._file.seek(self.at)
            self._chunk = self._file.read(max(n_bytes, _CHUNK_BYTES))
            self._chunk_at, begin = self.at, 0
            if len(self._chunk) < n_bytes:
                raise ModelFileError("it became shorter while it was read")
        return begin

    def _refuse_beyond(self, n_bytes: int) -> None:
        if n_bytes > self.n_bytes - self.at:
            raise ModelFileError(f"it ends after {self.n_bytes} bytes, amid its header")


def refuse_over(what: str, n_found: int, most: int) -> None:
    """Raise if a count is over its limit."""
    if n_found > most:
        raise ModelFileError(f"it has {n_found} {what}, over {most}")


def read_name(reader: Reader, most: int) -> bytes:
    """Read a short text."""
    length = reader.number(8)
    if length > most:
        raise ModelFileError(f"it has a name of {length} bytes, over {most}")
    return reader.take(length)
