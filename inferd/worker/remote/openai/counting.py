"""Counts of the tokens of a conversation, of servers that have them."""

import msgspec
from msgspec import Struct

from inferd.backend.job import GenerateJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.openai.request import write_conversation

_MOST: int = 2**31 - 1


class _Count(Struct):
    input_tokens: int | None = None
    """Of llama-server."""
    count: int | None = None
    """Of vLLM."""


def write_count(settings: OpenAiSettings, job: GenerateJob) -> RemoteRequest | None:
    """Write the request for a count; ``None`` where the server has none."""
    if settings.counting is None or job.media:
        return None
    body = msgspec.json.encode(write_conversation(settings, job, ()))
    if settings.counting == "vllm":
        return RemoteRequest("/tokenize", body, AnswerForm.DOCUMENT, is_at_root=True)
    return RemoteRequest("/chat/completions/input_tokens", body, AnswerForm.DOCUMENT)


def read_count(body: bytes) -> int:
    """Read a count.

    Raises:
        RemoteError: there is none.
    """
    try:
        found = msgspec.json.decode(body, type=_Count)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _Count()
    count = found.count if found.input_tokens is None else found.input_tokens
    if count is None or not 0 <= count <= _MOST:
        raise RemoteError("the remote's answer has no count of tokens")
    return count
