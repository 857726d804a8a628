"""The inference sockets, with their request types and the decoders of their frames."""

from typing import Final

from msgspec.json import Decoder

from inferd.client.exchange import Surface
from inferd.client.frames import BlocksAnswer, Failure, TextAnswer
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame

TEXT: Final[Surface[GenerateRequest, TextAnswer]] = Surface(
    INFER_SOCKET, Decoder(TextAnswer | Failure)
)
BLOCKS: Final[Surface[BlocksRequest, BlocksAnswer]] = Surface(
    INFER_V2_SOCKET, Decoder(BlocksAnswer | Failure)
)
EMBED: Final[Surface[EmbedRequest, EmbeddingsFrame]] = Surface(
    EMBED_SOCKET, Decoder(EmbeddingsFrame | Failure)
)
RERANK: Final[Surface[RerankRequest, RerankFrame]] = Surface(
    RERANK_SOCKET, Decoder(RerankFrame | Failure)
)
