"""A client that calls back, for programs that draw, play or listen and must not wait.

``InferenceClient`` returns from each call at once; a thread of its own sends the request, and
``poll`` calls what is due, in the thread that calls it. It asks a daemon over its sockets, or
any server with OpenAI's API and whisper.cpp's over HTTP. The names are those of a contract,
which ``docs/python-callbacks.md`` maps to tests.
"""

from inferd.client.callback.client import InferenceClient
from inferd.client.callback.configuration import Config
from inferd.client.callback.http_client import (
    Cancellation,
    HttpClient,
    HttpRequest,
    HttpResponse,
)
from inferd.client.callback.requests import (
    ChatMessage,
    ChatRequest,
    StructuredRequest,
    TranscriptionRequest,
)
from inferd.client.callback.responses import (
    ChatResponse,
    RequestHandle,
    RequestMetrics,
    StructuredResponse,
    TokenUsage,
    TranscriptionResponse,
)

__all__ = [
    "Cancellation",
    "ChatMessage",
    "ChatRequest",
    "ChatResponse",
    "Config",
    "HttpClient",
    "HttpRequest",
    "HttpResponse",
    "InferenceClient",
    "RequestHandle",
    "RequestMetrics",
    "StructuredRequest",
    "StructuredResponse",
    "TokenUsage",
    "TranscriptionRequest",
    "TranscriptionResponse",
]
