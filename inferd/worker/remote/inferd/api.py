"""The record of a daemon, over its sockets or through its bridge: both take the same lines."""

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.inferd import InferdSettings
from inferd.worker.remote.api import (
    Chat,
    Counting,
    ErrorReader,
    RemoteApi,
    Whole,
    bearer,
)
from inferd.worker.remote.inferd.answer import FrameReader, read_prompt_tokens
from inferd.worker.remote.inferd.encode import (
    read_embed,
    read_rerank,
    write_embed,
    write_rerank,
)
from inferd.worker.remote.inferd.frames import error_in_answer, error_of_status
from inferd.worker.remote.inferd.offered import models_of
from inferd.worker.remote.inferd.request import write_chat, write_count
from inferd.worker.remote.inferd.speech import read_transcribe, write_transcribe
from inferd.worker.remote.kept_chats.api import kept_chats


def capabilities(settings: InferdSettings) -> BackendCapabilities:
    """Say what a backend can do, as configured: nothing is asked of the remote for it."""
    takes_sound = settings.audio or settings.transcribe
    return BackendCapabilities(
        model=settings.model,
        generate=settings.generate,
        v2=settings.generate or settings.transcribe,
        vision=settings.vision,
        audio=settings.audio,
        audio_sample_rate=settings.audio_sample_rate if takes_sound else 0,
        embed=settings.embed,
        n_embd=settings.n_embd or 0,
        rerank=settings.rerank,
        transcribe=settings.transcribe,
        tools=settings.tools,
        thinking=settings.thinking,
        structure=settings.structure,
        token_ids=settings.token_ids,
        n_ctx=settings.n_ctx or 0,
        dialect="generic",
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def api_of(settings: InferdSettings) -> RemoteApi[InferdSettings]:
    """Return the record of a backend; what it can do decides where models are listed."""
    api = RemoteApi(
        name="a daemon",
        headers=bearer,
        errors=ErrorReader(error_of_status, error_in_answer),
        capabilities=capabilities,
        chat=Chat(write=write_chat, make_reader=FrameReader),
        counting=Counting(write=write_count, read=read_prompt_tokens),
        embed=Whole(write=write_embed, read=read_embed),
        rerank=Whole(write=write_rerank, read=read_rerank),
        transcribe=Whole(write=write_transcribe, read=read_transcribe),
        models=models_of(settings),
        takes_sound=True,
        takes_plain_media=True,
    )
    return kept_chats(api) if settings.conversation == "remote" else api
