"""The media that a request comes with, as a job needs them: their sizes and descriptors."""

from collections.abc import Sequence

from msgspec.structs import replace

from inferd.job import GenerateJob, Media, TranscribeJob, media_of
from inferd.resolve.media import audio_ms
from inferd.server.facts import Facts
from inferd.server.holdings import Holdings
from inferd.server.sound import Sound
from inferd.wire.blocks import AudioAttachment, BlocksRequest, ImageAttachment

V2Job = GenerateJob | TranscribeJob


async def unpack(
    job: V2Job, request: BlocksRequest, fds: Sequence[int], holdings: Holdings
) -> tuple[V2Job, list[int]]:
    """Have what a job needs held; give the job with its sizes, and the descriptors.

    Attachments that nothing refers to are not looked at.

    Args:
        job: what the request came to.
        request: whose attachments they are.
        fds: that came with its line; the caller's.
        holdings: empty yet.

    Raises:
        InvalidRequestError: something is not what it was said to be.
        QueueFullError: others hold too much.
        BackendUnavailableError: there is no room for it.
    """
    wanted = {each.id for each in media_of(job)}
    attachments = [
        each
        for each in request.attachments
        if isinstance(each, ImageAttachment | AudioAttachment) and each.id in wanted
    ]
    await holdings.take(attachments, fds)
    held = [holdings.media[each.id] for each in media_of(job)]
    media = [
        replace(each, n_bytes=medium.n_bytes)
        for each, medium in zip(media_of(job), held, strict=True)
    ]
    theirs = [medium.fd for medium in held]
    match job:
        case GenerateJob():
            return replace(job, media=tuple(media)), theirs
        case TranscribeJob():
            return replace(job, audio=media[0]), theirs


def open_sound(holdings: Holdings) -> Sound | None:
    """Find the sound of which more is to come."""
    for medium in holdings.media.values():
        if isinstance(medium, Sound):
            return medium
    return None


def facts_of_media(media: Sequence[Media]) -> Facts:
    """Count what a model looks at and listens to."""
    counts: Facts = {
        "n_images": sum(each.kind == "image" for each in media),
        "audio_ms": audio_ms(media),
    }
    return {name: count for name, count in counts.items() if count}
