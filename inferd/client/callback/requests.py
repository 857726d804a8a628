"""What a program asks."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to go on with, in text."""

    messages: Sequence[ChatMessage] = ()
    temperature: float = 0.7
    max_tokens: int = 512


@dataclass(frozen=True)
class StructuredRequest:
    """A conversation to answer with JSON that satisfies a schema."""

    messages: Sequence[ChatMessage] = ()
    schema_name: str = ""
    """For servers that want one."""
    json_schema: str = ""
    """A JSON Schema, as a text."""
    temperature: float = 0.0
    max_tokens: int = 512


@dataclass(frozen=True)
class TranscriptionRequest:
    """Speech to write down."""

    audio_data: bytes = field(default=b"", repr=False)
    """A file."""
    format: str = "wav"
    """Of the file, such as ``wav`` or ``flac``; ``f32`` is samples alone: 32-bit
    floats of one channel, little-endian, 16,000 a second."""
