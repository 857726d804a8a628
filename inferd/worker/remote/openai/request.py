"""A job as the body of a request; what the server cannot do is refused."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from inferd.backend.job import GenerateJob, Sampling, ToolChoice, Turn
from inferd.config.kinds.openai import OpenAiSettings
from inferd.limits.protocol import DEFAULT_TOP_K
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm, RemoteRequest

_Json = dict[str, object]
STRUCTURE_NAME: Final = "answer"
"""``json_schema`` has to have a name."""


def write_request(
    settings: OpenAiSettings, job: GenerateJob, images: Sequence[bytes] = ()
) -> RemoteRequest:
    """Write the request for a streamed answer.

    Stop strings are not in it: the daemon finds them, and ends the request there.

    Args:
        settings: of the backend.
        job: to translate.
        images: of the job, as PNG, in their order.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    _check(settings, job)
    body: _Json = {
        **write_conversation(settings, job, images),
        "stream": True,
        "stream_options": {"include_usage": True},
        settings.max_tokens_key: job.max_tokens,
        **_sampling(settings, job.sampling),
    }
    if job.n_alternatives:
        body["logprobs"] = True
        body["top_logprobs"] = job.n_alternatives
    if job.structure is not None:
        schema = msgspec.Raw(job.structure.source.encode())
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": STRUCTURE_NAME, "schema": schema, "strict": True},
        }
    data = msgspec.json.encode(body)
    return RemoteRequest("/chat/completions", data, AnswerForm.EVENTS)


def write_conversation(
    settings: OpenAiSettings, job: GenerateJob, images: Sequence[bytes]
) -> _Json:
    """Write what a prompt is made of."""
    body: _Json = {"model": settings.model, "messages": [*_messages(job, images)]}
    if job.tools:
        body["tools"] = [_function(each) for each in _tools(job)]
        body["tool_choice"] = _tool_choice(job.tool_choice)
    if settings.thinking_switch:
        body["chat_template_kwargs"] = {"enable_thinking": job.thinks}
    return body


def _check(settings: OpenAiSettings, job: GenerateJob) -> None:
    for field in _unknown_samplers(settings, job.sampling):
        raise RefusedError(
            f'{field}: not in the API of backend "{settings.name}"; its samplers setting '
            "names the ones that it takes besides OpenAI's"
        )
    unsupported = {
        "min_tokens": job.min_tokens > 0,
        "stop_token_ids": bool(job.stop_token_ids),
        "logprobs": job.n_alternatives > 0 and not settings.logprobs,
        "prefill_only": job.prefill_only,
        # what the remote keeps of prompts is its own affair
        "cache": job.cache != "auto",
    }
    for field, is_asked in unsupported.items():
        if is_asked:
            raise RefusedError(f'{field}: backend "{settings.name}" cannot do this')
    if job.structure is not None and job.structure.kind != "json_schema":
        raise RefusedError(
            f'{job.structure.field}: backend "{settings.name}" takes a JSON schema alone'
        )


def _unknown_samplers(settings: OpenAiSettings, sampling: Sampling) -> Iterator[str]:
    asked = {
        # a v1 request that has none comes with the protocol's default
        "top_k": sampling.top_k not in (None, 0, DEFAULT_TOP_K),
        "min_p": bool(sampling.min_p),
        "repeat_penalty": sampling.repeat_penalty != 1,
    }
    for field, is_asked in asked.items():
        if is_asked and field not in settings.samplers:
            yield field


def _sampling(settings: OpenAiSettings, sampling: Sampling) -> _Json:
    """Translate the parameters; those with which nothing is changed are left out."""
    parameters: Mapping[str, object] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": (sampling.top_k or None) if "top_k" in settings.samplers else None,
        "min_p": sampling.min_p or None,
        "repeat_penalty": None
        if sampling.repeat_penalty == 1
        else sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "seed": sampling.seed,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()}
        or None,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def _messages(job: GenerateJob, images: Sequence[bytes]) -> Iterator[_Json]:
    left = iter(images)
    for turn in job.turns:
        message: _Json = {"role": turn.role, "content": _content(job, turn, left)}
        if turn.role == "tool":
            message["tool_call_id"] = turn.call_id
        if turn.calls:
            message["content"] = turn.text or None
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in turn.calls
            ]
        yield message


def _content(job: GenerateJob, turn: Turn, images: Iterator[bytes]) -> object:
    """Translate a text, with its images where their markers are."""
    if not job.marker or job.marker not in turn.text:
        return turn.text
    first, *others = turn.text.split(job.marker)
    parts: list[_Json] = [{"type": "text", "text": first}] if first else []
    for text in others:
        url = f"data:image/png;base64,{base64.b64encode(next(images)).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
        if text:
            parts.append({"type": "text", "text": text})
    return parts


def _tools(job: GenerateJob) -> Iterator[_Json]:
    for tool in job.tools:
        yield {
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.Raw(tool.input_schema.encode()),
        }


def _function(function: _Json) -> _Json:
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> object:
    if choice.kind == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.kind
