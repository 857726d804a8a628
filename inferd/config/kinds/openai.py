"""The kind ``openai``: a server with OpenAI's API, asked by a worker that loads no model."""

from typing import Final, Literal

from inferd.config.kinds.kind import (
    BackendKind,
    Contradiction,
    DoctorPolicy,
    InWorker,
    no_files,
    no_rungs,
)
from inferd.config.kinds.remote import (
    RemoteSettings,
    credential_of,
    find_contradiction,
    locate_remote,
    sandbox_of,
    takes_no_memory,
)

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
    samplers: tuple[Sampler, ...] = ()
    """Parameters that the server takes although OpenAI's API does not have them, under these
    names. Requests with others are refused."""
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of that parameter; OpenAI's newer models take the second alone."""


def _contradiction(settings: OpenAiSettings) -> Contradiction | None:
    if settings.thinking_switch and not settings.thinking:
        return Contradiction("thinking_switch", "true", "thinking = true")
    return find_contradiction(settings)


def _without_hashes(settings: OpenAiSettings) -> OpenAiSettings:
    return settings


OPENAI: Final = BackendKind[OpenAiSettings](
    settings=OpenAiSettings,
    served_by=InWorker[OpenAiSettings](
        program="inferd.worker.remote.openai",
        sandbox=sandbox_of,
        memory=takes_no_memory,
        credential=credential_of,
    ),
    doctor=DoctorPolicy(files=no_files, without_hashes=_without_hashes, needs=[]),
    file_format=None,
    contradiction=_contradiction,
    rungs=no_rungs,
    locate=locate_remote,
)
