"""The record of OpenAI's API."""

from typing import Final

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import GenerateJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.worker.remote.api import Chat, ErrorReader, RemoteApi, bearer
from inferd.worker.remote.openai.answer import AnswerReader
from inferd.worker.remote.openai.errors import error_in_answer, error_of_status
from inferd.worker.remote.openai.request import write_request


def capabilities(settings: OpenAiSettings) -> BackendCapabilities:
    """Say what a backend can do, as configured: nothing is asked of the remote for it."""
    return BackendCapabilities(
        model=settings.model,
        v2=True,
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
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
)
