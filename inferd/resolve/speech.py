"""Speech to be written down: what of a v2 request is something for a transcription."""

from collections.abc import Iterator
from typing import Final, get_args

from inferd.errors import InvalidRequestError
from inferd.job import Media, Timestamps, TranscribeJob
from inferd.resolve.media import open_ids
from inferd.resolve.sampling import in_range, listed, refusal
from inferd.resolve.turns import flat_text
from inferd.wire.blocks import AudioBlock, BlocksRequest, TextBlock

FIND_OUT: Final = "auto"
"""The language that is none yet."""

_CODES: Final = (
    "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu "
    "ha haw he hi hr ht hu hy id is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml "
    "mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl sn so sq sr su sv sw "
    "ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh"
)
LANGUAGES: Final = tuple(_CODES.split())
"""The codes of whisper's languages; older models lack ``yue``, some all but ``en``."""

TIMESTAMPS: Final[tuple[Timestamps, ...]] = get_args(Timestamps)

_SPEECH_FIELDS: Final = ("language", "translate", "timestamps")
"""What asks for a transcription, whatever it says."""

_REFUSED: Final = (
    *("response_format", "tool_choice", "seed", "top_p", "top_k", "min_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty", "logprobs"),
)
"""Options that mean nothing to a transcription."""

_REFUSED_UNLESS_EMPTY: Final = (
    *("tools", "thinking", "prefill_only", "min_tokens"),
    *("logit_bias", "stop", "stop_token_ids"),
)
"""Those that ask for nothing if they are false, 0 or empty."""


def transcription_of(
    request: BlocksRequest, media: tuple[Media, ...], *, owner: int
) -> TranscribeJob | None:
    """Make a request one for a backend that writes speech down, if it is something for one.

    It is, if all there is to it is a recording, with or without text, and nothing is wanted
    that only a model that writes could do.

    Args:
        request: whose content is sound.
        media: that stand in its conversation.
        owner: the user who asks.

    Raises:
        InvalidRequestError: it asks for a transcription that cannot be; naming the field.
    """
    language, timestamps = _language_of(request), _timestamps_of(request)
    unfit = _unfit(request)
    if unfit and (asking := asking_for_speech(request)):
        raise InvalidRequestError(f"{asking} asks for a transcription, which {unfit}")
    if unfit:
        return None
    [sound] = media
    temperature = request.temperature
    return TranscribeJob(
        owner=owner,
        audio=sound,
        prompt=flat_text(request.messages[0].content),
        language=language,
        translates=bool(request.translate),
        timestamps=timestamps,
        temperature=None
        if temperature is None
        else in_range("temperature", temperature),
        max_tokens=request.max_tokens,
        wants_partials=sound.is_open and request.stream is not False,
    )


def asking_for_speech(request: BlocksRequest) -> str | None:
    """Name what asks for a transcription and for nothing else, if anything does."""
    for field in _SPEECH_FIELDS:
        if getattr(request, field) is not None:
            return field
    for name in open_ids(request.attachments):
        return f'open attachment "{name}"'
    return None


def _unfit(request: BlocksRequest) -> str | None:
    """Say what keeps a request from being one for a transcription."""
    if not _is_recording(request):
        return "takes one message, the user's, with one audio block and text alone"
    option = next(_not_honoured(request), None)
    return option and f"cannot honour {option}"


def _not_honoured(request: BlocksRequest) -> Iterator[str]:
    """Name the options that a transcription cannot honour."""
    yield from (each for each in _REFUSED if getattr(request, each) is not None)
    yield from (each for each in _REFUSED_UNLESS_EMPTY if getattr(request, each))
    if request.cache not in (None, "auto"):
        yield "cache"


def _is_recording(request: BlocksRequest) -> bool:
    """Tell whether a recording is all there is, but for text."""
    match request.messages:
        case [message] if message.role == "user":
            blocks = message.content
        case _:
            return False
    sounds = [each for each in blocks if isinstance(each, AudioBlock)]
    return (
        len(sounds) == 1
        and all(isinstance(each, TextBlock | AudioBlock) for each in blocks)
        and set(open_ids(request.attachments)) <= {sounds[0].attachment_id}
    )


def _language_of(request: BlocksRequest) -> str | None:
    language = request.language
    if language in (None, FIND_OUT):
        return None
    if language not in LANGUAGES:
        raise refusal("language", language, listed((FIND_OUT, *LANGUAGES)))
    return language


def _timestamps_of(request: BlocksRequest) -> Timestamps:
    for kind in TIMESTAMPS:
        if request.timestamps in (kind, None):  # the first is the default
            return kind
    raise refusal("timestamps", request.timestamps, listed(TIMESTAMPS))
