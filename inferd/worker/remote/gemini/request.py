"""A job as the body of ``streamGenerateContent``; what the API cannot do is refused.

Source: https://ai.google.dev/api/generate-content, and ``google.genai.types`` of the package
``google-genai``, which has the same fields in snake case.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from inferd.backend.job import GenerateJob, ToolChoice
from inferd.config.kinds.gemini import GeminiSettings
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.refusals import (
    refuse,
    refuse_local,
    refuse_structure,
)
from inferd.worker.remote.conversation.turns import SplitTurns
from inferd.worker.remote.gemini.contents import write_contents

_Json = dict[str, object]
_SEED_MASK: Final = 2**31 - 1
"""A seed is an ``int32`` there: the highest bit of ours is left out."""
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}


def path_of(settings: GeminiSettings, method: str) -> str:
    """Return the path of a method of the configured model."""
    return f"/{quote(model_name(settings), safe='/')}:{method}"


def model_name(settings: GeminiSettings) -> str:
    """Return the name of the model as a resource, ``models/NAME`` or as configured."""
    model = settings.model
    return model if "/" in model else f"models/{model}"


def write_chat(
    settings: GeminiSettings, job: GenerateJob, images: Sequence[bytes] = ()
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
        "generationConfig": _config(settings, job),
    }
    path = path_of(settings, "streamGenerateContent?alt=sse")
    return RemoteRequest(path, msgspec.json.encode(body), AnswerForm.EVENTS)


def write_count(settings: GeminiSettings, job: GenerateJob) -> RemoteRequest | None:
    """Write a request for the tokens of a prompt; ``None`` if none is to be asked.

    Images are not sent for it: they are not at hand, and so are not counted.
    """
    if not settings.count_tokens or job.media:
        return None
    prompt = {"model": model_name(settings), **_prompt(settings, job, ())}
    body = msgspec.json.encode({"generateContentRequest": prompt})
    return RemoteRequest(path_of(settings, "countTokens"), body, AnswerForm.DOCUMENT)


def _check(settings: GeminiSettings, job: GenerateJob) -> None:
    refuse_local(settings, job)
    refuse_structure(settings, job)
    sampling = job.sampling
    refuse(
        settings,
        {
            "logprobs": job.n_alternatives > 0,
            "min_p": bool(sampling.min_p),
            "repeat_penalty": sampling.repeat_penalty != 1,
            "logit_bias": bool(sampling.logit_bias),
        },
    )


def _prompt(
    settings: GeminiSettings, job: GenerateJob, images: Sequence[bytes]
) -> _Json:
    split = SplitTurns(job)
    body: _Json = {"contents": write_contents(settings, job, split.turns, iter(images))}
    if split.system:
        body["systemInstruction"] = {"parts": [{"text": text} for text in split.system]}
    if job.tools:
        body["tools"] = [{"functionDeclarations": _declarations(job)}]
        body["toolConfig"] = {"functionCallingConfig": _calling(job.tool_choice)}
    return body


def _config(settings: GeminiSettings, job: GenerateJob) -> _Json:
    """Translate the parameters; those with which nothing is changed are left out."""
    sampling = job.sampling
    config: Mapping[str, object] = {
        "maxOutputTokens": job.max_tokens,
        "seed": sampling.seed & _SEED_MASK,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k or None,
        "presencePenalty": sampling.presence_penalty or None,
        "frequencyPenalty": sampling.frequency_penalty or None,
        "thinkingConfig": _thinking(settings, thinks=job.thinks),
    }
    if job.structure is not None:
        schema = msgspec.Raw(job.structure.source.encode())
        form = {"responseMimeType": "application/json", "responseJsonSchema": schema}
        config = {**config, **form}
    return {name: value for name, value in config.items() if value is not None}


def _thinking(settings: GeminiSettings, *, thinks: bool) -> _Json | None:
    if not settings.thinking:
        return None
    if not thinks:
        match settings.no_thinking:
            case "omit":
                return None
            case "budget":
                return {"thinkingBudget": 0}
            case "minimal":
                return {"thinkingLevel": "minimal"}
    config: _Json = {"includeThoughts": True}
    if settings.thinking_level is not None:
        config["thinkingLevel"] = settings.thinking_level
    if settings.thinking_budget is not None:
        config["thinkingBudget"] = settings.thinking_budget
    return config


def _declarations(job: GenerateJob) -> list[_Json]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": msgspec.Raw(tool.input_schema.encode()),
        }
        for tool in job.tools
    ]


def _calling(choice: ToolChoice) -> _Json:
    config: _Json = {"mode": _MODES[choice.kind]}
    if choice.kind == "named":
        config["allowedFunctionNames"] = [choice.name]
    return config
