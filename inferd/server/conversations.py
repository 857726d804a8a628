"""v2 requests at a backend: with their media, as a text to write or as speech to write down."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from inferd.backend import Backend, EventStream, Prepared
from inferd.events import TokenEventV2
from inferd.job import GenerateJob, TranscribeJob, media_of
from inferd.resolve.plan import Plan
from inferd.server.activity import Activity
from inferd.server.baggage import V2Job, facts_of_media, open_sound, unpack
from inferd.server.entrance import Entrance, Tell
from inferd.server.feed import Feed, beside, feeding
from inferd.server.holdings import Holdings
from inferd.server.silence import Silence
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
            assert activity.turn is not None  # noqa: S101  # it has a permit
            silence = Silence(self.entrance.turns, activity.turn)
            backend.on_silent(prepared, silence.lasts_until)

            def append(n_bytes: int, *, is_last: bool) -> None:
                backend.append(prepared, n_bytes, is_last=is_last)
                silence.has_come(n_bytes, is_last=is_last)

            async with beside(silence.run), feeding(Feed(sound, activity, append)):
                yield stream


def _job_for(backend: Backend, plan: Plan[GenerateJob]) -> V2Job:
    if plan.transcription is not None and backend.capabilities.transcribe:
        return plan.transcription
    return plan.job
