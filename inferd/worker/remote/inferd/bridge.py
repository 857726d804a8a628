"""The translations of a daemon's bridge: OpenAI's, with what the bridge has besides."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.config.kinds.anthropic import AnthropicSettings
from inferd.config.kinds.inferd import InferdSettings
from inferd.config.kinds.openai import OpenAiSettings
from inferd.ipc.worker import Embedded, Scored, Transcribed, TranscriptEnded
from inferd.worker.backend import RefusedError
from inferd.worker.remote.anthropic import request as anthropic
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.refusals import refuse
from inferd.worker.remote.openai import api as openai, encode, speech
from inferd.worker.remote.openai.answer import AnswerReader
from inferd.worker.remote.openai.request import write_body

_GRAMMARS: Final = ("json_schema", "gbnf")


def write_chat(
    settings: InferdSettings, job: GenerateJob, media: Sequence[bytes] = ()
) -> RemoteRequest:
    """Write a request for a streamed answer.

    Args:
        settings: of the backend.
        job: to translate.
        media: of the job, as PNG and WAV, in their order.

    Raises:
        RefusedError: no route of the bridge has what the job asks for.
    """
    _check(settings, job)
    structure = job.structure
    is_grammar = structure is not None and structure.kind == "gbnf"
    plain = replace(job, min_tokens=0, structure=None if is_grammar else structure)
    body = write_body(_as_openai(settings), plain, media)
    if job.min_tokens:
        body["min_tokens"] = job.min_tokens
    if is_grammar and structure is not None:
        body["grammar"] = structure.source
    if settings.thinking:
        body["reasoning_effort"] = "medium" if job.thinks else "none"
    data = msgspec.json.encode(body)
    return RemoteRequest("/chat/completions", data, AnswerForm.EVENTS)


def _check(settings: InferdSettings, job: GenerateJob) -> None:
    refuse(
        settings,
        {
            "stop_token_ids": bool(job.stop_token_ids),
            "prefill_only": job.prefill_only,
            "cache": job.cache != "auto",
        },
    )
    if job.structure is not None and job.structure.kind not in _GRAMMARS:
        raise RefusedError(
            f'{job.structure.field}: backend "{settings.name}" takes a JSON schema or '
            "GBNF through a bridge; the sockets of the daemon there take all"
        )


def make_reader(
    settings: InferdSettings, ticket: int, job: GenerateJob, prompt_tokens: int
) -> AnswerReader:
    """Make the reader of an answer."""
    return openai.make_reader(_as_openai(settings), ticket, job, prompt_tokens)


def write_count(settings: InferdSettings, job: GenerateJob) -> RemoteRequest | None:
    """Write the request for a count, which the bridge has in Anthropic's API alone."""
    far = AnthropicSettings(
        name=settings.name,
        base_url=settings.base_url,
        model=settings.model,
        tools=settings.tools,
        thinking=settings.thinking,
        count_tokens=True,
    )
    return anthropic.write_count(far, job)


def write_embed(
    settings: InferdSettings, job: EmbedJob, recording: bytes
) -> RemoteRequest:
    """Write a request for vectors, with their purpose."""
    request = encode.write_embed(
        _as_openai(settings), replace(job, task=None), recording
    )
    if job.task is None:
        return request
    body = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
    body["task"] = msgspec.Raw(msgspec.json.encode(job.task))
    return request._replace(body=msgspec.json.encode(body))


def read_embed(
    settings: InferdSettings, ticket: int, job: EmbedJob, body: bytes
) -> Sequence[Embedded]:
    """Read vectors; see ``openai.encode.read_embed``."""
    return encode.read_embed(_as_openai(settings), ticket, job, body)


def write_rerank(
    settings: InferdSettings, job: RerankJob, recording: bytes
) -> RemoteRequest:
    """Write a request for scores."""
    return encode.write_rerank(_as_openai(settings), job, recording)


def read_rerank(
    settings: InferdSettings, ticket: int, job: RerankJob, body: bytes
) -> Sequence[Scored]:
    """Read scores; see ``openai.encode.read_rerank``."""
    return encode.read_rerank(_as_openai(settings), ticket, job, body)


def write_transcribe(
    settings: InferdSettings, job: TranscribeJob, recording: bytes
) -> RemoteRequest:
    """Write a request for a transcript; see ``openai.speech.write_transcribe``."""
    return speech.write_transcribe(_as_openai(settings), job, recording)


def read_transcribe(
    settings: InferdSettings, ticket: int, job: TranscribeJob, body: bytes
) -> Sequence[Transcribed | TranscriptEnded]:
    """Read a transcript; see ``openai.speech.read_transcribe``."""
    return speech.read_transcribe(_as_openai(settings), ticket, job, body)


def _as_openai(settings: InferdSettings) -> OpenAiSettings:
    """Return the settings of a server with OpenAI's API that can do what a bridge can."""
    return OpenAiSettings(
        name=settings.name,
        base_url=settings.base_url,
        model=settings.model,
        expect_model=settings.expect_model,
        n_ctx=settings.n_ctx,
        n_embd=settings.n_embd,
        tools=settings.tools,
        thinking=settings.thinking,
        logprobs=True,
        samplers=("top_k", "min_p", "repeat_penalty"),
    )
