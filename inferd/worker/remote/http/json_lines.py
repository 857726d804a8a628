"""Lines of JSON, out of the bytes of an answer."""

from collections.abc import Iterator

from inferd.worker.remote.failure import RemoteError


class JsonLineSplitter:
    """Splits bytes into lines; empty ones are skipped.

    Args:
        max_bytes: of one line.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes; yield the lines that they complete.

        Raises:
            RemoteError: a line is too long.
        """
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                yield from self._read(line)
        self._check(len(self._rest))

    def finish(self) -> Iterator[bytes]:
        """Yield the last line, which may end with the answer."""
        yield from self._read(self._rest)
        self._rest = bytearray()

    def _read(self, line: bytearray) -> Iterator[bytes]:
        self._check(len(line))
        if stripped := line.strip():
            yield bytes(stripped)

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise RemoteError(f"the remote sent a line of over {self._max_bytes} bytes")
