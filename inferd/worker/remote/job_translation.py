"""The translation of any job by the API of a remote."""

from collections.abc import Sequence
from typing import Final

from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    Job,
    RerankJob,
    TranscribeJob,
    media_of,
)
from inferd.config.kinds.remote import RemoteSettings
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import RemoteApi, RemoteRequest, S, WholeAnswer

BASE64_GROWTH: Final = 4 / 3


def refuse_media(settings: RemoteSettings, job: Job, *, takes_sound: bool) -> None:
    """Refuse media that a remote does not take, before they are read.

    Args:
        settings: of the backend.
        job: with the media.
        takes_sound: whether conversations may have sound.

    Raises:
        RefusedError: a medium is still sent, or is sound in a conversation.
    """
    for medium in media_of(job):
        if medium.is_open:
            raise RefusedError(
                f'attachment "{medium.id}": backend "{settings.name}" takes no open audio: '
                "its remote has no transcription of speech that is still sent"
            )
        is_talk = isinstance(job, GenerateJob) and medium.kind != "image"
        if is_talk and not takes_sound:
            raise RefusedError(
                f'attachment "{medium.id}": backend "{settings.name}" takes images alone'
            )


def write_request(
    api: RemoteApi[S], settings: S, job: Job, media: Sequence[bytes]
) -> RemoteRequest:
    """Write the request of a job.

    Args:
        api: of the remote.
        settings: of the backend.
        job: to translate.
        media: of the job, in their order: images as PNG, audio as WAV.

    Raises:
        RefusedError: the remote cannot do what is asked.
    """
    return _translate(api, settings, job, media)._replace(via=job.via)


def _translate(
    api: RemoteApi[S], settings: S, job: Job, media: Sequence[bytes]
) -> RemoteRequest:
    match job:
        case GenerateJob() if api.chat is not None:
            return api.chat.write(settings, job, media)
        case EmbedJob() if api.embed is not None:
            return api.embed.write(settings, job, b"")
        case RerankJob() if api.rerank is not None:
            return api.rerank.write(settings, job, b"")
        case TranscribeJob() if api.transcribe is not None:
            return api.transcribe.write(settings, job, media[0])
        case _:
            raise RefusedError("not what this backend can do")


def read_document(
    api: RemoteApi[S], settings: S, ticket: int, job: Job, body: bytes
) -> Sequence[WholeAnswer]:
    """Read the answer to a job that is answered by one document.

    Raises:
        RemoteError: it is none.
    """
    match job:
        case EmbedJob() if api.embed is not None:
            return api.embed.read(settings, ticket, job, body)
        case RerankJob() if api.rerank is not None:
            return api.rerank.read(settings, ticket, job, body)
        case TranscribeJob() if api.transcribe is not None:
            return api.transcribe.read(settings, ticket, job, body)
        case _:
            raise AssertionError(f"{type(job).__name__} was refused before")


def count_text_bytes(request: RemoteRequest, job: Job, media: Sequence[bytes]) -> int:
    """Count the bytes of a request that are text, by which tokens are estimated."""
    if isinstance(job, TranscribeJob):
        return len(job.prompt)
    n_media = sum(int(len(each) * BASE64_GROWTH) for each in media)
    return max(0, len(request.body) - n_media)
