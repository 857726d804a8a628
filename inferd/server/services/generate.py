"""Generation, v1 and v2: a request in, the frames of an answer out."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import UNSET

from inferd.backend.events import TokenEvent, TokenEventV2
from inferd.backend.interface import EventStream
from inferd.backend.job import GenerateJob
from inferd.errors import BackendUnavailableError, DeadlineExceededError
from inferd.ipc.worker import Loading
from inferd.resolve.options import SEED_MAX
from inferd.resolve.request import ResolvedRequest
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.large_lines.decode import resolved_or
from inferd.server.request_context import RequestContext
from inferd.server.services.frames import FrameBuilder, loading_frame, queued_frame
from inferd.server.services.pipeline import NO_REPORTS, Pipeline, Reports

R = TypeVar("R")
E = TypeVar("E", TokenEvent, TokenEventV2)


@dataclass(frozen=True)
class GenerateService(ABC, Generic[R, E]):
    """Service of a generation socket; answers with the first backend that can."""

    pipeline: Pipeline

    @abstractmethod
    def resolve(
        self, request: R, seed: int, context: RequestContext
    ) -> ResolvedRequest[GenerateJob]:
        """Resolve a request, with the seed to use if it names none."""

    @abstractmethod
    def make_frames(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> FrameBuilder[E]:
        """Make the builder of the answer's frames."""

    @abstractmethod
    def open_stream(
        self,
        request: R,
        plan: ResolvedRequest[GenerateJob],
        context: RequestContext,
        reports: Reports,
    ) -> AbstractAsyncContextManager[EventStream[E]]:
        """Hold a permit while inside, and run the job."""

    async def answer(
        self, request: R, reply: ResponseWriter, context: RequestContext
    ) -> None:
        """Serve one request to its terminal frame.

        Raises:
            InferdError: it cannot be served; no terminal frame was sent.
            PeerGoneError: the client has disconnected.

        Cancellation: the job is dropped and its permit freed.
        """
        seed = secrets.randbelow(SEED_MAX + 1)
        plan = resolved_or(
            context.resolved, lambda: self.resolve(request, seed, context)
        )
        frames = self.make_frames(plan, context)
        context.set_deadline(plan.deadline_ms)
        with context.scope:
            await self._run(request, plan, frames, reply, context)
        if context.scope.cancelled_caught and not reply.is_over:
            self._end_cancelled(plan, frames, reply, context)
        if frames.stop_reason is None:
            raise BackendUnavailableError("backend ended stream without terminal frame")
        await reply.finish()
        context.done(frames.stop_reason)

    async def _run(
        self,
        request: R,
        plan: ResolvedRequest[GenerateJob],
        frames: FrameBuilder[E],
        reply: ResponseWriter,
        context: RequestContext,
    ) -> None:
        """Run the job; frames still unsent when it ends do not hold its permit.

        Frames of tokens are built and written where the worker's messages are read, and
        charged to the user; this task goes on when the client does not read them.
        """

        async def send_position(position: int) -> None:
            reply.put([queued_frame(context.request_id, position)])
            await reply.flush()

        async def send_loading(loading: Loading) -> None:
            reply.put([loading_frame(context, loading)])
            await reply.flush()

        @self.pipeline.loop.charged
        def send(events: Iterable[E]) -> bool:
            if built := frames.build(events):
                reply.put(built)
            return reply.is_over or reply.try_flush()

        reports = Reports(send_position, send_loading)
        if not plan.job.wants_progress:
            reports = NO_REPORTS
        async with self.open_stream(request, plan, context, reports) as stream:
            context.output = stream
            while await stream.forward(send):
                with stream.until_over():
                    await reply.flush()

    def _end_cancelled(
        self,
        plan: ResolvedRequest[GenerateJob],
        frames: FrameBuilder[E],
        reply: ResponseWriter,
        context: RequestContext,
    ) -> None:
        """End an answer that its client, an operator or its deadline cancelled."""
        if context.is_cancelled:
            reply.put(frames.build_cancelled(UNSET))
        elif context.failure is not None:
            raise context.failure
        elif plan.deadline_ms is not None and not frames.has_begun:
            raise DeadlineExceededError(plan.deadline_ms)
        else:
            reply.put(frames.build_cancelled("deadline"))
