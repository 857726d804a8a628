"""What a request comes to: the work, who may do it, and how the caller wants it."""

from typing import Generic, TypeVar

from msgspec import Struct

from inferd.job import Job, TranscribeJob
from inferd.routing import Need

J = TypeVar("J", bound=Job)


class Plan(Struct, Generic[J], frozen=True, kw_only=True):
    """A request that was found sound."""

    job: J
    transcription: TranscribeJob | None = None
    """The same for a backend that writes speech down, where it is something for one."""
    needs: tuple[Need, ...]
    """What a backend must be able to do."""
    priority: int = 0
    """Among the caller's own requests, higher first."""
    deadline_ms: int | None = None
    """From arrival to the end."""
    streams: bool = True
    """Whether pieces go out as they come."""
