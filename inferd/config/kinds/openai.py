"""The kind ``openai``: a server with OpenAI's API, asked by a worker that loads no model."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import Contradiction
from inferd.config.kinds.remote import (
    RemoteSettings,
    find_contradiction,
    remote_kind,
)

Dimensions = Annotated[int, Meta(ge=1, le=65536)]
Sampler = Literal["top_k", "min_p", "repeat_penalty"]
"""Parameters that OpenAI's own API does not have, by the names that llama.cpp gave them."""


class OpenAiSettings(RemoteSettings, frozen=True, tag="openai", tag_field="kind"):
    """A server with OpenAI's API: on another machine, or another program of this one."""

    tools: bool = False
    """The model there calls tools."""
    thinking: bool = False
    """The model there has a reasoning trace, which the server keeps apart from the text."""
    thinking_switch: bool = False
    """The server switches reasoning by ``chat_template_kwargs.enable_thinking``, as
    llama-server, vLLM and SGLang do."""
    structure: bool = False
    """The server holds an answer to a JSON schema in ``response_format``."""
    generate: bool = True
    """The model there answers conversations; false for one of embeddings, scores or speech."""
    vision: bool = False
    """The model there takes images."""
    logprobs: bool = False
    """The server tells the log probabilities of tokens (``logprobs`` and ``top_logprobs``)."""
    embed: bool = False
    """The model there makes embeddings (``/v1/embeddings``)."""
    n_embd: Dimensions | None = None
    """With ``embed``: numbers of its vectors; others are refused. Default: not compared."""
    rerank: bool = False
    """The model there scores documents (``/v1/rerank``, as llama-server and vLLM have it)."""
    transcribe: bool = False
    """The model there transcribes recordings (``/v1/audio/transcriptions``), and answers with
    ``verbose_json``, as whisper-1 does."""
    counting: Literal["llama-server", "vllm"] | None = None
    """Whose way to count the tokens of a prompt the server has: ``/v1/chat/completions/
    input_tokens`` or ``/tokenize``. Default: none, and counts are estimated from the ``usage``
    of answers."""
    samplers: tuple[Sampler, ...] = ()
    """Parameters that the server takes although OpenAI's API does not have them, under these
    names. Requests with others are refused."""
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of that parameter; OpenAI's newer models take the second alone."""


def _contradiction(settings: OpenAiSettings) -> Contradiction | None:
    if settings.n_embd is not None and not settings.embed:
        return Contradiction("n_embd", settings.n_embd, "embed = true")
    uses = (settings.generate, settings.embed, settings.rerank, settings.transcribe)
    if not any(uses):
        return Contradiction("generate", "false", "embed, rerank or transcribe = true")
    if settings.thinking_switch and not settings.thinking:
        return Contradiction("thinking_switch", "true", "thinking = true")
    return find_contradiction(settings)


OPENAI: Final = remote_kind(
    OpenAiSettings, "inferd.worker.remote.openai", _contradiction
)
