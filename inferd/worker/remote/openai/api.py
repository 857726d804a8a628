"""The record of OpenAI's API."""

from typing import Final

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import GenerateJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.worker.remote.api import (
    SPEECH_SAMPLE_RATE,
    Chat,
    Counting,
    ErrorReader,
    RemoteApi,
    Whole,
    bearer,
)
from inferd.worker.remote.models import OPENAI_MODELS
from inferd.worker.remote.openai.answer import AnswerReader
from inferd.worker.remote.openai.counting import read_count, write_count
from inferd.worker.remote.openai.encode import (
    read_embed,
    read_rerank,
    write_embed,
    write_rerank,
)
from inferd.worker.remote.openai.errors import error_in_answer, error_of_status
from inferd.worker.remote.openai.request import write_request
from inferd.worker.remote.openai.speech import read_transcribe, write_transcribe


def capabilities(settings: OpenAiSettings) -> BackendCapabilities:
    """Say what a backend can do, as configured: nothing is asked of the remote for it."""
    return BackendCapabilities(
        model=settings.model,
        generate=settings.generate,
        v2=settings.generate or settings.transcribe,
        vision=settings.vision,
        embed=settings.embed,
        n_embd=settings.n_embd or 0,
        rerank=settings.rerank,
        transcribe=settings.transcribe,
        audio_sample_rate=SPEECH_SAMPLE_RATE if settings.transcribe else 0,
        tools=settings.tools,
        thinking=settings.thinking,
        structure=settings.structure,
        n_ctx=settings.n_ctx or 0,
        dialect="generic",
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def make_reader(
    settings: OpenAiSettings, ticket: int, job: GenerateJob, prompt_tokens: int
) -> AnswerReader:
    """Make the reader of an answer."""
    return AnswerReader(
        ticket,
        job,
        expect_model=settings.expect_model,
        prompt_tokens=prompt_tokens,
        n_ctx=settings.n_ctx,
    )


OPENAI_API: Final = RemoteApi(
    name="OpenAI's API",
    headers=bearer,
    chat=Chat(write=write_request, make_reader=make_reader),
    counting=Counting(write=write_count, read=read_count),
    embed=Whole(write=write_embed, read=read_embed),
    rerank=Whole(write=write_rerank, read=read_rerank),
    transcribe=Whole(write=write_transcribe, read=read_transcribe),
    models=OPENAI_MODELS,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
)
