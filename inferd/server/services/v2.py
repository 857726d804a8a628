"""The service of the v2 socket: generation with media, and transcription."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from inferd.backend.events import TokenEventV2
from inferd.backend.interface import Backend, EventStream, Prepared
from inferd.backend.job import GenerateJob, Media, TranscribeJob, media_of
from inferd.limits.server import MEDIA_MARKER_BYTES
from inferd.resolve.media import audio_ms
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v2 import resolve_v2
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.server.media.quota import RequestMedia
from inferd.server.queue.idle_watch import IdleWatch
from inferd.server.request_context import RequestContext, RequestStats
from inferd.server.services.append_pump import AppendPump, in_background
from inferd.server.services.frames import V2FrameBuilder
from inferd.server.services.generate import GenerateService
from inferd.server.services.pipeline import Reports
from inferd.wire.blocks import AudioAttachment, BlocksRequest, ImageAttachment

V2Job = GenerateJob | TranscribeJob


async def bind_media(
    job: V2Job, request: BlocksRequest, fds: Sequence[int], request_media: RequestMedia
) -> tuple[V2Job, list[int]]:
    """Load the attachments of a job; give the job with their sizes, and their files.

    Attachments that no block refers to are not loaded.

    Args:
        job: the job of the resolved request.
        request: the request with its attachments.
        fds: descriptors that came with its line; the caller's.
        request_media: where the attachments are loaded to; still empty.

    Raises:
        InvalidRequestError: an attachment is not as the request declares it.
        QueueFullError: other requests hold too much of the media quota.
        BackendUnavailableError: there is no descriptor or no memory for an attachment.
    """
    wanted = {each.id for each in media_of(job)}
    attachments = [
        each
        for each in request.attachments
        if isinstance(each, ImageAttachment | AudioAttachment) and each.id in wanted
    ]
    await request_media.load(attachments, fds)
    files = [request_media.media[each.id] for each in media_of(job)]
    media = [
        replace(each, n_bytes=file.n_bytes)
        for each, file in zip(media_of(job), files, strict=True)
    ]
    media_fds = [file.fd for file in files]
    match job:
        case GenerateJob():
            return replace(job, media=tuple(media)), media_fds
        case TranscribeJob():
            return replace(job, audio=media[0]), media_fds


def open_audio(request_media: RequestMedia) -> GrowingAudioFile | None:
    """Find the audio attachment that the client may still append to."""
    for file in request_media.media.values():
        if isinstance(file, GrowingAudioFile):
            return file
    return None


def media_stats(media: Sequence[Media]) -> RequestStats:
    """Count the images and the milliseconds of audio of a job."""
    counts: RequestStats = {
        "n_images": sum(each.kind == "image" for each in media),
        "audio_ms": audio_ms(media),
    }
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class V2Service(GenerateService[BlocksRequest, TokenEventV2]):
    """Service of the v2 socket: generation with media, and transcription."""

    def resolve(
        self, request: BlocksRequest, seed: int, context: RequestContext
    ) -> ResolvedRequest[GenerateJob]:
        """Resolve a request for the user at the other end, with a media marker."""
        return resolve_v2(
            request,
            seed=seed,
            owner=context.owner,
            marker=secrets.token_hex(MEDIA_MARKER_BYTES),
            n_fds=len(context.fds),
        )

    def make_frames(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> V2FrameBuilder:
        """Make the builder of the answer's v2 frames."""
        return V2FrameBuilder(plan, context)

    @asynccontextmanager
    async def open_stream(
        self,
        request: BlocksRequest,
        plan: ResolvedRequest[GenerateJob],
        context: RequestContext,
        reports: Reports,
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        """Hold a permit and the request's media while inside, and run the job."""
        with self.pipeline.media_quota.open(context.caller) as request_media:

            async def make_job(backend: Backend) -> tuple[V2Job, Sequence[int]]:
                job = _job_for(backend, plan)
                context.has_seed = isinstance(job, GenerateJob)
                return await bind_media(job, request, context.fds, request_media)

            async with self.pipeline.admit(
                plan, context, make_job, reports=reports
            ) as (backend, prepared):
                context.stats |= media_stats(media_of(prepared.job))
                async with self._run_job(
                    backend, prepared, request_media, context
                ) as stream:
                    yield stream

    def _run_job(
        self,
        backend: Backend,
        prepared: Prepared[V2Job],
        request_media: RequestMedia,
        context: RequestContext,
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        match prepared.job:
            case GenerateJob():
                return backend.generate_v2(cast("Prepared[GenerateJob]", prepared))
            case TranscribeJob():
                transcription = cast("Prepared[TranscribeJob]", prepared)
                return self._transcribe(backend, transcription, request_media, context)

    @asynccontextmanager
    async def _transcribe(
        self,
        backend: Backend,
        prepared: Prepared[TranscribeJob],
        request_media: RequestMedia,
        context: RequestContext,
    ) -> AsyncIterator[EventStream[TokenEventV2]]:
        async with backend.transcribe(prepared) as stream:
            audio = open_audio(request_media)
            if audio is None:
                yield stream
                return
            context.on_audio_read = audio.discard
            assert context.permit is not None  # noqa: S101  # admit() has set it
            idle_watch = IdleWatch(self.pipeline.queue, context.permit)
            backend.on_audio_needed(prepared, idle_watch.idle_until)

            def on_appended(n_bytes: int, *, is_last: bool) -> None:
                backend.append_audio(prepared, n_bytes, is_last=is_last)
                idle_watch.received(n_bytes, is_last=is_last)

            pump = AppendPump(audio, context, on_appended)
            async with in_background(idle_watch.run), in_background(pump.run):
                yield stream


def _job_for(backend: Backend, plan: ResolvedRequest[GenerateJob]) -> V2Job:
    if plan.transcription is not None and backend.capabilities.transcribe:
        return plan.transcription
    return plan.job
