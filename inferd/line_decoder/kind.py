"""A kind of requests: how a large line is split into a head and sections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from inferd.backend.job import EmbedJob, GenerateJob, RerankJob
from inferd.errors import PeerError
from inferd.limits.line_decoder import MAX_FAILURE_CHARS
from inferd.limits.protocol import MAX_PRINCIPAL_CHARS
from inferd.line_decoder.messages import (
    ENCODER,
    DecodeFailure,
    DecodeResult,
    DecodeTask,
    RequestHead,
    failure_of,
)
from inferd.resolve.request import ResolvedRequest
from inferd.routing import encode_requirement
from inferd.wire.requests import Request
from inferd.wire.unknown_fields import strict_refusal

R = TypeVar("R", bound=Request)
J = TypeVar("J", bound=GenerateJob | EmbedJob | RerankJob)


class DecodeOutput(NamedTuple):
    """The result, and the sections that follow it."""

    result: DecodeResult
    sections: Sequence[bytes] = ()


class AnyLineKind(Protocol):
    """A kind of requests, whatever these are."""

    @property
    def name(self) -> str:
        """Its name in tasks."""

    @property
    def job(self) -> type[object]:
        """The type of its jobs."""

    @property
    def takes_appends(self) -> bool:
        """Whether its clients may append to requests."""

    @property
    def max_job_bytes(self) -> int:
        """Bytes of a job that are not in sections."""

    def decode_request(self, task: DecodeTask, line: bytes) -> DecodeOutput:
        """Decode and resolve a request."""

    def read_head(self, head: RequestHead) -> tuple[Request, int]:
        """Decode a request without its large parts, and count its texts."""


def _no_texts(_: Request) -> Sequence[bytes]:
    return ()


@dataclass(frozen=True, kw_only=True)
class LineKind(Generic[R, J]):
    """A kind of requests: how they are decoded, and what only the worker needs of them."""

    name: str
    """Its name in tasks."""
    request: type[R]
    job: type[J]
    decode: Callable[[bytes], R]
    """Decodes a line, or raises ``InvalidFrameError``."""
    resolve: Callable[[R, DecodeTask], ResolvedRequest[J]]
    """Resolves a request, or raises ``PeerError``."""
    without_content: Callable[[R], R]
    """Leaves the large parts out of a request."""
    job_head: Callable[[J], J]
    """Leaves out of a job what ``content`` has."""
    content: Callable[[J], bytes]
    """Encodes the part of a job that the daemon only forwards."""
    texts: Callable[[R], Sequence[bytes]] = _no_texts
    """Gives the texts of a request that are sections of their own; as many, empty, for a
    request without its large parts."""
    takes_appends: bool = False
    """Whether its clients may append to requests."""
    max_job_bytes: int = 0
    """Bytes of a job that are not in sections, besides short fields."""

    def decode_request(self, task: DecodeTask, line: bytes) -> DecodeOutput:
        """Decode and resolve a request.

        Raises:
            PeerError: it cannot be decoded; one that cannot be resolved is an output.
        """
        request = self.decode(line)
        head = RequestHead(
            kind=self.name,
            request=Raw(ENCODER.encode(self.without_content(request))),
            stats=request.counts(),
        )
        try:
            if refusal := strict_refusal(line, request):
                raise refusal
            resolved = self.resolve(request, task)
        except PeerError as error:
            refused = replace(head, refusal=client_failure(error))
            return DecodeOutput(DecodeResult(request=refused))
        head = replace(
            head,
            job=self.job_head(resolved.job),
            transcription=resolved.transcription,
            needs=[list(encode_requirement(each)) for each in resolved.needs],
            model=resolved.model,
            priority=resolved.priority,
            deadline_ms=resolved.deadline_ms,
            keep_alive_s=resolved.keep_alive_s,
            describe=resolved.describe,
            streams=resolved.streams,
        )
        sections = [self.content(resolved.job), *self.texts(request)]
        return DecodeOutput(DecodeResult(request=head), sections)

    def read_head(self, head: RequestHead) -> tuple[Request, int]:
        """Decode a request without its large parts, and count its texts.

        Raises:
            msgspec.DecodeError: it is no such request.
        """
        request = msgspec.msgpack.decode(head.request, type=self.request)
        return request, len(self.texts(request))


def shortened(principal: str | None) -> str | None:
    """Cut a principal, which the daemon refuses if it is too long, to show no more than that."""
    return principal and principal[: MAX_PRINCIPAL_CHARS + 1]


def client_failure(error: PeerError) -> DecodeFailure:
    """Encode the error that a client is sent."""
    return failure_of(error, max_chars=MAX_FAILURE_CHARS)
