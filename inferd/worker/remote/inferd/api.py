"""The records of a daemon: of its sockets, and of its bridge."""

from typing import Final

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.kinds.inferd import InferdSettings
from inferd.surfaces import EMBED, RERANK, V2
from inferd.worker.remote.anthropic.api import read_count
from inferd.worker.remote.api import (
    AnswerForm,
    Chat,
    Counting,
    ErrorReader,
    RemoteApi,
    RemoteModels,
    RemoteRequest,
    Whole,
    bearer,
)
from inferd.worker.remote.inferd import bridge
from inferd.worker.remote.inferd.answer import FrameReader, read_prompt_tokens
from inferd.worker.remote.inferd.encode import (
    read_embed,
    read_rerank,
    write_embed,
    write_rerank,
)
from inferd.worker.remote.inferd.offered import DESCRIBE_LINE, read_offered
from inferd.worker.remote.inferd.request import write_chat, write_count
from inferd.worker.remote.inferd.speech import read_transcribe, write_transcribe
from inferd.worker.remote.models import OPENAI_MODELS
from inferd.worker.remote.openai.errors import error_in_answer, error_of_status


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
        n_ctx=settings.n_ctx or 0,
        dialect="generic",
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def api_of(settings: InferdSettings) -> RemoteApi[InferdSettings]:
    """Return the record of a backend: that of its sockets or of its bridge."""
    return _sockets_api(settings) if settings.has_sockets else BRIDGE_API


def _sockets_api(settings: InferdSettings) -> RemoteApi[InferdSettings]:
    surface = V2
    if not settings.generate and not settings.transcribe:
        surface = EMBED if settings.embed else RERANK
    asked = RemoteRequest(surface.socket, DESCRIBE_LINE, AnswerForm.DOCUMENT)
    return RemoteApi(
        name="a daemon",
        headers=bearer,
        errors=BRIDGE_API.errors,
        capabilities=capabilities,
        chat=Chat(write=write_chat, make_reader=FrameReader),
        counting=Counting(write=write_count, read=read_prompt_tokens),
        embed=Whole(write=write_embed, read=read_embed),
        rerank=Whole(write=write_rerank, read=read_rerank),
        transcribe=Whole(write=write_transcribe, read=read_transcribe),
        models=RemoteModels(request=asked, read=read_offered),
        takes_sound=True,
        takes_plain_media=True,
    )


BRIDGE_API: Final = RemoteApi(
    name="a daemon's bridge",
    headers=bearer,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
    chat=Chat(write=bridge.write_chat, make_reader=bridge.make_reader),
    counting=Counting(write=bridge.write_count, read=read_count),
    embed=Whole(write=bridge.write_embed, read=bridge.read_embed),
    rerank=Whole(write=bridge.write_rerank, read=bridge.read_rerank),
    transcribe=Whole(write=bridge.write_transcribe, read=bridge.read_transcribe),
    models=OPENAI_MODELS,
    takes_sound=True,
)
