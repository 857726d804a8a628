"""Have the media of a question decoded, and attached to its request."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple

from msgspec.structs import replace

from inferd.bridge.media.decoders import DecodedMedium, MediaDecoders
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.media import EncodedMedium
from inferd.bridge.translation.question import DaemonRequest, Question
from inferd.client.media.sound import SAMPLE_RATE_HZ
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    BlocksRequest,
    ImageAttachment,
)


class AttachedRequest(NamedTuple):
    """A request, and the descriptors that its attachments name."""

    request: DaemonRequest
    descriptors: Sequence[int]


@asynccontextmanager
async def attached(
    question: Question, decoders: MediaDecoders | None, principal: str
) -> AsyncIterator[AttachedRequest]:
    """Decode the media of a question, one after another; yield the request with them.

    Args:
        question: with or without media.
        decoders: decode; ``None`` refuses media.
        principal: whose share of decoders it takes.

    Raises:
        BridgeError: one cannot be decoded.

    Ownership: the descriptors are closed on leaving.
    """
    request = question.request
    if not question.media or not isinstance(request, BlocksRequest):
        yield AttachedRequest(request, ())
        return
    if decoders is None:
        raise BridgeError(Reason.UNSUPPORTED, "pictures and sound are not served")
    with ExitStack() as opened:
        attachments: list[Attachment] = []
        descriptors: list[int] = []
        n_bytes = 0
        for medium in question.media:
            decode = (
                decoders.decode_picture
                if medium.kind == "picture"
                else decoders.decode_sound
            )
            decoded = opened.enter_context(
                await decode(
                    medium.data,
                    place=medium.place,
                    principal=principal,
                    n_before=n_bytes,
                )
            )
            n_bytes += decoded.n_bytes
            attachments.append(_attachment(medium, decoded, len(descriptors)))
            descriptors.append(decoded.fd)
        yield AttachedRequest(replace(request, attachments=attachments), descriptors)


def _attachment(medium: EncodedMedium, decoded: DecodedMedium, fd: int) -> Attachment:
    if medium.kind == "picture":
        return ImageAttachment(
            id=medium.attachment_id, width=decoded.width, height=decoded.height, fd=fd
        )
    return AudioAttachment(id=medium.attachment_id, sample_rate=SAMPLE_RATE_HZ, fd=fd)
