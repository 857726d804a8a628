"""The result of resolving a request: a job, backend requirements and delivery options."""

from typing import Generic, TypeVar

from msgspec import Struct

from inferd.backend.job import Job, TranscribeJob
from inferd.routing import Requirement

J = TypeVar("J", bound=Job)


class ResolvedRequest(Struct, Generic[J], frozen=True, kw_only=True):
    """A validated request."""

    job: J
    transcription: TranscribeJob | None = None
    """The same work as a transcription, if a backend for speech can serve it."""
    needs: tuple[Requirement, ...]
    """Requirements that a backend must satisfy."""
    model: str | None = None
    """Name or alias of the backend that must serve it; ``None`` for any."""
    priority: int = 0
    """Among the caller's own requests, higher first."""
    deadline_ms: int | None = None
    """Milliseconds from arrival to the end of the answer."""
    keep_alive_s: float | None = None
    """Seconds without a request until its model may be unloaded; ``None``: as configured."""
    via: tuple[str, ...] = ()
    """The daemons that have passed it on."""
    describe: bool = False
    """Whether a refusal tells facts about the models that would do."""
    streams: bool = True
    """Whether parts of the answer are sent as they are generated."""
