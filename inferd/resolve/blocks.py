"""v2 generation: what a conversation of typed blocks comes to."""

from inferd.errors import InvalidRequestError
from inferd.job import GenerateJob, Sampling
from inferd.limits import DEFAULT_MAX_TOKENS, MAX_LOGPROBS, MAX_PRIORITY, U32_MAX
from inferd.resolve.content import check_content, flat_text, needs_of
from inferd.resolve.plan import Plan
from inferd.resolve.sampling import (
    biases_of,
    count_in_range,
    in_range,
    refusal,
    seed_of,
    stop_tokens_of,
    stops_of,
)
from inferd.wire.blocks import BlocksRequest, NamedTool
from inferd.wire.requests import ChatMessage

CACHE_USES = ("auto", "off", "discard")
TOOL_CHOICES = ("auto", "required", "none")


def resolve_blocks(request: BlocksRequest, *, seed: int) -> Plan[GenerateJob]:
    """Check a v2 request and fill in what it left open, but for the model's own defaults.

    Args:
        request: as it was read.
        seed: drawn for it, in case it names none; 0 to 2**32 - 2.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
        AttachmentsTooLargeError: too many bytes of attachments.
    """
    check_content(request)
    _check_enforced(request)
    deadline_ms = request.deadline_ms
    return Plan(
        job=_job(request, seed),
        needs=needs_of(request),
        streams=request.stream is not False,
        priority=count_in_range(
            "priority", request.priority or 0, -MAX_PRIORITY, MAX_PRIORITY
        ),
        deadline_ms=None
        if deadline_ms is None
        else count_in_range("deadline_ms", deadline_ms, 1, U32_MAX),
    )


def _job(request: BlocksRequest, seed: int) -> GenerateJob:
    if request.cache is not None and request.cache not in CACHE_USES:
        raise refusal("cache", request.cache, _listed(CACHE_USES))
    max_tokens = request.max_tokens
    max_tokens = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    min_tokens = request.min_tokens or 0
    logprobs = request.logprobs
    return GenerateJob(
        messages=[
            ChatMessage(message.role, flat_text(message.content))
            for message in request.messages
        ],
        max_tokens=max_tokens,
        min_tokens=count_in_range("min_tokens", min_tokens, 0, max_tokens),
        sampling=_sampling(request, seed),
        stops=stops_of(request.stop),
        stop_token_ids=stop_tokens_of(request.stop_token_ids),
        n_alternatives=0
        if logprobs is None
        else count_in_range("logprobs", logprobs, 1, MAX_LOGPROBS),
        calls_tools=request.tool_choice != "none",
        prefill_only=bool(request.prefill_only),
        wants_progress=bool(request.progress),
    )


def _sampling(request: BlocksRequest, seed: int) -> Sampling:
    given = {
        field: in_range(field, value)
        for field in (
            "temperature",
            "top_p",
            "min_p",
            "repeat_penalty",
            "presence_penalty",
            "frequency_penalty",
        )
        if (value := getattr(request, field)) is not None
    }
    return Sampling(
        temperature=given.get("temperature"),
        top_p=given.get("top_p"),
        top_k=request.top_k,
        min_p=given.get("min_p"),
        repeat_penalty=given.get("repeat_penalty", 1.0),
        presence_penalty=given.get("presence_penalty", 0.0),
        frequency_penalty=given.get("frequency_penalty", 0.0),
        logit_bias=biases_of(request.logit_bias),
        seed=seed_of(request.seed, drawn=seed),
    )


def _check_enforced(request: BlocksRequest) -> None:
    """Refuse what promises a structure that nothing here enforces."""
    if request.response_format is not None:
        raise InvalidRequestError("response_format is not supported by this daemon")
    choice = request.tool_choice
    if isinstance(choice, NamedTool):
        if choice.name not in [tool.name for tool in request.tools]:
            raise InvalidRequestError(f"tool_choice names no tool: {choice.name}")
        raise InvalidRequestError(
            "tool_choice with a name is not supported by this daemon"
        )
    if choice is not None and choice not in TOOL_CHOICES:
        raise refusal("tool_choice", choice, _listed(TOOL_CHOICES))
    if choice == "required":
        raise InvalidRequestError(
            "tool_choice required is not supported by this daemon"
        )


def _listed(values: tuple[str, ...]) -> str:
    return f"[{', '.join(values)}]"
