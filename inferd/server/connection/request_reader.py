"""Parse a client's bytes into requests, cancels and appends, within bounds."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from inferd.errors import (
    InferdError,
    InvalidFrameError,
    InvalidRequestError,
    PeerError,
)
from inferd.limits.connections import (
    LIMITED_LINE_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_REQUESTS,
)
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.limits.server import BYTES_PER_TASK, LINES_PER_TASK
from inferd.server.connection.read_ahead import (
    PendingRequest,
    ReadAheadQueue,
    cancel_matching,
    route_append,
)
from inferd.server.fd_passing.quota import NO_FDS, LineFds
from inferd.server.fd_passing.receive import FdsByLine
from inferd.server.large_lines.decode import ParsedLine, owned_by
from inferd.server.large_lines.lines import LargeLine, LineBuffer
from inferd.server.request_context import RequestContext
from inferd.wire.codec import decode_aside
from inferd.wire.requests import CancelLine, DescribeRequest, Request
from inferd.wire.unknown_fields import strict_refusal

R = TypeVar("R", bound=Request)

MORE_THAN_ANY_LINE: Final = MAX_FRAME_BYTES + 1
"""More bytes than any line has."""


class RequestReader(Generic[R]):
    """Parser from bytes to requests; cancels and appends take effect as they are read.

    Bounds:
        Holds ``READ_AHEAD_REQUESTS`` and ``READ_AHEAD_BYTES`` besides one request of any
        size, if the caller feeds it only while ``accepts_more``.

    Args:
        decode: decodes a line.
        make_context: called for each request as it is read, with the length of its line in
            bytes and the descriptors that came with it.
        queue: receives the requests and the errors of invalid lines.
        fds_by_line: where clients may pass descriptors and append to requests: must be fed
            all bytes that this is fed.
        offload_line_bytes: from this length on a line is not decoded here, but left in
            ``large_line``.
    """

    def __init__(
        self,
        decode: Callable[[bytes], R],
        make_context: Callable[[Request, int, LineFds], RequestContext],
        queue: ReadAheadQueue[R],
        fds_by_line: FdsByLine | None = None,
        offload_line_bytes: int = MORE_THAN_ANY_LINE,
    ) -> None:
        self._decode = decode
        self._make_context = make_context
        self._fds_by_line = fds_by_line
        self._lines = LineBuffer(offload_line_bytes)
        self._queue = queue
        self._n_lines = 0
        self._current: RequestContext | None = None
        self._refusal: InferdError | None = None
        self._is_shut_down = False
        self._has_ended = False
        self._is_closed = False
        self.large_line: LargeLine | None = None
        """A line to be decoded elsewhere; no other is parsed until ``put_decoded_line``."""
        self.has_more_lines = False
        """Whether ``parse_lines`` stopped at the bound of one call."""

    @property
    def is_over(self) -> bool:
        """Whether all requests are taken and no more will come."""
        return self._is_closed and not self._queue and self.large_line is None

    @property
    def accepts_more(self) -> bool:
        """Whether to read on; always true while there is no request to be answered."""
        if self._has_ended or self._is_closed:
            return False
        if self._current is None:
            return self._accepts_behind_current or not self._queue
        return self._accepts_behind_current and self._current.appends.has_room

    @property
    def _accepts_behind_current(self) -> bool:
        """Whether the bounds allow more input behind the current request."""
        n_bytes = self._lines.pending_bytes
        if self._fds_by_line is not None:
            n_bytes += self._fds_by_line.cost_bytes
            n_bytes += sum(each.appends.pending_bytes for each in self._queue)
        return self._accepts_request and self._queue.accepts_bytes(n_bytes)

    @property
    def _accepts_request(self) -> bool:
        current = self._current
        is_awaited = current is not None and current.appends.is_open
        return self._queue.accepts_request(is_awaited=is_awaited)

    @property
    def is_in_limited_line(self) -> bool:
        """Whether all input is one unfinished line that may grow only if a limiter allows it."""
        return (
            self.accepts_more
            and not self._is_shut_down
            and not self.has_more_lines
            and self._current is None
            and not self._queue
            and self._lines.pending_bytes >= LIMITED_LINE_BYTES
        )

    @property
    def unfinished_line(self) -> int | None:
        """The number of the unfinished line, where all lines before it are taken."""
        return self._n_lines if self._lines.pending_bytes else None

    def feed(self, data: bytes | bytearray) -> bool:
        """Add input; empty bytes mean EOF.

        Returns:
            Whether it changed anything but the length of an unfinished line.
        """
        before = self.unfinished_line
        if data:
            self._lines.feed(data)
        else:
            self._has_ended = True
        self.parse_lines()
        is_longer = before is not None and before == self.unfinished_line
        return not is_longer or self._has_ended or self._is_closed

    def close(self) -> None:
        """Accept no more input, and discard what is not parsed yet."""
        self._is_closed = True
        self.large_line = None

    def refuse_new(self, refusal: InferdError) -> None:
        """Refuse all requests that are read from here on; cancels still take effect."""
        self._refusal = refusal

    def mark_shut_down(self) -> None:
        """Note that reading was shut down: the last line may be incomplete."""
        self._is_shut_down = True

    def take(self) -> PendingRequest[R] | PeerError | None:
        """Take the next request, which becomes the current one.

        Returns:
            The request, or the error of an invalid line; ``None`` if there is neither.
        """
        self.parse_lines()
        self._current = None
        if not self._queue:
            return None
        item = self._queue.take()
        if isinstance(item, PendingRequest):
            self._current = item.context
        self.parse_lines()
        return item

    def clear(self) -> list[RequestContext]:
        """Remove all requests that are not taken yet; return their contexts."""
        return self._queue.clear()

    def parse_lines(self) -> None:
        """Parse complete lines, as far as the bounds allow.

        Stops after ``LINES_PER_TASK`` lines or ``BYTES_PER_TASK`` bytes and sets
        ``has_more_lines``.
        """
        self.has_more_lines = False
        end, n_bytes = self._n_lines + LINES_PER_TASK, 0
        while self._can_parse:
            if self._n_lines >= end or n_bytes > BYTES_PER_TASK:
                self.has_more_lines = True
                break
            try:
                line = self._lines.next_line()
                if line is not None:
                    n_bytes += self._add_line(line)
                elif self._has_ended:
                    self._is_closed = True
                    self._add_last_line()
                else:
                    break
            except PeerError as error:
                self._is_closed |= error.closes_connection
                self._queue.append(error)
        self._check_open_appends()

    @property
    def _can_parse(self) -> bool:
        return self._accepts_request and not self._is_closed and self.large_line is None

    def _add_line(self, line: bytes | LargeLine) -> int:
        """Parse a line, or leave it in ``large_line``; return its length."""
        self._n_lines += 1
        if isinstance(line, LargeLine):
            self.large_line = line
            return line.n_bytes
        self._parse_line(line)
        return len(line)

    def _check_open_appends(self) -> None:
        """End or fail open attachments for which no more input can be read."""
        current = self._current
        if self._is_closed and self.large_line is None:
            for context in self._all_contexts:
                context.appends.end()
        elif current and current.appends.is_open and not self._accepts_behind_current:
            current.fail(
                InvalidRequestError(
                    "an attachment is open, and what follows is over the "
                    f"{READ_AHEAD_BYTES} bytes or {READ_AHEAD_REQUESTS} requests that "
                    "are read ahead"
                )
            )

    def _add_last_line(self) -> None:
        """Parse a last line without a newline, unless reading was shut down within it."""
        try:
            if rest := self._lines.last_line():
                self._add_line(rest)
        except InvalidFrameError:
            if not self._is_shut_down:
                raise

    def _parse_line(self, frame: bytes) -> None:
        if self._fds_by_line is None:
            self._parse_with_fds(frame, NO_FDS)
            return
        line_fds = self._fds_by_line.take_line(self._n_lines - 1)
        try:
            self._parse_with_fds(frame, line_fds)
        except BaseException:
            line_fds.close()
            raise

    def _parse_with_fds(self, frame: bytes, line_fds: LineFds) -> None:
        takes_appends = self._fds_by_line is not None
        match decode_aside(frame, takes_appends=takes_appends):
            case None:
                request: R | DescribeRequest = self._decode(frame)
                self._add_parsed(frame, request, line_fds)
            case DescribeRequest() as request:
                self._add_parsed(frame, request, line_fds)
            case CancelLine() as cancel:
                line_fds.close()
                cancel_matching(cancel, self._all_contexts)
            case append:
                route_append(append, len(frame), line_fds, self._all_contexts)

    def _add_parsed(
        self, frame: bytes, request: R | DescribeRequest, line_fds: LineFds
    ) -> None:
        refusal = strict_refusal(frame, request)
        self._add_request(request, len(frame), line_fds, refusal)

    @property
    def n_large_line_fds(self) -> int:
        """Descriptors that came with the large line."""
        if self._fds_by_line is None:
            return 0
        return self._fds_by_line.count(self._n_lines - 1)

    def put_decoded_line(self, parsed: ParsedLine | PeerError) -> None:
        """Add the decoded large line, and go on with the lines after it.

        Args:
            parsed: the decoded line, or why it is invalid.
        """
        line, self.large_line = self.large_line, None
        if line is None:  # the reader was closed meanwhile
            return
        fds_by_line = self._fds_by_line
        line_fds = fds_by_line.take_line(self._n_lines - 1) if fds_by_line else NO_FDS
        if isinstance(parsed, PeerError):
            line_fds.close()
            if not (self._is_closed and self._is_shut_down):  # otherwise it was cut off
                self._is_closed |= parsed.closes_connection
                self._queue.append(parsed)
        elif parsed.request is not None:
            context = self._add_request(
                cast("R", parsed.request), line.n_bytes, line_fds
            )
            context.resolved = owned_by(context.owner, parsed.resolved)
            context.stats.update(parsed.stats)
        elif parsed.append is not None:
            route_append(parsed.append, line.n_bytes, line_fds, self._all_contexts)
        elif parsed.cancel is not None:
            line_fds.close()
            cancel_matching(parsed.cancel, self._all_contexts)
        self.parse_lines()

    def _add_request(
        self,
        request: R | DescribeRequest,
        n_bytes: int,
        line_fds: LineFds,
        refusal: InferdError | None = None,
    ) -> RequestContext:
        context = self._make_context(request, n_bytes, line_fds)
        refusal = self._refusal or context.denial or line_fds.refusal or refusal
        self._queue.append(PendingRequest(request, context, refusal))
        return context

    @property
    def _all_contexts(self) -> list[RequestContext]:
        return [*([self._current] if self._current else []), *self._queue]
