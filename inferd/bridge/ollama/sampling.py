"""What chats and generated texts have in common: options, form, reasoning, residency."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from inferd.bridge.ollama.durations import keep_alive_s
from inferd.bridge.ollama.tables import OPTIONS
from inferd.bridge.translation.body import read_part
from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.objects import to_top_p
from inferd.bridge.translation.prompt import ANY_OBJECT, json_form
from inferd.bridge.translation.question import Asked
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest, ResponseFormat

Fields = dict[str, object]
Natural = Annotated[int, Meta(ge=0, le=U32_MAX)]
NAMES: Final = {
    **{
        name: f"options.{name}"
        for name in (
            *("temperature", "top_k", "top_p", "min_p", "seed", "stop"),
            *("repeat_penalty", "presence_penalty", "frequency_penalty"),
        )
    },
    "max_tokens": "options.num_predict",
    "min_n_ctx": "options.num_ctx",
    "thinking": "think",
    "keep_alive_s": "keep_alive",
    "logprobs": "top_logprobs",
    "response_format": "format",
}
"""The API's names of the daemon's fields."""
_LATEST: Final = ":latest"
_RANDOM_SEED: Final = -1


class ModelOptions(Struct, frozen=True, kw_only=True):
    """The honoured options."""

    temperature: float | None = None
    top_k: Natural | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Annotated[int, Meta(ge=_RANDOM_SEED, le=U32_MAX)] | None = None
    stop: str | list[str] | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=U32_MAX)] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    num_ctx: Annotated[int, Meta(ge=1, le=U32_MAX)] | None = None


class GenerationFields(Struct, frozen=True, kw_only=True):
    """The honoured fields of chats and of prompts alike."""

    model: Annotated[str, Meta(min_length=1)]
    stream: bool = True
    format: str | Fields | None = None
    options: Fields = {}
    think: bool | Literal["", "low", "medium", "high", "max"] | None = None
    keep_alive: float | str | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


def read_options(fields: Fields) -> ModelOptions:
    """Read ``options``.

    Raises:
        BridgeError: one is unknown, refused, or of a wrong type.
    """
    return read_part(fields, OPTIONS, ModelOptions, "options")


def with_sampling(
    request: BlocksRequest,
    wanted: GenerationFields,
    options: ModelOptions,
    asked: Asked,
) -> BlocksRequest:
    """Return the daemon's request with all that does not belong to the prompt.

    Raises:
        BridgeError: fields contradict each other, or have values that mean nothing.
    """
    stop = options.stop
    return replace(
        request,
        model=wanted.model,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=to_top_p(options.top_p),
        min_p=options.min_p,
        seed=None if options.seed == _RANDOM_SEED else options.seed,
        stop=[stop] if isinstance(stop, str) else stop or None,
        max_tokens=_max_tokens(options.num_predict, asked),
        repeat_penalty=options.repeat_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        response_format=_form(wanted.format),
        thinking=_thinks(wanted),
        logprobs=_n_logprobs(wanted),
        keep_alive_s=keep_alive_s(wanted.keep_alive),
        min_n_ctx=options.num_ctx,
        stream=wanted.stream,
    )


def reasons_if_able(wanted: GenerationFields) -> bool:
    """Tell whether the answer begins with reasoning where the model does that at all."""
    return wanted.think in (None, "")


def one_name(model: str, name: str) -> str:
    """Return the model that a request names in one of two fields.

    Raises:
        BridgeError: neither is set, or they name two models.
    """
    if not (model or name):
        raise invalid("model", "is missing")
    if model and name and model != name:
        raise invalid("name", "contradicts model")
    return model or name


def other_names(model: str) -> tuple[str, ...]:
    """Return the other name of a model: without a tag, its tag is ``latest``."""
    if model.endswith(_LATEST):
        return (model.removesuffix(_LATEST),)
    return () if ":" in model else (model + _LATEST,)


def _max_tokens(num_predict: int | None, asked: Asked) -> int:
    """Return the bound of an answer; one that is not positive is the context's end."""
    if num_predict is None:
        return asked.default_max_tokens
    return num_predict if num_predict > 0 else U32_MAX


def _form(wanted: str | Fields | None) -> ResponseFormat | None:
    match wanted:
        case None | "":
            return None
        case "json":
            return json_form(ANY_OBJECT)
        case dict():
            return json_form(wanted)
        case _:
            raise invalid("format", 'must be "json" or a JSON schema')


def _thinks(wanted: GenerationFields) -> bool:
    return wanted.think is not False


def _n_logprobs(wanted: GenerationFields) -> int | None:
    """Return how many alternatives the daemon has to report: one at least."""
    if wanted.top_logprobs and not wanted.logprobs:
        raise invalid("top_logprobs", "needs logprobs")
    return max(wanted.top_logprobs or 0, 1) if wanted.logprobs else None
