"""Pixels and samples of a request: what stands where in it, and what of it is sound."""

from collections.abc import Iterable, Iterator, Sequence

from inferd.errors import InvalidRequestError
from inferd.job import PIXEL_BYTES, SAMPLE_BYTES, Media
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
    """Give the media that stand in a conversation, in its order; one may stand there twice.

    How many bytes of sound there are is known once they are here.

    Raises:
        InvalidRequestError: sound has no samples a second.
    """
    known = {
        each.id: each
        for each in request.attachments
        if isinstance(each, ImageAttachment | AudioAttachment)
    }
    blocks = (block for message in request.messages for block in message.content)
    return tuple(_medium(known[name]) for name in _references(blocks))


def audio_ms(media: Iterable[Media]) -> int:
    """Tell how long all sound among media lasts that is here."""
    return sum(
        each.n_bytes // SAMPLE_BYTES * 1000 // each.sample_rate
        for each in media
        if each.sample_rate
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
                raise InvalidRequestError(f'attachment "{name}": sample_rate 0')
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


def open_ids(media: Sequence[object]) -> list[str]:
    """Give the names of attachments of which more is to come."""
    return [
        each.id for each in media if isinstance(each, AudioAttachment) and each.open
    ]
