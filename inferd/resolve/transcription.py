"""Resolve v2 requests that a backend for speech can serve as transcriptions."""

from collections.abc import Iterator
from typing import Final, get_args

from inferd.backend.job import Media, Timestamps, TranscribeJob
from inferd.errors import InvalidRequestError
from inferd.resolve.media import open_attachment_ids
from inferd.resolve.options import format_list, in_range, out_of_range
from inferd.resolve.turns import flat_text
from inferd.wire.blocks import AudioBlock, BlocksRequest, TextBlock

AUTO_LANGUAGE: Final = "auto"
"""The value of ``language`` that asks for detection."""

_CODES: Final = (
    "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu "
    "ha haw he hi hr ht hu hy id is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml "
    "mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl sn so sq sr su sv sw "
    "ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh"
)
LANGUAGES: Final = tuple(_CODES.split())
"""The codes of whisper's languages; older models lack ``yue``, some all but ``en``."""

TIMESTAMPS: Final[tuple[Timestamps, ...]] = get_args(Timestamps)

_SPEECH_FIELDS: Final = ("language", "translate", "timestamps", "speech_logprobs")
"""Fields that ask for a transcription, whatever their value."""

_REFUSED: Final = (
    *("response_format", "tool_choice", "seed", "top_p", "top_k", "min_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty", "logprobs"),
)
"""Options that a transcription cannot honour."""

_REFUSED_UNLESS_EMPTY: Final = (
    *("tools", "thinking", "prefill_only", "min_tokens", "token_ids"),
    *("logit_bias", "stop", "stop_token_ids"),
)
"""Options that a transcription cannot honour unless they are false, 0 or empty."""


def transcription_of(
    request: BlocksRequest, media: tuple[Media, ...], *, owner: int
) -> TranscribeJob | None:
    """Return a transcription job for a request, if it can be served as one.

    That is so if its content is one recording, with or without text, and it has no option
    that only a model that generates text can honour.

    Args:
        request: with valid content.
        media: of its conversation.
        owner: the user who sent it.

    Raises:
        InvalidRequestError: it asks for a transcription that is not possible; the text
            names the field.
    """
    language, timestamps = _language_of(request), _timestamps_of(request)
    obstacle = _find_obstacle(request)
    if obstacle and (field := transcription_field(request)):
        raise InvalidRequestError(f"{field} asks for a transcription, which {obstacle}")
    if obstacle:
        return None
    [sound] = media
    temperature = request.temperature
    return TranscribeJob(
        owner=owner,
        audio=sound,
        prompt=flat_text(request.conversation[0].content),
        language=language,
        translates=bool(request.translate),
        timestamps=timestamps,
        temperature=None
        if temperature is None
        else in_range("temperature", temperature),
        max_tokens=request.max_tokens,
        wants_partials=sound.is_open and request.stream is not False,
        wants_logprobs=bool(request.speech_logprobs),
    )


def transcription_field(request: BlocksRequest) -> str | None:
    """Return the field that asks for a transcription, if there is one."""
    for field in _SPEECH_FIELDS:
        if getattr(request, field) is not None:
            return field
    for name in open_attachment_ids(request.attachments):
        return f'open attachment "{name}"'
    return None


def _find_obstacle(request: BlocksRequest) -> str | None:
    """Return why a request cannot be a transcription, or ``None`` if it can."""
    if not _is_recording(request):
        return "takes one message, of the user, with one audio block and text blocks"
    option = next(_not_honoured(request), None)
    return option and f"cannot honour {option}"


def _not_honoured(request: BlocksRequest) -> Iterator[str]:
    """Return the request's options that a transcription cannot honour."""
    yield from (name for name in _REFUSED if getattr(request, name) is not None)
    yield from (name for name in _REFUSED_UNLESS_EMPTY if getattr(request, name))
    if request.cache not in (None, "auto"):
        yield "cache"


def _is_recording(request: BlocksRequest) -> bool:
    """Return whether the content is one recording, with or without text."""
    match request.conversation:
        case [message] if message.role == "user":
            blocks = message.content
        case _:
            return False
    recordings = [each for each in blocks if isinstance(each, AudioBlock)]
    return (
        len(recordings) == 1
        and all(isinstance(each, TextBlock | AudioBlock) for each in blocks)
        and set(open_attachment_ids(request.attachments))
        <= {recordings[0].attachment_id}
    )


def _language_of(request: BlocksRequest) -> str | None:
    language = request.language
    if language in (None, AUTO_LANGUAGE):
        return None
    if language not in LANGUAGES:
        raise out_of_range(
            "language", language, format_list((AUTO_LANGUAGE, *LANGUAGES))
        )
    return language


def _timestamps_of(request: BlocksRequest) -> Timestamps:
    for kind in TIMESTAMPS:
        if request.timestamps in (kind, None):  # the first is the default
            return kind
    raise out_of_range("timestamps", request.timestamps, format_list(TIMESTAMPS))
