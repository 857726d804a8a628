"""What carries the requests: an interface that a program's own tests can put in place."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request as it is sent: POST over HTTP, lines of the protocol over a socket."""

    url: str
    """``unix:`` and the file name of the daemon's socket, over sockets."""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = field(default=b"", repr=False)
    timeout_s: float
    """Of silence until it has timed out."""


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """An answer."""

    status: int = 200
    body: bytes = field(default=b"", repr=False)
    """Empty of an answer that was streamed."""


class Cancellation:
    """Whether no more of an answer is wanted; it is called to be asked.

    Ownership: any thread may ``cancel``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._interrupt: Callable[[], None] | None = None

    def __call__(self) -> bool:
        """Tell whether to stop."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Have the transport stop, at once if it waits."""
        with self._lock:
            self._is_cancelled = True
            if self._interrupt is not None:
                self._interrupt()

    @contextmanager
    def watched(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call a function when no more is wanted, as long as the block runs.

        Args:
            interrupt: ends a wait; it is called in another thread, and never raises.
        """
        with self._lock:
            self._interrupt = interrupt
            if self._is_cancelled:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None


class HttpClient(Protocol):
    """Sends requests; it is called in threads of the client, in several at once.

    What it raises is told by the callback: ``ConnectionRefusedError`` as "Connection
    refused", ``TimeoutError`` as "Request timed out", any other ``OSError`` as an answer
    that was interrupted.
    """

    def send(self, request: HttpRequest, should_cancel: Cancellation) -> HttpResponse:
        """Send a request; return the whole answer."""
        ...

    def send_streaming(
        self,
        request: HttpRequest,
        on_chunk: Callable[[bytes], None],
        should_cancel: Cancellation,
    ) -> HttpResponse:
        """Send a request; pass the bytes of the answer on as they come.

        Args:
            request: to send.
            on_chunk: called with the body of an answer of status 200, in any pieces; it
                may cancel, once it has all.
            should_cancel: whether no more is wanted.

        Returns:
            The status, and the body of any other status.
        """
        ...
