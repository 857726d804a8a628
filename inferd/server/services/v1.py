"""The service of the v1 socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from inferd.backend.events import TokenEvent
from inferd.backend.interface import EventStream
from inferd.backend.job import GenerateJob
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v1 import resolve_v1
from inferd.server.request_context import RequestContext
from inferd.server.services.frames import V1FrameBuilder
from inferd.server.services.generate import GenerateService
from inferd.server.services.pipeline import Reports, resolved_job
from inferd.wire.requests import GenerateRequest


@dataclass(frozen=True)
class V1Service(GenerateService[GenerateRequest, TokenEvent]):
    """Service of the v1 socket: text generation."""

    def resolve(
        self, request: GenerateRequest, seed: int, context: RequestContext
    ) -> ResolvedRequest[GenerateJob]:
        """Resolve a request for the user at the other end."""
        return resolve_v1(request, seed=seed, owner=context.owner)

    def make_frames(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> V1FrameBuilder:
        """Make the builder of the answer's v1 frames."""
        return V1FrameBuilder(plan, context)

    @asynccontextmanager
    async def open_stream(
        self,
        request: GenerateRequest,  # noqa: ARG002  # its job is all that is needed
        plan: ResolvedRequest[GenerateJob],
        context: RequestContext,
        reports: Reports,
    ) -> AsyncIterator[EventStream[TokenEvent]]:
        """Hold a permit while inside, and run the job."""
        async with (
            self.pipeline.admit(plan, context, resolved_job(plan), reports=reports) as (
                backend,
                prepared,
            ),
            backend.generate(prepared) as stream,
        ):
            yield stream
