"""Routing of requests to backends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import Backend
from inferd.errors import (
    AttachmentUnsupportedError,
    BackendNotReadyError,
    BackendUnavailableError,
    InferdError,
    InternalError,
    InvalidRequestError,
)


class Requirement(NamedTuple):
    """A capability that a request requires of a backend."""

    is_met_by: Callable[[BackendCapabilities], bool]
    refusal: Callable[[str, BackendCapabilities], InferdError]
    """Makes the error if no backend meets it, from the first backend's name and
    capabilities."""
    encoded: tuple[str | int, ...] = ()
    """Its constructor's name and arguments, for another process; empty for a constant."""


GENERATES: Final = Requirement(
    lambda caps: caps.generate,
    lambda *_: BackendUnavailableError("no backend available"),
)
SERVES_V2: Final = Requirement(
    lambda caps: caps.v2,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
TAKES_IMAGES: Final = Requirement(
    lambda caps: caps.vision,
    lambda *_: AttachmentUnsupportedError("no backend takes image attachments"),
)
TAKES_AUDIO: Final = Requirement(
    lambda caps: caps.audio,
    lambda *_: AttachmentUnsupportedError("no backend answers to audio attachments"),
)
TAKES_VIDEO: Final = Requirement(
    lambda caps: caps.video,
    lambda *_: AttachmentUnsupportedError("no backend takes video attachments"),
)
TAKES_TOOLS: Final = Requirement(
    lambda caps: caps.tools, lambda *_: InvalidRequestError("no backend takes tools")
)
HAS_REASONING: Final = Requirement(
    lambda caps: caps.thinking,
    lambda *_: InvalidRequestError("thinking true: no backend has a reasoning trace"),
)
CONSTRAINS_OUTPUT: Final = Requirement(
    lambda caps: caps.structure,
    lambda *_: InvalidRequestError("no backend holds an answer to a structure"),
)
GENERATES_OR_TRANSCRIBES: Final = Requirement(
    lambda caps: caps.generate or caps.transcribe,
    lambda *_: BackendUnavailableError("no backend available"),
)
"""For a request with audio: a text may be generated from it, or a transcript made."""
GENERATES_V2_OR_TRANSCRIBES: Final = Requirement(
    lambda caps: caps.v2 or caps.transcribe,
    lambda name, _: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
HANDLES_AUDIO: Final = Requirement(
    lambda caps: caps.audio or caps.transcribe,
    lambda *_: AttachmentUnsupportedError("no backend takes audio attachments"),
)
EMBEDS: Final = Requirement(
    lambda caps: caps.embed,
    lambda *_: BackendUnavailableError("no embed-capable backend available"),
)
RERANKS: Final = Requirement(
    lambda caps: caps.rerank,
    lambda *_: BackendUnavailableError("no rerank-capable backend available"),
)


def transcribes(asking: str) -> Requirement:
    """Make the requirement of a request for a transcript.

    Args:
        asking: the field of the request that asks for it.
    """
    return Requirement(
        lambda caps: caps.transcribe,
        lambda *_: InvalidRequestError(f"{asking}: no backend transcribes speech"),
        ("transcribes", asking),
    )


def takes_rate(audio_id: str, rate: int) -> Requirement:
    """Make the requirement of a request with audio.

    Args:
        audio_id: the attachment's id.
        rate: its sample rate in Hz.
    """
    return Requirement(
        lambda caps: caps.audio_sample_rate in (0, rate),
        lambda name, caps: InvalidRequestError(
            f'attachment "{audio_id}": sample_rate {rate} is not the '
            f'{caps.audio_sample_rate} that backend "{name}" takes'
        ),
        ("takes_rate", audio_id, rate),
    )


_CONSTANTS: Final[Mapping[str, Requirement]] = {
    name: value for name, value in globals().items() if isinstance(value, Requirement)
}
_NAMES: Final = {id(value): name for name, value in _CONSTANTS.items()}


def encode_requirement(requirement: Requirement) -> tuple[str | int, ...]:
    """Encode a requirement for another process."""
    return requirement.encoded or (_NAMES[id(requirement)],)


def decode_requirement(encoded: Sequence[str | int]) -> Requirement:
    """Decode a requirement from the output of ``encode_requirement``.

    Raises:
        ValueError: the input is no requirement.
    """
    match encoded:
        case ["transcribes", str() as asking]:
            return transcribes(asking)
        case ["takes_rate", str() as audio_id, int() as rate]:
            return takes_rate(audio_id, rate)
        case [str() as name] if name in _CONSTANTS:
            return _CONSTANTS[name]
        case _:
            raise ValueError(f"no requirement: {encoded}")


def route(backends: Sequence[Backend], requirements: Sequence[Requirement]) -> Backend:
    """Choose the first backend, in configured order, that meets all requirements.

    1. One that is ready.
    2. One that is only restarting: the request waits for it.
    3. One that is out of service: the request is refused with its reason.

    Raises:
        InferdError: no backend can ever serve it: the refusal of the first requirement that
            eliminates the last candidate.
        BackendUnavailableError: case 3.
    """
    capable = _capable(backends, requirements)
    for backend in capable:
        if backend.ready:
            return backend
    for backend in capable:
        if backend.unavailable is None:
            return backend
    raise BackendNotReadyError(capable[0].unavailable or "")


def _capable(
    backends: Sequence[Backend], requirements: Sequence[Requirement]
) -> Sequence[Backend]:
    capable = backends
    for requirement in requirements:
        last = capable
        capable = [
            backend
            for backend in capable
            if requirement.is_met_by(backend.capabilities)
        ]
        if not capable:
            raise _refusal(requirement, last)
    return capable


def _refusal(requirement: Requirement, last: Sequence[Backend]) -> InferdError:
    if not last:
        return requirement.refusal("", BackendCapabilities())
    return requirement.refusal(last[0].name, last[0].capabilities)
