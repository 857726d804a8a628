"""What answers on the inference sockets: one entry for each surface that takes requests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import Backend
from inferd.config.settings import Config
from inferd.line_decoder.kind import AnyLineKind
from inferd.line_decoder.kinds import KINDS
from inferd.server.connection.dispatch import Service
from inferd.server.connection.serve import AnyEndpoint, Endpoint
from inferd.server.services.describe import DescribeService
from inferd.server.services.embed import embed_service
from inferd.server.services.pipeline import Pipeline
from inferd.server.services.rerank import rerank_service
from inferd.server.services.v1 import V1Service
from inferd.server.services.v2 import V2Service
from inferd.surfaces import ADMIN, EMBED, INFER, RERANK, V2, Surface, check_surfaces
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.requests import Request

R = TypeVar("R", bound=Request)


@dataclass(frozen=True, kw_only=True)
class Binding(Generic[R]):
    """A surface with its codec, its service and the backends that can serve it."""

    surface: Surface
    is_served_by: Callable[[BackendCapabilities], bool]
    """Tells whether a backend can serve it; without one its socket is not bound."""
    decode: Callable[[bytes], R]
    """Decodes a request, or raises ``InvalidFrameError``."""
    service: Callable[[Pipeline], Service[R]]
    """Makes the service, which resolves a request and sends its answer."""
    takes_media: bool = False
    """Whether clients may pass descriptors with requests, and append to attachments."""
    large_lines: AnyLineKind | None = None
    """As what the line decoder decodes large lines; without it they are refused."""

    def endpoint(self, pipeline: Pipeline) -> Endpoint[R]:
        """Make the endpoint of a daemon."""
        return Endpoint(
            self.surface,
            self.decode,
            self.service(pipeline),
            DescribeService(pipeline, self.is_served_by),
            takes_media=self.takes_media,
            large_lines=self.large_lines,
        )


class AnyBinding(Protocol):
    """A binding, whatever its requests are."""

    @property
    def surface(self) -> Surface:
        """The surface."""

    @property
    def is_served_by(self) -> Callable[[BackendCapabilities], bool]:
        """Tells whether a backend can serve it."""

    def endpoint(self, pipeline: Pipeline) -> AnyEndpoint:
        """Make the endpoint of a daemon."""


BINDINGS: Final[Sequence[AnyBinding]] = (
    Binding(
        surface=INFER,
        is_served_by=lambda caps: caps.generate,
        decode=decode_generate,
        service=V1Service,
        large_lines=KINDS["text"],
    ),
    Binding(
        surface=V2,
        is_served_by=lambda caps: (caps.generate and caps.v2) or caps.transcribe,
        decode=decode_blocks,
        service=V2Service,
        takes_media=True,
        large_lines=KINDS["blocks"],
    ),
    Binding(
        surface=EMBED,
        is_served_by=lambda caps: caps.embed,
        decode=decode_embed,
        service=embed_service,
        large_lines=KINDS["embed"],
    ),
    Binding(
        surface=RERANK,
        is_served_by=lambda caps: caps.rerank,
        decode=decode_rerank,
        service=rerank_service,
        large_lines=KINDS["rerank"],
    ),
)
"""The inference surfaces, in the order in which their sockets are bound."""


def surfaces_of(bindings: Sequence[AnyBinding]) -> Sequence[Surface]:
    """List the surfaces of a daemon: those of its bindings, and the admin socket's.

    Raises:
        ValueError: two have a name or a socket in common.
    """
    surfaces = (*(each.surface for each in bindings), ADMIN)
    check_surfaces(surfaces)
    return surfaces


def served_surfaces(
    config: Config,
    backends: Sequence[Backend],
    bindings: Sequence[AnyBinding] = BINDINGS,
) -> Iterator[Surface]:
    """Yield the surfaces that are not switched off and that a backend can serve.

    Where any model of the store is served, that is all of them: a model that can serve one
    may be brought at any time.
    """
    capabilities = [backend.capabilities for backend in backends]
    serves_any = config.models.serve is True
    for binding in bindings:
        is_off = getattr(config.listen, binding.surface.name, None) is False
        if not is_off and (serves_any or any(map(binding.is_served_by, capabilities))):
            yield binding.surface
