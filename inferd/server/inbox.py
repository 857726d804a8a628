"""What a client sends ahead of its answers: bytes to requests, a bounded number of them."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from inferd.errors import (
    InferdError,
    InvalidFrameError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits import (
    LARGE_LINE_BYTES,
    MAX_FRAME_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_REQUESTS,
)
from inferd.server.activity import Activity
from inferd.server.addressees import cancel_all, hand_on
from inferd.server.apart import Found
from inferd.server.arrivals import Arrival, Arrivals
from inferd.server.custody import NOTHING, Parcel
from inferd.server.limits import BYTES_A_TURN, LINES_A_TURN
from inferd.server.long_lines import Lines, LongLine
from inferd.server.parcels import Parcels
from inferd.wire.codec import Request, decode_append, decode_cancel

R = TypeVar("R", bound=Request)

NEVER: Final = MAX_FRAME_BYTES + 1
"""More bytes than any line has."""


class Inbox(Generic[R]):
    """Bytes in, requests out; a cancel or an append is heard as soon as it is read.

    Bounds:
        Holds ``READ_AHEAD_REQUESTS`` and ``READ_AHEAD_BYTES`` besides one request of any
        size, for a caller that feeds it only while ``has_room``.

    Args:
        decode: reads a line.
        begin: called for each request as it is read, with its length in bytes and what
            came with it.
        arrivals: takes what was read.
        parcels: where requests come with descriptors, and lines append to them: has been
            fed all that this is fed.
        apart_bytes: from so many on a line is not read here, but left as ``long``.
    """

    def __init__(
        self,
        decode: Callable[[bytes], R],
        begin: Callable[[R, int, Parcel], Activity],
        arrivals: Arrivals[R],
        parcels: Parcels | None = None,
        apart_bytes: int = NEVER,
    ) -> None:
        self._decode = decode
        self._begin = begin
        self._parcels = parcels
        self._lines = Lines(apart_bytes)
        self._arrivals = arrivals
        self._n_lines = 0
        self._current: Activity | None = None
        self._refusal: InferdError | None = None
        self._is_cut_off = False
        self._has_ended = False
        self._is_closed = False
        self.long: LongLine | None = None
        """A line that has to be read elsewhere, and settled, before any behind it."""
        self.is_behind = False
        """Whether there are more lines to be looked at than one call looks at."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is there and nothing more will come."""
        return self._is_closed and not self._arrivals and self.long is None

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
        n_bytes = self._lines.pending_bytes
        if self._parcels is not None:
            n_bytes += self._parcels.size
            n_bytes += sum(each.appends.pending_bytes for each in self._arrivals)
        return self._has_place and self._arrivals.has_room_for_bytes(n_bytes)

    @property
    def _has_place(self) -> bool:
        current = self._current
        is_awaited = current is not None and current.appends.is_open
        return self._arrivals.has_room(is_awaited=is_awaited)

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
            and self._lines.pending_bytes >= LARGE_LINE_BYTES
        )

    @property
    def unfinished(self) -> int | None:
        """The number of the line that has begun and not ended, where all are taken."""
        return self._n_lines if self._lines.pending_bytes else None

    def feed(self, data: bytes | bytearray) -> None:
        """Add what was read; nothing stands for the client's end."""
        if data:
            self._lines.feed(data)
        else:
            self._has_ended = True
        self.sort()

    def close(self) -> None:
        """Take nothing more, not even of what was fed."""
        self._is_closed = True
        self.long = None

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
        arrival = self._arrivals.take()
        if isinstance(arrival, Arrival):
            self._current = arrival.activity
        self.sort()
        return arrival

    @property
    def waiting(self) -> list[Activity]:
        """What was read and not taken yet, in order."""
        return list(self._arrivals)

    def clear(self) -> list[Activity]:
        """Take out all that is left, at once."""
        return self._arrivals.clear()

    def sort(self) -> None:
        """Make requests of the lines that are whole, as many as there is room for.

        Looks at ``LINES_A_TURN`` lines at most; ``is_behind`` tells whether there are more.
        """
        self.is_behind = False
        end, n_bytes = self._n_lines + LINES_A_TURN, 0
        while self._can_sort:
            if self._n_lines >= end or n_bytes > BYTES_A_TURN:
                self.is_behind = True
                break
            try:
                line = self._lines.next_line()
                if line is not None:
                    n_bytes += self._take_in(line)
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
        return self._has_place and not self._is_closed and self.long is None

    def _take_in(self, line: bytes | LongLine) -> int:
        """Accept a line, or have it read elsewhere; give how long it is."""
        self._n_lines += 1
        if isinstance(line, LongLine):
            self.long = line
            return line.n_bytes
        self._accept(line)
        return len(line)

    def _look_after_open(self) -> None:
        """End what waits for more where no more can be read."""
        current = self._current
        if self._is_closed and self.long is None:
            for activity in self._present:
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
            if rest := self._lines.last_line():
                self._take_in(rest)
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
            cancel_all(cancel.id, self._present)
        elif self._parcels is not None and (append := decode_append(frame)):
            hand_on(append, len(frame), parcel, self._present)
        else:
            self._enter(self._decode(frame), len(frame), parcel)

    @property
    def n_long_fds(self) -> int:
        """Descriptors that came with the long line."""
        return 0 if self._parcels is None else self._parcels.count(self._n_lines - 1)

    def settle(self, found: Found | PeerError) -> None:
        """Take what the long line is, and go on behind it.

        Args:
            found: what it is, or why nobody can tell.
        """
        line, self.long = self.long, None
        if line is None:  # closed meanwhile
            return
        parcels = self._parcels
        parcel = parcels.of_line(self._n_lines - 1) if parcels else NOTHING
        if isinstance(found, PeerError):
            parcel.close()
            if not (self._is_closed and self._is_cut_off):  # else it was half a line
                self._is_closed |= found.closes_connection
                self._arrivals.append(found)
        elif found.request is not None:
            activity = self._enter(cast("R", found.request), line.n_bytes, parcel)
            activity.resolved = found.resolved
            activity.facts.update(found.facts)
        elif found.append is not None:
            hand_on(found.append, line.n_bytes, parcel, self._present)
        else:
            parcel.close()
            cancel_all(found.cancel, self._present)
        self.sort()

    def _enter(self, request: R, n_bytes: int, parcel: Parcel) -> Activity:
        activity = self._begin(request, n_bytes, parcel)
        refusal = self._refusal or parcel.refusal
        self._arrivals.append(Arrival(request, activity, refusal))
        return activity

    @property
    def _present(self) -> list[Activity]:
        return [*([self._current] if self._current else []), *self._arrivals]
