"""Requests that were read and wait to be answered, bounded per connection and per user."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from inferd.errors import InferdError, PeerError
from inferd.limits.connections import READ_AHEAD_BYTES, READ_AHEAD_REQUESTS
from inferd.limits.server import READ_AHEAD_MIN, READ_AHEAD_PER_USER
from inferd.server.fd_passing.quota import LineFds
from inferd.server.request_context import RequestContext
from inferd.wire.requests import CancelLine, DescribeRequest, Request
from inferd.wire.speech import AppendLine

R = TypeVar("R", bound=Request)


class PendingRequest(NamedTuple, Generic[R]):
    """A request that was read and not answered yet."""

    request: R | DescribeRequest
    context: RequestContext
    refusal: InferdError | None = None
    """Why it will be refused, where that is known when it is read."""


class ReadAheadCounter:
    """Counts each user's unanswered requests over all its connections."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()

    def count(self, user: int) -> int:
        """Return how many requests of a user are read and not answered yet."""
        return self._users[user]

    def add(self, user: int, n: int) -> None:
        """Add to a user's count; ``n`` may be negative."""
        self._users[user] += n
        if not self._users[user]:
            del self._users[user]


class ReadAheadQueue(Generic[R]):
    """Bounded queue of one connection's unanswered requests; invalid lines are items, too.

    Bounds:
        Accepts up to ``READ_AHEAD_REQUESTS``, or ``READ_AHEAD_MIN`` where the user has
        ``READ_AHEAD_PER_USER`` over all connections. The caller asks before it appends.

    Args:
        counter: of all connections.
        user: the connection's user.
    """

    def __init__(self, counter: ReadAheadCounter, user: int) -> None:
        self._counter = counter
        self._user = user
        self._items: deque[PendingRequest[R] | PeerError] = deque()
        self.n_bytes = 0
        """Bytes that the requests take, without appended data."""

    def __len__(self) -> int:
        """Count the items."""
        return len(self._items)

    def __iter__(self) -> Iterator[RequestContext]:
        """Iterate over the contexts of the requests, in order."""
        return (
            each.context for each in self._items if isinstance(each, PendingRequest)
        )

    def accepts_request(self, *, is_awaited: bool) -> bool:
        """Tell whether one more request may be read.

        Args:
            is_awaited: whether the current request waits for an append, which may follow:
                then the limit over all of the user's connections does not apply.
        """
        n = len(self._items)
        if n >= READ_AHEAD_REQUESTS:
            return False
        if n < READ_AHEAD_MIN or is_awaited:
            return True
        return self._counter.count(self._user) < READ_AHEAD_PER_USER

    def accepts_bytes(self, n_more: int) -> bool:
        """Tell whether so many bytes of further input are within ``READ_AHEAD_BYTES``."""
        return self.n_bytes + n_more < READ_AHEAD_BYTES

    def append(self, item: PendingRequest[R] | PeerError) -> None:
        """Add a request or an invalid line."""
        self._items.append(item)
        self._counter.add(self._user, 1)
        if isinstance(item, PendingRequest):
            self.n_bytes += _cost_bytes(item.context)

    def take(self) -> PendingRequest[R] | PeerError:
        """Remove and return the first item; the queue is not empty."""
        item = self._items.popleft()
        self._counter.add(self._user, -1)
        if isinstance(item, PendingRequest):
            self.n_bytes -= _cost_bytes(item.context)
        return item

    def clear(self) -> list[RequestContext]:
        """Remove all items; return the contexts of the requests."""
        remaining = list(self)
        self._counter.add(self._user, -len(self._items))
        self._items.clear()
        self.n_bytes = 0
        return remaining


def _cost_bytes(context: RequestContext) -> int:
    """Count the bytes that a waiting request takes, without appended data."""
    return context.n_bytes + context.line_fds.cost_bytes


def route_append(
    line: AppendLine,
    n_bytes: int,
    line_fds: LineFds,
    contexts: Iterable[RequestContext],
) -> None:
    """Route an append to the first request that can take it, if there is one.

    Args:
        line: the append.
        n_bytes: length of the line.
        line_fds: descriptors that came with it; closed here if they are not taken.
        contexts: requests of the connection, oldest first.
    """
    open_contexts = [
        each
        for each in contexts
        if _is_meant(line, each) and not each.appends.is_closed
    ]
    if not open_contexts:  # its request has ended meanwhile
        line_fds.close()
        return
    takers = [each for each in open_contexts if each.appends.takes(line.attachment_id)]
    context = (takers or open_contexts)[0]
    if error := context.appends.put(line, n_bytes, line_fds):
        context.fail(error)


def cancel_matching(line: CancelLine, contexts: Sequence[RequestContext]) -> None:
    """Cancel the requests of an id and a principal, unless they are cancelled already.

    A client may send any number of cancels while its requests wait to end.
    """
    for context in contexts:
        if not context.is_cancelled and _is_meant(line, context):
            context.cancel()


def _is_meant(line: CancelLine | AppendLine, context: RequestContext) -> bool:
    """Tell whether a line is about a request: one of its id and its principal."""
    is_same_id = context.request_id == line.id
    return is_same_id and context.caller.principal == (line.principal or "")
