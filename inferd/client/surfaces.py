"""The inference sockets, with their request types and the decoders of their frames."""

from typing import Final

from msgspec.json import Decoder

from inferd import surfaces
from inferd.client.exchange import ClientSurface
from inferd.client.frames import BlocksAnswer, ClientErrorFrame, TextAnswer
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import (
    DescribeRequest,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import EmbeddingsFrame, ModelsFrame, RerankFrame

TEXT: Final[ClientSurface[GenerateRequest, TextAnswer]] = ClientSurface(
    surfaces.INFER.socket, Decoder(TextAnswer | ClientErrorFrame)
)
BLOCKS: Final[ClientSurface[BlocksRequest, BlocksAnswer]] = ClientSurface(
    surfaces.V2.socket, Decoder(BlocksAnswer | ClientErrorFrame)
)
EMBED: Final[ClientSurface[EmbedRequest, EmbeddingsFrame]] = ClientSurface(
    surfaces.EMBED.socket, Decoder(EmbeddingsFrame | ClientErrorFrame)
)
RERANK: Final[ClientSurface[RerankRequest, RerankFrame]] = ClientSurface(
    surfaces.RERANK.socket, Decoder(RerankFrame | ClientErrorFrame)
)
_MODELS: Final = Decoder(ModelsFrame | ClientErrorFrame)


def describing(
    surface: surfaces.Surface,
) -> ClientSurface[DescribeRequest, ModelsFrame]:
    """Return how the models of an inference socket are asked for."""
    return ClientSurface(surface.socket, _MODELS)
