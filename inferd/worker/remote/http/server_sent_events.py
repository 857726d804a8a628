"""Server-sent events, out of the bytes of an answer."""

from collections.abc import Iterator

from inferd.worker.remote.failure import RemoteError


class EventSplitter:
    """Splits bytes into the data of events; comments and other fields are skipped.

    Lines end with a newline, with or without a carriage return before it; no server is known
    that ends them with the latter alone.

    Source: HTML Living Standard, 9.2.6 "Interpreting an event stream".

    Args:
        max_bytes: of one line, and of the data of one event.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._n_data = 0

    @property
    def is_inside(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest or self._data)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes; yield the data of the events that they complete.

        Raises:
            RemoteError: a line or an event is too long.
        """
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                yield from self._read(bytes(line).removesuffix(b"\r"))
        self._check(len(self._rest))

    def finish(self) -> Iterator[bytes]:
        """Yield nothing: an event that has not ended is none."""
        yield from ()

    def _read(self, line: bytes) -> Iterator[bytes]:
        self._check(len(line))
        if not line:
            if self._data:
                yield b"\n".join(self._data)
                self._data, self._n_data = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._n_data += len(value) + 1
            self._check(self._n_data)

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise RemoteError(
                f"the remote sent an event of over {self._max_bytes} bytes"
            )
