"""Resolve v2 generation requests."""

from collections.abc import Iterator
from typing import Final, get_args

from inferd.backend.job import NO_UID, CacheUse, GenerateJob, Sampling
from inferd.limits.protocol import (
    DEFAULT_MAX_TOKENS,
    MAX_LOGPROBS,
    MAX_PRIORITY,
    U32_MAX,
)
from inferd.resolve.content import check_content, needs_of
from inferd.resolve.media import media_in
from inferd.resolve.options import (
    biases_of,
    context_of,
    count_in_range,
    format_list,
    in_range,
    keep_alive_of,
    model_of,
    out_of_range,
    seed_of,
    stop_tokens_of,
    stops_of,
    via_of,
)
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.structure import choice_of, structure_of, tools_of
from inferd.resolve.transcription import transcription_field, transcription_of
from inferd.resolve.turns import turns_of
from inferd.routing import CONSTRAINS_OUTPUT, Requirement, takes_rate, transcribes
from inferd.wire.blocks import BlocksRequest

CACHE_USES: Final[tuple[CacheUse, ...]] = get_args(CacheUse)


def resolve_v2(
    request: BlocksRequest,
    *,
    seed: int,
    owner: int = NO_UID,
    marker: str = "",
    n_fds: int = 0,
) -> ResolvedRequest[GenerateJob]:
    """Validate a v2 request and fill in defaults, apart from those of the model.

    Args:
        request: the decoded request.
        seed: random seed, used if the request has none; 0 to 2**32 - 2.
        owner: the user who sent it.
        marker: random text inserted in place of images and audio.
        n_fds: file descriptors sent with it.

    Raises:
        InvalidRequestError: with the field, its value and what is allowed.
        AttachmentsTooLargeError: the attachments have too many bytes.
    """
    check_content(request, n_fds)
    job = _job(request, seed, owner, marker)
    transcription = transcription_of(request, job.media, owner=owner)
    deadline_ms = request.deadline_ms
    return ResolvedRequest(
        job=job,
        transcription=transcription,
        needs=(
            *_needs(request, job, is_speech=transcription is not None),
            *context_of(request),
        ),
        model=model_of(request),
        streams=request.stream is not False,
        keep_alive_s=keep_alive_of(request),
        via=via_of(request),
        describe=bool(request.describe),
        priority=count_in_range(
            "priority", request.priority or 0, -MAX_PRIORITY, MAX_PRIORITY
        ),
        deadline_ms=None
        if deadline_ms is None
        else count_in_range("deadline_ms", deadline_ms, 1, U32_MAX),
    )


def _needs(
    request: BlocksRequest, job: GenerateJob, *, is_speech: bool
) -> Iterator[Requirement]:
    yield from needs_of(request, is_speech=is_speech)
    if is_speech and (field := transcription_field(request)):
        yield transcribes(field)
    for audio in {each.id: each for each in job.media if each.kind == "audio"}.values():
        yield takes_rate(audio.id, audio.sample_rate)
    if job.is_structured:
        yield CONSTRAINS_OUTPUT


def _job(request: BlocksRequest, seed: int, owner: int, marker: str) -> GenerateJob:
    max_tokens = request.max_tokens
    max_tokens = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    min_tokens = request.min_tokens or 0
    logprobs = request.logprobs
    media = media_in(request)
    return GenerateJob(
        owner=owner,
        cache=_cache_of(request),
        turns=turns_of(request.conversation, marker),
        input_tokens=request.input_tokens or [],
        wants_token_ids=bool(request.token_ids),
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
    raise out_of_range("cache", request.cache, format_list(CACHE_USES))


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
        seed_given=request.seed is not None,
    )
