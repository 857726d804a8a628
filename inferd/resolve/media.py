"""List the media of a request in the order of the conversation."""

from collections.abc import Iterable, Iterator, Sequence

from inferd.backend.job import PIXEL_BYTES, SAMPLE_BYTES, Media
from inferd.errors import InvalidRequestError
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    Block,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    ToolResultBlock,
)


def media_in(request: BlocksRequest) -> tuple[Media, ...]:
    """Return the media that a conversation refers to, in its order and with duplicates.

    The size of audio is 0 here; it is known once the audio has arrived.

    Raises:
        InvalidRequestError: an audio attachment has a ``sample_rate`` of 0.
    """
    known = {
        attachment.id: attachment
        for attachment in request.attachments
        if isinstance(attachment, ImageAttachment | AudioAttachment)
    }
    blocks = (block for message in request.conversation for block in message.content)
    return tuple(_medium(known[name]) for name in _references(blocks))


def audio_ms(media: Iterable[Media]) -> int:
    """Return the total length of the audio that has arrived, in milliseconds."""
    return sum(
        medium.n_bytes // SAMPLE_BYTES * 1000 // medium.sample_rate
        for medium in media
        if medium.sample_rate
    )


def _medium(attachment: ImageAttachment | AudioAttachment) -> Media:
    match attachment:
        case ImageAttachment(id=name, width=width, height=height):
            n_bytes = width * height * PIXEL_BYTES
            return Media(
                kind="image", id=name, n_bytes=n_bytes, width=width, height=height
            )
        case AudioAttachment(id=name, sample_rate=rate, open=is_open):
            if not rate:
                raise InvalidRequestError(
                    f'attachment "{name}": sample_rate 0 must be at least 1'
                )
            return Media(
                kind="audio", id=name, n_bytes=0, sample_rate=rate, is_open=is_open
            )


def _references(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case ImageBlock(name) | AudioBlock(name):
                yield name
            case ToolResultBlock(content=content):
                yield from _references(content)
            case _:
                pass


def open_attachment_ids(media: Sequence[object]) -> list[str]:
    """Return the ids of attachments that are still open."""
    return [
        attachment.id
        for attachment in media
        if isinstance(attachment, AudioAttachment) and attachment.open
    ]
