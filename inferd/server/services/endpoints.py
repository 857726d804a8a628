"""The inference sockets, with their decoders and services."""

from collections.abc import Iterator, Sequence

from inferd.backend.interface import Backend
from inferd.config.settings import ListenSettings
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.server.connection.serve import Endpoint
from inferd.server.services.encode import embed_service, rerank_service
from inferd.server.services.pipeline import Pipeline
from inferd.server.services.v1 import V1Service
from inferd.server.services.v2 import V2Service
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest

AnyEndpoint = (
    Endpoint[GenerateRequest]
    | Endpoint[BlocksRequest]
    | Endpoint[EmbedRequest]
    | Endpoint[RerankRequest]
)


def endpoints(
    listen: ListenSettings, backends: Sequence[Backend], pipeline: Pipeline
) -> Iterator[AnyEndpoint]:
    """Yield the endpoints that are configured and that a backend can serve."""
    capabilities = [backend.capabilities for backend in backends]
    if any(each.generate for each in capabilities):
        yield Endpoint(INFER_SOCKET, decode_generate, V1Service(pipeline))
    if listen.v2 and any(
        (each.generate and each.v2) or each.transcribe for each in capabilities
    ):
        yield Endpoint(
            INFER_V2_SOCKET, decode_blocks, V2Service(pipeline), takes_media=True
        )
    if listen.embed and any(each.embed for each in capabilities):
        yield Endpoint(EMBED_SOCKET, decode_embed, embed_service(pipeline))
    if listen.rerank and any(each.rerank for each in capabilities):
        yield Endpoint(RERANK_SOCKET, decode_rerank, rerank_service(pipeline))
