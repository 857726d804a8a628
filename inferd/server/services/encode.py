"""The service of a socket with one frame for each answer, whatever its requests are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from inferd.backend.interface import Backend, Prepared
from inferd.errors import CancelledError
from inferd.resolve.request import J, ResolvedRequest
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.large_lines.decode import resolved_or
from inferd.server.request_context import RequestContext, RequestStats
from inferd.server.services.pipeline import Pipeline, resolved_job

R = TypeVar("R")


@dataclass(frozen=True)
class EncodeService(Generic[R, J]):
    """Service of a socket with one frame per answer; uses the first backend that can."""

    pipeline: Pipeline
    resolve: Callable[[R], ResolvedRequest[J]]
    run: Callable[[R, Backend, Prepared[J], ResponseWriter], Awaitable[RequestStats]]
    """Runs the job and queues its frame; gives statistics for the log."""

    async def answer(
        self, request: R, reply: ResponseWriter, context: RequestContext
    ) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was sent.
            PeerGoneError: the client has disconnected.

        Cancellation: the job is dropped and its permit freed.
        """
        plan = resolved_or(context.resolved, lambda: self.resolve(request))
        with context.scope:
            async with self.pipeline.admit(plan, context, resolved_job(plan)) as (
                backend,
                prepared,
            ):
                stats = await self.run(request, backend, prepared, reply)
                context.stats.update(stats)
        if not reply.is_over:
            raise CancelledError
        await reply.finish()
        context.done("end")
