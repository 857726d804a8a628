"""What a client sends ahead of its answers: bytes to requests, a bounded number of them."""

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from inferd.errors import (
    InferdError,
    InvalidFrameError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits import LARGE_LINE_BYTES, READ_AHEAD_BYTES, READ_AHEAD_REQUESTS
from inferd.server.activity import Activity
from inferd.server.custody import NOTHING, Parcel
from inferd.server.limits import LINES_A_TURN
from inferd.server.parcels import Parcels
from inferd.wire.codec import Request, decode_append, decode_cancel
from inferd.wire.framing import LineSplitter
from inferd.wire.speech import AppendLine

R = TypeVar("R", bound=Request)


class Arrival(NamedTuple, Generic[R]):
    """A request that has been read."""

    request: R
    activity: Activity
    refusal: InferdError | None = None
    """Why it is not to be served, where that is known as it is read."""


class Inbox(Generic[R]):
    """Bytes in, requests out; a cancel or an append is heard as soon as it is read.

    Bounds:
        Holds ``READ_AHEAD_REQUESTS`` and ``READ_AHEAD_BYTES`` besides one request of any
        size, for a caller that feeds it only while ``has_room``.

    Args:
        decode: reads a line.
        begin: called for each request as it is read, with its length in bytes and what
            came with it.
        parcels: where requests come with descriptors, and lines append to them: has been
            fed all that this is fed.
    """

    def __init__(
        self,
        decode: Callable[[bytes], R],
        begin: Callable[[R, int, Parcel], Activity],
        parcels: Parcels | None = None,
    ) -> None:
        self._decode = decode
        self._begin = begin
        self._parcels = parcels
        self._splitter = LineSplitter()
        self._arrivals: deque[Arrival[R] | PeerError] = deque()
        self._n_bytes = 0
        self._n_lines = 0
        self._current: Activity | None = None
        self._refusal: InferdError | None = None
        self._is_cut_off = False
        self._has_ended = False
        self._is_closed = False
        self.is_behind = False
        """Whether there are more lines to be looked at than one call looks at."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is there and nothing more will come."""
        return self._is_closed and not self._arrivals

    @property
    def has_room(self) -> bool:
        """Whether to read on: always, while nothing is there to be answered."""
        if self._has_ended or self._is_closed:
            return False
        if self._current is None:
            return self._has_room_behind or not self._arrivals
        return self._has_room_behind and self._current.appends.has_room

    @property
    def _has_room_behind(self) -> bool:
        """Whether more may be read behind what is answered, but for what it waits for."""
        n_bytes = self._n_bytes + self._splitter.pending_bytes
        if self._parcels is not None:
            n_bytes += self._parcels.size
            n_bytes += sum(each.appends.pending_bytes for each in self.waiting)
        return len(self._arrivals) < READ_AHEAD_REQUESTS and n_bytes < READ_AHEAD_BYTES

    @property
    def is_large(self) -> bool:
        """Whether all there is is a line that has begun, and is no small one.

        One that the client cannot go on with is as large as it gets.
        """
        return (
            self.has_room
            and not self._is_cut_off
            and not self.is_behind
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
        self.sort()

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
        self.sort()
        self._current = None
        if not self._arrivals:
            return None
        arrival = self._arrivals.popleft()
        if isinstance(arrival, Arrival):
            self._n_bytes -= _size_of(arrival.activity)
            self._current = arrival.activity
        self.sort()
        return arrival

    @property
    def waiting(self) -> list[Activity]:
        """What was read and not taken yet, in order."""
        return [each.activity for each in self._arrivals if isinstance(each, Arrival)]

    def sort(self) -> None:
        """Make requests of the lines that are whole, as many as there is room for.

        Looks at ``LINES_A_TURN`` lines at most; ``is_behind`` tells whether there are more.
        """
        self.is_behind = False
        end = self._n_lines + LINES_A_TURN
        while self._can_sort:
            if self._n_lines >= end:
                self.is_behind = True
                break
            try:
                frame = self._splitter.next_frame()
                if frame is not None:
                    self._n_lines += 1
                    self._accept(frame)
                elif self._has_ended:
                    self._is_closed = True
                    self._accept_rest()
                else:
                    break
            except PeerError as error:
                self._is_closed |= error.closes_connection
                self._arrivals.append(error)
        self._look_after_open()

    @property
    def _can_sort(self) -> bool:
        return not self._is_closed and len(self._arrivals) < READ_AHEAD_REQUESTS

    def _look_after_open(self) -> None:
        """End what waits for more where no more can be read."""
        current = self._current
        if self._is_closed:
            for activity in (*self.waiting, *([current] if current else [])):
                activity.appends.end()
        elif current and current.appends.is_open and not self._has_room_behind:
            current.fail(
                InvalidRequestError(
                    "an attachment is open, and what follows is over the "
                    f"{READ_AHEAD_BYTES} bytes or {READ_AHEAD_REQUESTS} requests that "
                    "are read ahead"
                )
            )

    def _accept_rest(self) -> None:
        """Take a last line without a newline, unless it was to go on."""
        try:
            if rest := self._splitter.last_frame():
                self._n_lines += 1
                self._accept(rest)
        except InvalidFrameError:
            if not self._is_cut_off:
                raise

    def _accept(self, frame: bytes) -> None:
        if self._parcels is None:
            self._accept_with(frame, NOTHING)
            return
        parcel = self._parcels.of_line(self._n_lines - 1)
        try:
            self._accept_with(frame, parcel)
        except BaseException:
            parcel.close()
            raise

    def _accept_with(self, frame: bytes, parcel: Parcel) -> None:
        if cancel := decode_cancel(frame):
            parcel.close()
            self._cancel(cancel.id)
        elif self._parcels is not None and (append := decode_append(frame)):
            self._append(append, len(frame), parcel)
        else:
            self._put(frame, parcel)

    def _put(self, frame: bytes, parcel: Parcel) -> None:
        request = self._decode(frame)
        activity = self._begin(request, len(frame), parcel)
        refusal = self._refusal or parcel.refusal
        self._arrivals.append(Arrival(request, activity, refusal))
        self._n_bytes += _size_of(activity)

    def _append(self, line: AppendLine, n_bytes: int, parcel: Parcel) -> None:
        """Hand a line on to the first request that it can be meant for, if there is one."""
        able = [
            each
            for each in (self._current, *self.waiting)
            if each and each.request_id == line.id and not each.appends.is_closed
        ]
        if not able:  # it lost the race
            parcel.close()
            return
        takers = [each for each in able if each.appends.takes(line.attachment_id)]
        activity = (takers or able)[0]
        if fault := activity.appends.put(line, n_bytes, parcel):
            activity.fail(fault)

    def _cancel(self, request_id: str) -> None:
        for activity in (self._current, *self.waiting):
            if activity is not None and activity.request_id == request_id:
                activity.cancel()


def _size_of(activity: Activity) -> int:
    """Count what a request takes before its turn, without what was appended."""
    return activity.n_bytes + activity.parcel.size
