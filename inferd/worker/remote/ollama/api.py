"""The record of Ollama's API."""

from typing import Final

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.ollama import OllamaSettings
from inferd.worker.remote.api import Chat, ErrorReader, RemoteApi, Whole, bearer
from inferd.worker.remote.models import OLLAMA_MODELS
from inferd.worker.remote.ollama.answer import OllamaReader
from inferd.worker.remote.ollama.encode import read_embed, write_embed
from inferd.worker.remote.ollama.errors import error_in_answer, error_of_status
from inferd.worker.remote.ollama.pull import OLLAMA_PULL
from inferd.worker.remote.ollama.request import write_chat


def capabilities(settings: OllamaSettings) -> BackendCapabilities:
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


OLLAMA_API: Final = RemoteApi(
    name="Ollama's API",
    headers=bearer,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
    chat=Chat(write=write_chat, make_reader=OllamaReader),
    embed=Whole(write=write_embed, read=read_embed),
    models=OLLAMA_MODELS,
    pull=OLLAMA_PULL,
)
