"""Lines by which a client appends to its request, queued for the service."""

import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import trio

from inferd.errors import InferdError, InvalidRequestError
from inferd.limits.connections import READ_AHEAD_BYTES
from inferd.server.fd_passing.quota import NO_FDS, LineFds
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.requests import Request
from inferd.wire.speech import AppendLine

Appended = tuple[AppendLine, tuple[int, ...]]
"""A line and its descriptors."""


class _Waiting(NamedTuple):
    line: AppendLine
    n_bytes: int
    line_fds: LineFds


def _ignore() -> None:
    pass


class AppendQueue(AsyncIterator[Appended]):
    """Queue of append lines in order of arrival: ``async for line, fds in appends``.

    The iteration ends when all open attachments have ended, or the client can send no
    more. The descriptors are open until the next line is taken; duplicate them to keep
    them longer.

    Bounds:
        Holds ``READ_AHEAD_BYTES`` and one read more, if the caller puts lines in only
        while ``has_room``.

    Args:
        open_ids: of the attachments to which the client may append.
        timeout_s: seconds to wait for a line.
        on_taken: called when a line was taken.
    """

    def __init__(
        self,
        open_ids: frozenset[str] = frozenset(),
        *,
        timeout_s: float = math.inf,
        on_taken: Callable[[], object] = _ignore,
    ) -> None:
        self._open_ids = set(open_ids)
        self._timeout_s = timeout_s
        self._on_taken = on_taken
        self._lines: deque[_Waiting] = deque()
        self._taken = NO_FDS
        self._changed = trio.Event()
        self.is_closed = False
        self.pending_bytes = 0
        """Bytes of queued lines, with the cost of their descriptors."""
        self.n_bytes = 0
        """Bytes of all lines that were ever queued."""
        self.n_fds = 0
        """Descriptors that came with them."""

    @property
    def is_open(self) -> bool:
        """Whether the client may still append."""
        return bool(self._open_ids)

    @property
    def has_room(self) -> bool:
        """Whether the queue takes more lines."""
        return self.pending_bytes < READ_AHEAD_BYTES

    def takes(self, attachment_id: str) -> bool:
        """Tell whether an attachment is open."""
        return attachment_id in self._open_ids

    def put(
        self, line: AppendLine, n_bytes: int, line_fds: LineFds
    ) -> InferdError | None:
        """Queue a line, or return the reason why it is invalid, with nothing changed.

        Args:
            line: as it was decoded.
            n_bytes: its length.
            line_fds: its descriptors; owned by the queue, also if the line is invalid.
        """
        if fault := self._fault_of(line, line_fds):
            line_fds.close()
            return fault
        self._lines.append(_Waiting(line, n_bytes, line_fds))
        self.pending_bytes += n_bytes + line_fds.cost_bytes
        self.n_bytes += n_bytes
        self.n_fds += len(line_fds.fds)
        if line.end:
            self._open_ids.remove(line.attachment_id)
        self._changed.set()
        return None

    def _fault_of(self, line: AppendLine, line_fds: LineFds) -> InferdError | None:
        if line_fds.refusal:
            return line_fds.refusal
        if not self.takes(line.attachment_id):
            return InvalidRequestError(
                f'append to attachment "{line.attachment_id}", which is not open'
            )
        if line.bytes == "" and not line.end:  # it would hold a permit for nothing
            return empty_append_error(line)
        if line.fd is not None and line.fd >= len(line_fds.fds):
            return InvalidRequestError(
                f"append.fd {line.fd} not among the descriptors that came with the "
                f"line, which are {len(line_fds.fds)}"
            )
        return None

    def end(self) -> None:
        """End all open attachments: the client can send no more."""
        self._open_ids.clear()
        self._changed.set()

    async def __anext__(self) -> Appended:
        """Wait for the next line, and close the descriptors of the one before.

        Raises:
            InvalidRequestError: no line came in time.

        Cancellation: safe, no line is lost.
        """
        self._taken.close()
        self._taken = NO_FDS
        with trio.move_on_after(self._timeout_s) as scope:
            while not self._lines and self.is_open:
                self._changed = trio.Event()
                await self._changed.wait()
        if scope.cancelled_caught:
            raise InvalidRequestError(f"nothing was appended in {self._timeout_s:g} s")
        if not self._lines:
            raise StopAsyncIteration
        line, n_bytes, self._taken = self._lines.popleft()
        self.pending_bytes -= n_bytes + self._taken.cost_bytes
        self._on_taken()
        return line, self._taken.fds

    def close(self) -> None:
        """Drop all queued lines, close their descriptors, and end all attachments."""
        self.is_closed = True
        self.end()
        self._taken.close()
        for each in self._lines:
            each.line_fds.close()
        self._lines.clear()
        self.pending_bytes = 0


def empty_append_error(line: AppendLine) -> InvalidRequestError:
    """Make the error for a line that neither adds to its attachment nor ends it."""
    return InvalidRequestError(
        f'append to attachment "{line.attachment_id}" brings nothing'
    )


def make_append_queue(
    request: Request, *, timeout_s: float, on_taken: Callable[[], object]
) -> AppendQueue:
    """Make the append queue of a request; without open attachments it is at its end."""
    match request:
        case BlocksRequest(attachments=attachments):
            open_ids = frozenset(
                each.id
                for each in attachments
                if isinstance(each, AudioAttachment) and each.open
            )
        case _:
            open_ids = frozenset()
    return AppendQueue(open_ids, timeout_s=timeout_s, on_taken=on_taken)
