"""v2 requests at a backend: with their media, as a text to write or as speech to write down."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from inferd.backend import Backend, EventStream, Prepared
from inferd.events import TokenEventV2
from inferd.job import GenerateJob, TranscribeJob, media_of
from inferd.resolve.plan import Plan
from inferd.server.activity import Activity
from inferd.server.baggage import V2Job, facts_of_media, open_sound, unpack
from inferd.server.entrance import Entrance, Tell
from inferd.server.feed import Feed, feeding
from inferd.server.holdings import Holdings
from inferd.wire.blocks import BlocksRequest


@dataclass(frozen=True)
class Conversations:
    """What the v2 socket's service does with its requests."""

    entrance: Entrance

    @asynccontextmanager
    async def opened(
        self,
        request: BlocksRequest,
        plan: Plan[GenerateJob],
        activity: Activity,
        tell: Tell | None,
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Hold a permit while inside, with the media of the request, and run the job."""
        with self.entrance.media.open(activity.peer.user) as holdings:

            async def bring(backend: Backend) -> tuple[V2Job, Sequence[int]]:
                job = _job_for(backend, plan)
                activity.has_seed = isinstance(job, GenerateJob)
                return await unpack(job, request, activity.fds, holdings)

            async with self.entrance.enter_with(bring, plan, activity, tell=tell) as (
                backend,
                prepared,
            ):
                activity.facts |= facts_of_media(media_of(prepared.job))
                async with self._run(backend, prepared, holdings, activity) as stream:
                    yield stream

    def _run(
        self,
        backend: Backend,
        prepared: Prepared[V2Job],
        holdings: Holdings,
        activity: Activity,
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        match prepared.job:
            case GenerateJob():
                return backend.generate_v2(cast("Prepared[GenerateJob]", prepared))
            case TranscribeJob():
                speech = cast("Prepared[TranscribeJob]", prepared)
                return self._transcribe(backend, speech, holdings, activity)

    @asynccontextmanager
    async def _transcribe(
        self,
        backend: Backend,
        prepared: Prepared[TranscribeJob],
        holdings: Holdings,
        activity: Activity,
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        async with backend.transcribe(prepared) as stream:
            sound = open_sound(holdings)
            if sound is None:
                yield stream
                return
            activity.on_heard = sound.forget
            feed = Feed(sound, activity, partial(backend.append, prepared))
            async with feeding(feed):
                yield stream


def _job_for(backend: Backend, plan: Plan[GenerateJob]) -> V2Job:
    if plan.transcription is not None and backend.capabilities.transcribe:
        return plan.transcription
    return plan.job
