"""A job as the body of ``POST /api/chat``; what Ollama cannot do is refused.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md, and for ``tool_name`` and
``thinking`` the types of the package ``ollama``.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from inferd.backend.job import GenerateJob, Turn
from inferd.config.kinds.ollama import OllamaSettings
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.refusals import (
    refuse,
    refuse_local,
    refuse_structure,
)
from inferd.worker.remote.conversation.turns import (
    CallNumbers,
    arguments_of,
    split_images,
)

_Json = dict[str, object]


def write_chat(
    settings: OllamaSettings, job: GenerateJob, images: Sequence[bytes] = ()
) -> RemoteRequest:
    """Write a request for a streamed answer.

    A prompt that does not fit is to be refused there: without ``truncate`` and ``shift`` the
    server would leave out the oldest messages, and say nothing.

    Args:
        settings: of the backend.
        job: to translate.
        images: of the job, as PNG, in their order.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    _check(settings, job)
    body: _Json = {
        "model": settings.model,
        "messages": [*_messages(job, images)],
        "stream": True,
        "options": _options(settings, job),
        "truncate": False,
        "shift": False,
    }
    if job.tools and job.tool_choice.kind != "none":
        body["tools"] = [*_tools(job)]
    if job.structure is not None:
        body["format"] = msgspec.Raw(job.structure.source.encode())
    if settings.thinking:
        body["think"] = (settings.think_level or True) if job.thinks else False
    if settings.keep_alive is not None:
        body["keep_alive"] = settings.keep_alive
    return RemoteRequest("/api/chat", msgspec.json.encode(body), AnswerForm.LINES)


def _check(settings: OllamaSettings, job: GenerateJob) -> None:
    refuse_local(settings, job)
    refuse_structure(settings, job)
    refuse(
        settings,
        {
            "tool_choice": job.tool_choice.is_forced,
            "logprobs": job.n_alternatives > 0,
            "logit_bias": bool(job.sampling.logit_bias),
        },
    )


def _options(settings: OllamaSettings, job: GenerateJob) -> _Json:
    """Translate the parameters; those with which nothing is changed are left out."""
    sampling = job.sampling
    options: Mapping[str, object] = {
        "num_predict": job.max_tokens,
        "num_ctx": settings.n_ctx,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
    return {name: value for name, value in options.items() if value is not None}


def _messages(job: GenerateJob, images: Sequence[bytes]) -> Iterator[_Json]:
    left = iter(images)
    calls = CallNumbers()
    for turn in job.turns:
        message = _content(job, turn, left)
        if turn.role == "tool":
            _, message["tool_name"] = calls.find(turn)
        if turn.calls:
            for call in turn.calls:
                calls.add(call)
            message["tool_calls"] = [
                {"function": {"name": call.name, "arguments": arguments_of(call)}}
                for call in turn.calls
            ]
        yield message


def _content(job: GenerateJob, turn: Turn, left: Iterator[bytes]) -> _Json:
    """Translate a text; its images stand beside it, and the server puts them before it."""
    parts = [*split_images(job, turn.text, left)]
    message: _Json = {
        "role": turn.role,
        "content": "".join(each for each in parts if isinstance(each, str)),
    }
    pictures = [each for each in parts if isinstance(each, bytes)]
    if pictures:
        message["images"] = [base64.b64encode(each).decode() for each in pictures]
    return message


def _tools(job: GenerateJob) -> Iterator[_Json]:
    for tool in job.tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.Raw(tool.input_schema.encode()),
        }
        yield {"type": "function", "function": function}
