"""The record of Anthropic's API."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.anthropic import AnthropicSettings
from inferd.worker.remote.anthropic.answer import AnthropicReader
from inferd.worker.remote.anthropic.errors import error_in_answer, error_of_status
from inferd.worker.remote.anthropic.request import write_chat, write_count
from inferd.worker.remote.api import Chat, Counting, ErrorReader, RemoteApi
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.models import ANTHROPIC_MODELS

_VERSION: Final = "2023-06-01"
"""Of the API, the only one since then."""


class _Count(Struct):
    input_tokens: int


_COUNT: Final = msgspec.json.Decoder(_Count)


def headers(key: str) -> Mapping[str, str]:
    """Write the key as the API expects it, and the version of the API."""
    version = {"anthropic-version": _VERSION}
    return {**version, "x-api-key": key} if key else version


def capabilities(settings: AnthropicSettings) -> BackendCapabilities:
    """Say what a backend can do, as configured: nothing is asked of the remote for it."""
    return BackendCapabilities(
        model=settings.model,
        v2=True,
        tools=settings.tools,
        thinking=settings.thinking,
        structure=settings.structure,
        vision=settings.vision,
        n_ctx=settings.n_ctx or 0,
        dialect="generic",
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def read_count(body: bytes) -> int:
    """Read the number of a prompt's tokens."""
    return decode_part(_COUNT, body).input_tokens


ANTHROPIC_API: Final = RemoteApi(
    name="Anthropic's API",
    headers=headers,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
    chat=Chat(write=write_chat, make_reader=AnthropicReader),
    counting=Counting(write=write_count, read=read_count),
    models=ANTHROPIC_MODELS,
)
