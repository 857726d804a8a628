"""The record of the Gemini API."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.gemini import GeminiSettings
from inferd.worker.remote.api import Chat, Counting, ErrorReader, RemoteApi, Whole
from inferd.worker.remote.conversation.reader import decode_part
from inferd.worker.remote.gemini.answer import GeminiReader
from inferd.worker.remote.gemini.encode import read_embed, write_embed
from inferd.worker.remote.gemini.errors import error_in_answer, error_of_status
from inferd.worker.remote.gemini.request import write_chat, write_count
from inferd.worker.remote.models import GEMINI_MODELS


class _Count(Struct, rename="camel"):
    total_tokens: int


_COUNT: Final = msgspec.json.Decoder(_Count)


def headers(key: str) -> Mapping[str, str]:
    """Write the key as the API expects it."""
    return {"x-goog-api-key": key} if key else {}


def capabilities(settings: GeminiSettings) -> BackendCapabilities:
    """Say what a backend can do, as configured: nothing is asked of the remote for it."""
    return BackendCapabilities(
        model=settings.model,
        generate=settings.generate,
        v2=settings.generate,
        tools=settings.tools,
        thinking=settings.thinking,
        structure=settings.structure,
        vision=settings.vision,
        embed=settings.embed,
        n_embd=settings.n_embd or 0,
        n_ctx=settings.n_ctx or 0,
        dialect="generic",
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def read_count(body: bytes) -> int:
    """Read the number of a prompt's tokens."""
    return decode_part(_COUNT, body).total_tokens


GEMINI_API: Final = RemoteApi(
    name="the Gemini API",
    headers=headers,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
    chat=Chat(write=write_chat, make_reader=GeminiReader),
    embed=Whole(write=write_embed, read=read_embed),
    counting=Counting(write=write_count, read=read_count),
    models=GEMINI_MODELS,
)
