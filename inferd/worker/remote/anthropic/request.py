"""A job as the body of ``POST /v1/messages``; what the API cannot do is refused.

Source: ``anthropic.types.MessageCreateParams`` of the package ``anthropic``, and
https://platform.claude.com/docs/en/api/messages.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from inferd.backend.job import GenerateJob, ToolChoice, Turn
from inferd.config.kinds.anthropic import AnthropicSettings
from inferd.worker.backend import RefusedError
from inferd.worker.remote.anthropic.messages import write_messages
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.refusals import (
    explicit,
    refuse,
    refuse_local,
    refuse_structure,
)
from inferd.worker.remote.conversation.turns import SplitTurns

_Json = dict[str, object]
_SAMPLERS: Final = ("temperature", "top_p", "top_k")
_HIGHEST_TEMPERATURE: Final = 1.0


def write_chat(
    settings: AnthropicSettings, job: GenerateJob, images: Sequence[bytes] = ()
) -> RemoteRequest:
    """Write a request for a streamed answer.

    Args:
        settings: of the backend.
        job: to translate.
        images: of the job, as PNG, in their order.

    Raises:
        RefusedError: the job has what the API cannot honour.
    """
    _check(settings, job)
    body: _Json = {
        **_prompt(settings, job, images),
        "max_tokens": job.max_tokens,
        "stream": True,
    }
    for field in settings.samplers:
        if (value := explicit(job, field)) is not None:
            body[field] = value
    return RemoteRequest("/messages", msgspec.json.encode(body), AnswerForm.EVENTS)


def write_count(settings: AnthropicSettings, job: GenerateJob) -> RemoteRequest | None:
    """Write a request for the tokens of a prompt; ``None`` if none is to be asked.

    Images are not sent for it: they are not at hand, and so are not counted.
    """
    if not settings.count_tokens or job.media:
        return None
    body = msgspec.json.encode(_prompt(settings, job, ()))
    return RemoteRequest("/messages/count_tokens", body, AnswerForm.DOCUMENT)


def _prompt(
    settings: AnthropicSettings, job: GenerateJob, images: Sequence[bytes]
) -> _Json:
    split = SplitTurns(job)
    body: _Json = {
        "model": settings.model,
        "messages": write_messages(job, split.turns, iter(images)),
    }
    if split.system:
        body["system"] = "\n\n".join(split.system)
    if job.tools:
        body["tools"] = [*_tools(job)]
        body["tool_choice"] = _tool_choice(job.tool_choice)
    if job.structure is not None:
        schema = msgspec.Raw(job.structure.source.encode())
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if settings.thinking:
        body["thinking"] = _thinking(settings) if job.thinks else {"type": "disabled"}
    return body


def _check(settings: AnthropicSettings, job: GenerateJob) -> None:
    refuse_local(settings, job)
    refuse_structure(settings, job)
    sampling = job.sampling
    temperature = explicit(job, "temperature")
    refuse(
        settings,
        {
            "seed": sampling.seed_given,
            **{
                field: explicit(job, field) is not None
                for field in _SAMPLERS
                if field not in settings.samplers
            },
            "logprobs": job.n_alternatives > 0,
            "min_p": bool(sampling.min_p),
            "repeat_penalty": sampling.repeat_penalty != 1,
            "presence_penalty": bool(sampling.presence_penalty),
            "frequency_penalty": bool(sampling.frequency_penalty),
            "logit_bias": bool(sampling.logit_bias),
            f"temperature over {_HIGHEST_TEMPERATURE:g}": temperature is not None
            and temperature > _HIGHEST_TEMPERATURE,
        },
    )
    if job.thinks:
        _check_thinking(settings, job)


def _check_thinking(settings: AnthropicSettings, job: GenerateJob) -> None:
    """Refuse what the API does not take together with reasoning."""
    refuse(
        settings,
        {
            "thinking with a forced call": job.tool_choice.is_forced,
            "thinking with a temperature": explicit(job, "temperature") is not None,
            "thinking with top_k": explicit(job, "top_k") is not None,
        },
    )
    budget = settings.thinking_budget
    if budget is None:
        return
    refuse(settings, {"thinking after a result": _continues_a_call(job.turns)})
    if job.max_tokens <= budget:
        raise RefusedError(
            f'max_tokens: backend "{settings.name}" takes {budget} for its reasoning, and '
            "needs more"
        )


def _continues_a_call(turns: Sequence[Turn]) -> bool:
    return bool(turns) and turns[-1].role == "tool"


def _thinking(settings: AnthropicSettings) -> _Json:
    if settings.thinking_budget is None:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": settings.thinking_budget}


def _tools(job: GenerateJob) -> Iterator[_Json]:
    for tool in job.tools:
        yield {
            "name": tool.name,
            "description": tool.description,
            "input_schema": msgspec.Raw(tool.input_schema.encode()),
        }


def _tool_choice(choice: ToolChoice) -> _Json:
    match choice.kind:
        case "named":
            return {"type": "tool", "name": choice.name}
        case "required":
            return {"type": "any"}
        case "auto" | "none" as kind:
            return {"type": kind}
