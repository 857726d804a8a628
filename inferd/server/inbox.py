"""What a client sends ahead of its answers: bytes to requests, a bounded number of them."""

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from inferd.errors import InferdError, InvalidFrameError, PeerError
from inferd.limits import LARGE_LINE_BYTES, READ_AHEAD_BYTES, READ_AHEAD_REQUESTS
from inferd.server.activity import Activity
from inferd.wire.codec import Request, decode_cancel
from inferd.wire.framing import LineSplitter

R = TypeVar("R", bound=Request)


class Arrival(NamedTuple, Generic[R]):
    """A request that has been read."""

    request: R
    activity: Activity
    refusal: InferdError | None = None
    """Why it is not to be served, where that is known as it is read."""


class Inbox(Generic[R]):
    """Bytes in, requests out; a cancel takes effect as soon as it is read.

    Bounds:
        Holds ``READ_AHEAD_REQUESTS`` and ``READ_AHEAD_BYTES`` besides one request of any
        size, for a caller that feeds it only while ``has_room``.

    Args:
        decode: reads a line.
        begin: called for each request as it is read, with its id and length in bytes.
    """

    def __init__(
        self, decode: Callable[[bytes], R], begin: Callable[[str, int], Activity]
    ) -> None:
        self._decode = decode
        self._begin = begin
        self._splitter = LineSplitter()
        self._arrivals: deque[Arrival[R] | PeerError] = deque()
        self._n_bytes = 0
        self._n_lines = 0
        self._current: Activity | None = None
        self._refusal: InferdError | None = None
        self._is_cut_off = False
        self._has_ended = False
        self._is_closed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is there and nothing more will come."""
        return self._is_closed and not self._arrivals

    @property
    def has_room(self) -> bool:
        """Whether to read on: always, while nothing is there to be answered."""
        if self._has_ended or self._is_closed:
            return False
        if self._current is None and not self._arrivals:
            return True
        n_bytes = self._n_bytes + self._splitter.pending_bytes
        return len(self._arrivals) < READ_AHEAD_REQUESTS and n_bytes < READ_AHEAD_BYTES

    @property
    def is_large(self) -> bool:
        """Whether all there is is a line that has begun, and is no small one.

        One that the client cannot go on with is as large as it gets.
        """
        return (
            self.has_room
            and not self._is_cut_off
            and self._current is None
            and not self._arrivals
            and self._splitter.pending_bytes >= LARGE_LINE_BYTES
        )

    @property
    def unfinished(self) -> int | None:
        """The number of the line that has begun and not ended, where all are taken."""
        return self._n_lines if self._splitter.pending_bytes else None

    def feed(self, data: bytes | bytearray) -> None:
        """Add what was read; nothing stands for the client's end."""
        if data:
            self._splitter.feed(data)
        else:
            self._has_ended = True
        self._sort()

    def close(self) -> None:
        """Take nothing more, not even of what was fed."""
        self._is_closed = True

    def refuse(self, refusal: InferdError) -> None:
        """Have the requests refused that are read from here on; cancels are heard."""
        self._refusal = refusal

    def cut_off(self) -> None:
        """Note that the client can send no more: half a line may be all there is of it."""
        self._is_cut_off = True

    def take(self) -> Arrival[R] | PeerError | None:
        """Take the next request, which is the current one then.

        Returns:
            The request, or why the next line is none; ``None`` if there is no line.
        """
        self._sort()
        self._current = None
        if not self._arrivals:
            return None
        arrival = self._arrivals.popleft()
        if isinstance(arrival, Arrival):
            self._n_bytes -= arrival.activity.n_bytes
            self._current = arrival.activity
        self._sort()
        return arrival

    @property
    def waiting(self) -> list[Activity]:
        """What was read and not taken yet, in order."""
        return [each.activity for each in self._arrivals if isinstance(each, Arrival)]

    def _sort(self) -> None:
        """Make requests of the lines that are whole, as many as there is room for."""
        while not self._is_closed and len(self._arrivals) < READ_AHEAD_REQUESTS:
            try:
                frame = self._splitter.next_frame()
                if frame is not None:
                    self._n_lines += 1
                    self._accept(frame)
                elif self._has_ended:
                    self._is_closed = True
                    self._accept_rest()
                else:
                    return
            except PeerError as error:
                self._is_closed |= error.closes_connection
                self._arrivals.append(error)

    def _accept_rest(self) -> None:
        """Take a last line without a newline, unless it was to go on."""
        try:
            if rest := self._splitter.last_frame():
                self._accept(rest)
        except InvalidFrameError:
            if not self._is_cut_off:
                raise

    def _accept(self, frame: bytes) -> None:
        if cancel := decode_cancel(frame):
            self._cancel(cancel.id)
        else:
            self._put(frame)

    def _put(self, frame: bytes) -> None:
        request = self._decode(frame)
        activity = self._begin(request.id, len(frame))
        self._arrivals.append(Arrival(request, activity, self._refusal))
        self._n_bytes += activity.n_bytes

    def _cancel(self, request_id: str) -> None:
        for activity in (self._current, *self.waiting):
            if activity is not None and activity.request_id == request_id:
                activity.cancel()
