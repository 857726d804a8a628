"""The inference sockets there are: for each its messages, its service, who serves it."""

from collections.abc import Iterator, Sequence

from inferd.backend import Backend
from inferd.config import Listen
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.server.connection import Surface
from inferd.server.encode import embed_service, rerank_service
from inferd.server.entrance import Entrance
from inferd.server.generate import blocks_service, text_service
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest

AnySurface = (
    Surface[GenerateRequest]
    | Surface[BlocksRequest]
    | Surface[EmbedRequest]
    | Surface[RerankRequest]
)


def surfaces(
    listen: Listen, backends: Sequence[Backend], entrance: Entrance
) -> Iterator[AnySurface]:
    """Give those that are wanted and that a backend can serve."""
    able = [backend.capabilities for backend in backends]
    if any(each.generate for each in able):
        yield Surface(INFER_SOCKET, decode_generate, text_service(entrance))
    if listen.v2 and any(
        (each.generate and each.v2) or each.transcribe for each in able
    ):
        yield Surface(
            INFER_V2_SOCKET, decode_blocks, blocks_service(entrance), takes_media=True
        )
    if listen.embed and any(each.embed for each in able):
        yield Surface(EMBED_SOCKET, decode_embed, embed_service(entrance))
    if listen.rerank and any(each.rerank for each in able):
        yield Surface(RERANK_SOCKET, decode_rerank, rerank_service(entrance))
