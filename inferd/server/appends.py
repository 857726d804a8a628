"""What a client appends to a request of its own, until the service takes it."""

import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import trio

from inferd.errors import InferdError, InvalidRequestError
from inferd.limits import READ_AHEAD_BYTES
from inferd.server.custody import NOTHING, Parcel
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.codec import Request
from inferd.wire.speech import AppendLine

Appended = tuple[AppendLine, tuple[int, ...]]
"""A line, and the descriptors that came with it."""


class _Waiting(NamedTuple):
    line: AppendLine
    n_bytes: int
    parcel: Parcel


def _nobody() -> None:
    pass


class Appends(AsyncIterator[Appended]):
    """Lines in the order they came: ``async for line, fds in appends``.

    It is over when each open attachment has ended, or no more can come. Descriptors are
    open until the next line is asked for: whoever needs them longer duplicates them.

    Bounds:
        Holds ``READ_AHEAD_BYTES`` and one read more, for a caller that puts lines in only
        while it has room.

    Args:
        open_ids: of the attachments to which may be appended.
        timeout_s: seconds that a line may be waited for.
        on_taken: called when there is more room.
    """

    def __init__(
        self,
        open_ids: frozenset[str] = frozenset(),
        *,
        timeout_s: float = math.inf,
        on_taken: Callable[[], object] = _nobody,
    ) -> None:
        self._open_ids = set(open_ids)
        self._timeout_s = timeout_s
        self._on_taken = on_taken
        self._lines: deque[_Waiting] = deque()
        self._taken = NOTHING
        self._news = trio.Event()
        self.is_closed = False
        self.pending_bytes = 0
        """Of lines that nobody has taken yet, their descriptors counted in."""
        self.n_bytes = 0
        """Of all lines that were put in."""
        self.n_fds = 0
        """That came with them."""

    @property
    def is_open(self) -> bool:
        """Whether the answer waits for what is still to come."""
        return bool(self._open_ids)

    @property
    def has_room(self) -> bool:
        """Whether to put more in."""
        return self.pending_bytes < READ_AHEAD_BYTES

    def takes(self, attachment_id: str) -> bool:
        """Tell whether to an attachment may be appended now."""
        return attachment_id in self._open_ids

    def put(self, line: AppendLine, n_bytes: int, parcel: Parcel) -> InferdError | None:
        """Add a line; or say why it cannot be used, with nothing changed.

        Args:
            line: as it was read.
            n_bytes: how long it is.
            parcel: what came with it: closed here, whatever becomes of it.
        """
        if fault := self._fault_of(line, parcel):
            parcel.close()
            return fault
        self._lines.append(_Waiting(line, n_bytes, parcel))
        self.pending_bytes += n_bytes + parcel.size
        self.n_bytes += n_bytes
        self.n_fds += len(parcel.fds)
        if line.end:
            self._open_ids.remove(line.attachment_id)
        self._news.set()
        return None

    def _fault_of(self, line: AppendLine, parcel: Parcel) -> InferdError | None:
        if parcel.refusal:
            return parcel.refusal
        if not self.takes(line.attachment_id):
            return InvalidRequestError(
                f'append to attachment "{line.attachment_id}", which is not open'
            )
        if line.bytes == "" and not line.end:  # else it would hold a permit for nothing
            return brings_nothing(line)
        if line.fd is not None and line.fd >= len(parcel.fds):
            return InvalidRequestError(
                f"append.fd {line.fd} not among the descriptors that came with the "
                f"line, which are {len(parcel.fds)}"
            )
        return None

    def end(self) -> None:
        """Note that the client can send no more: what is open has ended."""
        self._open_ids.clear()
        self._news.set()

    async def __anext__(self) -> Appended:
        """Take the next line as soon as there is one.

        Raises:
            InvalidRequestError: none came in time.

        Cancellation: safe, no line is lost.
        """
        self._taken.close()
        self._taken = NOTHING
        with trio.move_on_after(self._timeout_s) as scope:
            while not self._lines and self.is_open:
                self._news = trio.Event()
                await self._news.wait()
        if scope.cancelled_caught:
            raise InvalidRequestError(f"nothing was appended in {self._timeout_s:g} s")
        if not self._lines:
            raise StopAsyncIteration
        line, n_bytes, self._taken = self._lines.popleft()
        self.pending_bytes -= n_bytes + self._taken.size
        self._on_taken()
        return line, self._taken.fds

    def close(self) -> None:
        """Forget all that was put in, and close what came with it; takes nothing more."""
        self.is_closed = True
        self.end()
        self._taken.close()
        for each in self._lines:
            each.parcel.close()
        self._lines.clear()
        self.pending_bytes = 0


def brings_nothing(line: AppendLine) -> InvalidRequestError:
    """Say that a line neither adds to its attachment nor ends it."""
    return InvalidRequestError(
        f'append to attachment "{line.attachment_id}" brings nothing'
    )


def appends_of(
    request: Request, *, timeout_s: float, on_taken: Callable[[], object]
) -> Appends:
    """Make what takes a request's appends, whether or not it may have any."""
    match request:
        case BlocksRequest(attachments=attachments):
            open_ids = frozenset(
                each.id
                for each in attachments
                if isinstance(each, AudioAttachment) and each.open
            )
        case _:
            open_ids = frozenset()
    return Appends(open_ids, timeout_s=timeout_s, on_taken=on_taken)
