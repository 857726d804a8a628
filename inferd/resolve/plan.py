"""What a request comes to: the work, who may do it, and how the caller wants it."""

from typing import Generic, TypeVar

from msgspec import Struct

from inferd.job import EmbedJob, GenerateJob, RerankJob
from inferd.routing import Need

J = TypeVar("J", GenerateJob, EmbedJob, RerankJob)


class Plan(Struct, Generic[J], frozen=True, kw_only=True):
    """A request that was found sound."""

    job: J
    needs: tuple[Need, ...]
    """What a backend must be able to do."""
    priority: int = 0
    """Among the caller's own requests, higher first."""
    deadline_ms: int | None = None
    """From arrival to the end."""
    streams: bool = True
    """Whether pieces go out as they come."""
