"""Which backend serves a request."""

from collections.abc import Callable, Sequence
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
    refusal: Callable[[str], InferdError]
    """The failure where nobody meets it, for the first backend's name."""


GENERATES: Final = Need(
    lambda able: able.generate,
    lambda _: BackendUnavailableError("no backend available"),
)
SERVES_V2: Final = Need(
    lambda able: able.v2,
    lambda name: InternalError(f'backend "{name}" does not advertise v2 capability'),
)
TAKES_IMAGES: Final = Need(
    lambda able: able.vision,
    lambda _: AttachmentUnsupportedError("no backend takes image attachments"),
)
TAKES_AUDIO: Final = Need(
    lambda able: able.audio,
    lambda _: AttachmentUnsupportedError("no backend takes audio attachments"),
)
TAKES_VIDEO: Final = Need(
    lambda able: able.video,
    lambda _: AttachmentUnsupportedError("no backend takes video attachments"),
)
TAKES_TOOLS: Final = Need(
    lambda able: able.tools, lambda _: InvalidRequestError("no backend takes tools")
)
THINKS: Final = Need(
    lambda able: able.thinking,
    lambda _: InvalidRequestError("thinking true: no backend has a reasoning trace"),
)
HOLDS_STRUCTURE: Final = Need(
    lambda able: able.structure,
    lambda _: InvalidRequestError("no backend holds an answer to a structure"),
)
EMBEDS: Final = Need(
    lambda able: able.embed,
    lambda _: BackendUnavailableError("no embed-capable backend available"),
)
RERANKS: Final = Need(
    lambda able: able.rerank,
    lambda _: BackendUnavailableError("no rerank-capable backend available"),
)


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
            raise need.refusal(last[0].name if last else "")
    return capable
