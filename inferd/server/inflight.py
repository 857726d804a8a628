"""The requests that the daemon has received and not finished."""

import itertools
from collections.abc import Iterator

from inferd.server.history.ended import EndedRequests
from inferd.server.request_context import RequestContext
from inferd.server.request_index import RequestIndex
from inferd.server.telemetry.metrics import Metrics


class InFlight:
    """Ordered set of the requests of all sockets that wait or run."""

    def __init__(self, metrics: Metrics, ended: EndedRequests | None = None) -> None:
        self.ended = EndedRequests() if ended is None else ended
        """Those that have ended, as far as they are kept."""
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._present: RequestIndex[RequestContext] = RequestIndex()

    def __iter__(self) -> Iterator[RequestContext]:
        """Iterate in order of arrival."""
        return iter(self._present.of(None).values())

    @property
    def index(self) -> RequestIndex[RequestContext]:
        """The same, the first to arrive first; not to be changed by others."""
        return self._present

    def add(self, context: RequestContext) -> None:
        """Add a request as it is read; the caller removes it once, whatever ends it."""
        context.number = next(self._numbers)
        self._present.add(context)

    def remove(self, context: RequestContext) -> None:
        """Remove a request, count it in the metrics, and keep its record for a while.

        One that only asked which models there are leaves no record: those of others would
        be forgotten for it, and times would be of what no model has done.
        """
        self._present.remove(context.number)
        self._metrics.count(context)
        if not context.is_about_models:
            self.ended.add(context)

    def cancel(
        self, request_id: str, *, owner: int | None, principal: str | None = ""
    ) -> int:
        """Cancel the requests with an id; give their number.

        Args:
            request_id: as the client chose it.
            owner: the owner of the requests' connections; ``None`` for any.
            principal: who asked, empty for nobody; ``None`` for anybody.
        """
        matching = [
            each
            for each in self._present.find(owner=owner, request_id=request_id)
            if each.request_id == request_id  # only a part of a long id was compared
            and principal in (None, each.caller.principal)
        ]
        for each in matching:
            each.cancel()
        return len(matching)
