"""v2 generation: what a conversation of typed blocks comes to."""

from collections.abc import Iterator
from typing import Final, get_args

from inferd.job import NOBODY, CacheUse, GenerateJob, Sampling
from inferd.limits import (
    DEFAULT_MAX_TOKENS,
    MAX_LOGPROBS,
    MAX_PRIORITY,
    U32_MAX,
)
from inferd.resolve.content import check_content, needs_of
from inferd.resolve.media import media_in
from inferd.resolve.plan import Plan
from inferd.resolve.sampling import (
    biases_of,
    count_in_range,
    in_range,
    listed,
    refusal,
    seed_of,
    stop_tokens_of,
    stops_of,
)
from inferd.resolve.speech import asking_for_speech, transcription_of
from inferd.resolve.structure import choice_of, structure_of, tools_of
from inferd.resolve.turns import turns_of
from inferd.routing import HOLDS_STRUCTURE, Need, takes_rate, transcribes
from inferd.wire.blocks import BlocksRequest

CACHE_USES: Final[tuple[CacheUse, ...]] = get_args(CacheUse)


def resolve_blocks(
    request: BlocksRequest,
    *,
    seed: int,
    owner: int = NOBODY,
    marker: str = "",
    n_fds: int = 0,
) -> Plan[GenerateJob]:
    """Check a v2 request and fill in what it left open, but for the model's own defaults.

    Args:
        request: as it was read.
        seed: drawn for it, in case it names none; 0 to 2**32 - 2.
        owner: the user who asks.
        marker: drawn for it, to stand in texts where images and sound do.
        n_fds: descriptors that came with it.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
        AttachmentsTooLargeError: too many bytes of attachments.
    """
    check_content(request, n_fds)
    job = _job(request, seed, owner, marker)
    transcription = transcription_of(request, job.media, owner=owner)
    deadline_ms = request.deadline_ms
    return Plan(
        job=job,
        transcription=transcription,
        needs=tuple(_needs(request, job, is_speech=transcription is not None)),
        streams=request.stream is not False,
        priority=count_in_range(
            "priority", request.priority or 0, -MAX_PRIORITY, MAX_PRIORITY
        ),
        deadline_ms=None
        if deadline_ms is None
        else count_in_range("deadline_ms", deadline_ms, 1, U32_MAX),
    )


def _needs(
    request: BlocksRequest, job: GenerateJob, *, is_speech: bool
) -> Iterator[Need]:
    yield from needs_of(request, is_speech=is_speech)
    if is_speech and (asking := asking_for_speech(request)):
        yield transcribes(asking)
    for sound in {each.id: each for each in job.media if each.kind == "audio"}.values():
        yield takes_rate(sound.id, sound.sample_rate)
    if job.is_structured:
        yield HOLDS_STRUCTURE


def _job(request: BlocksRequest, seed: int, owner: int, marker: str) -> GenerateJob:
    max_tokens = request.max_tokens
    max_tokens = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    min_tokens = request.min_tokens or 0
    logprobs = request.logprobs
    media = media_in(request)
    return GenerateJob(
        owner=owner,
        cache=_cache_of(request),
        turns=turns_of(request.messages, marker),
        media=media,
        marker=marker if media else "",
        tools=tools_of(request),
        tool_choice=choice_of(request),
        thinks=bool(request.thinking),
        structure=structure_of(request.response_format),
        max_tokens=max_tokens,
        min_tokens=count_in_range("min_tokens", min_tokens, 0, max_tokens),
        sampling=_sampling(request, seed),
        stops=stops_of(request.stop),
        stop_token_ids=stop_tokens_of(request.stop_token_ids),
        n_alternatives=0
        if logprobs is None
        else count_in_range("logprobs", logprobs, 1, MAX_LOGPROBS),
        prefill_only=bool(request.prefill_only),
        wants_progress=bool(request.progress),
    )


def _cache_of(request: BlocksRequest) -> CacheUse:
    for use in CACHE_USES:
        if request.cache in (use, None):  # the first is the default
            return use
    raise refusal("cache", request.cache, listed(CACHE_USES))


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
