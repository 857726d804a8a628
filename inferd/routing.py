"""Which backend serves a request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from inferd.backend import Backend
from inferd.capabilities import BackendCapabilities
from inferd.errors import (
    AttachmentUnsupportedError,
    BackendNotReadyError,
    BackendUnavailableError,
    InferdError,
    InternalError,
    InvalidRequestError,
)


class Need(NamedTuple):
    """Something that a request asks of a backend."""

    is_met_by: Callable[[BackendCapabilities], bool]
    refusal: Callable[[str, BackendCapabilities], InferdError]
    """The failure where nobody meets it, for the first backend's name and what it can."""
    written: tuple[str | int, ...] = ()
    """How to make it again: what makes it and of what; empty for a constant."""


GENERATES: Final = Need(
    lambda able: able.generate,
    lambda *_: BackendUnavailableError("no backend available"),
)
SERVES_V2: Final = Need(
    lambda able: able.v2,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
TAKES_IMAGES: Final = Need(
    lambda able: able.vision,
    lambda *_: AttachmentUnsupportedError("no backend takes image attachments"),
)
TAKES_AUDIO: Final = Need(
    lambda able: able.audio,
    lambda *_: AttachmentUnsupportedError("no backend answers to audio attachments"),
)
TAKES_VIDEO: Final = Need(
    lambda able: able.video,
    lambda *_: AttachmentUnsupportedError("no backend takes video attachments"),
)
TAKES_TOOLS: Final = Need(
    lambda able: able.tools, lambda *_: InvalidRequestError("no backend takes tools")
)
THINKS: Final = Need(
    lambda able: able.thinking,
    lambda *_: InvalidRequestError("thinking true: no backend has a reasoning trace"),
)
HOLDS_STRUCTURE: Final = Need(
    lambda able: able.structure,
    lambda *_: InvalidRequestError("no backend holds an answer to a structure"),
)
ANSWERS: Final = Need(
    lambda able: able.generate or able.transcribe,
    lambda *_: BackendUnavailableError("no backend available"),
)
"""What a recording asks, of which a text may be written, or which may be written down."""
ANSWERS_V2: Final = Need(
    lambda able: able.v2 or able.transcribe,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
HEARS: Final = Need(
    lambda able: able.audio or able.transcribe,
    lambda *_: AttachmentUnsupportedError("no backend takes audio attachments"),
)
EMBEDS: Final = Need(
    lambda able: able.embed,
    lambda *_: BackendUnavailableError("no embed-capable backend available"),
)
RERANKS: Final = Need(
    lambda able: able.rerank,
    lambda *_: BackendUnavailableError("no rerank-capable backend available"),
)


def transcribes(asking: str) -> Need:
    """Make the need of a request that asks for a transcription.

    Args:
        asking: what of it does.
    """
    return Need(
        lambda able: able.transcribe,
        lambda *_: InvalidRequestError(f"{asking}: no backend writes speech down"),
        ("transcribes", asking),
    )


def takes_rate(sound: str, rate: int) -> Need:
    """Make the need of a request with sound.

    Args:
        sound: the attachment's id.
        rate: its samples a second.
    """
    return Need(
        lambda able: able.audio_sample_rate in (0, rate),
        lambda name, able: InvalidRequestError(
            f'attachment "{sound}": sample_rate {rate} is not the '
            f'{able.audio_sample_rate} that backend "{name}" takes'
        ),
        ("takes_rate", sound, rate),
    )


_CONSTANTS: Final[Mapping[str, Need]] = {
    name: each for name, each in globals().items() if isinstance(each, Need)
}
_NAMES: Final = {id(each): name for name, each in _CONSTANTS.items()}


def written(need: Need) -> tuple[str | int, ...]:
    """Write a need down, for another process."""
    return need.written or (_NAMES[id(need)],)


def need_of(words: Sequence[str | int]) -> Need:
    """Make a need of what ``written`` gave.

    Raises:
        ValueError: it is none.
    """
    match words:
        case ["transcribes", str() as asking]:
            return transcribes(asking)
        case ["takes_rate", str() as sound, int() as rate]:
            return takes_rate(sound, rate)
        case [str() as name] if name in _CONSTANTS:
            return _CONSTANTS[name]
        case _:
            raise ValueError(f"no need: {words}")


def route(backends: Sequence[Backend], needs: Sequence[Need]) -> Backend:
    """Choose the first backend, in configured order, that can do all that is asked.

    1. One that is ready.
    2. One that is only restarting: the request waits for it.
    3. One that is out of service: the request is refused with its reason.

    Raises:
        InferdError: nobody could ever serve it: the refusal of the first need that
            leaves nobody.
        BackendUnavailableError: case 3.
    """
    capable = _capable(backends, needs)
    for backend in capable:
        if backend.ready:
            return backend
    for backend in capable:
        if backend.unavailable is None:
            return backend
    raise BackendNotReadyError(capable[0].unavailable or "")


def _capable(backends: Sequence[Backend], needs: Sequence[Need]) -> Sequence[Backend]:
    capable = backends
    for need in needs:
        last = capable
        capable = [each for each in capable if need.is_met_by(each.capabilities)]
        if not capable:
            raise _refusal(need, last)
    return capable


def _refusal(need: Need, last: Sequence[Backend]) -> InferdError:
    if not last:
        return need.refusal("", BackendCapabilities())
    return need.refusal(last[0].name, last[0].capabilities)
