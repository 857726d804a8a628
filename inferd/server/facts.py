"""What the log says of a request besides how it went: numbers, and never its content."""

from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import Request
from inferd.wire.requests import EmbedRequest, RerankRequest

Facts = dict[str, int | float]


def facts_of(request: Request) -> Facts:
    """Count what a request brings."""
    match request:
        case BlocksRequest(attachments=attachments, tools=tools):
            return {"n_attachments": len(attachments), "n_tools": len(tools)}
        case EmbedRequest(input=texts):
            return {"n_inputs": len(texts)}
        case RerankRequest(documents=documents):
            return {"n_documents": len(documents)}
        case _:
            return {}
