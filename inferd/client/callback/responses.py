"""What a program is told."""

from dataclasses import dataclass

RequestHandle = int
"""Names one request of one client; the first is 1."""


@dataclass(frozen=True, kw_only=True)
class ChatResponse:
    """The end of a chat."""

    full_response: str = ""
    """What ``on_token`` was given, whether or not it is all."""
    cancelled: bool = False
    error: bool = False
    error_message: str = ""
    error_code: str = ""
    """The daemon's, of ``protocol/errors.md``, or the server's, if it refused."""


@dataclass(frozen=True, kw_only=True)
class StructuredResponse:
    """The end of a structured request."""

    raw_json: str = ""
    """What has come, whether or not it is all."""
    cancelled: bool = False
    error: bool = False
    error_message: str = ""
    error_code: str = ""


@dataclass(frozen=True, kw_only=True)
class TranscriptionResponse:
    """The end of a transcription; one that was cancelled has an error."""

    text: str = ""
    error: bool = False
    error_message: str = ""
    error_code: str = ""


@dataclass(frozen=True, kw_only=True)
class RequestMetrics:
    """The last chat or structured request."""

    latency_ms: float = 0.0
    """From the call to the end of the answer."""
    time_to_first_token_ms: float = 0.0
    """From the call to the first text of a chat; 0 of a structure."""
    tokens_generated: int = 0
    """Pieces of text that have come; of a structure, its tokens."""
    tokens_per_second: float = 0.0
    """``tokens_generated`` by ``latency_ms``; 0 on an error."""


@dataclass(frozen=True, kw_only=True)
class TokenUsage:
    """All that a client has used."""

    total_tokens: int = 0
    """Of prompts and answers, as the server counted them; where it did not, the pieces."""
