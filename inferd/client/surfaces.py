"""The inference sockets, with their request types and the decoders of their frames."""

from typing import Final

from msgspec.json import Decoder

from inferd import surfaces
from inferd.client.exchange import ClientSurface
from inferd.client.frames import BlocksAnswer, ClientErrorFrame, TextAnswer
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame

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
