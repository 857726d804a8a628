"""The daemon's interface to an engine.

A backend may be a worker process with llama.cpp, a remote service, or a script; the server
knows nothing more of it than this module.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.events import MalformedToolCall, TokenEvent, TokenEventV2
from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    Job,
    RenderedJob,
    RerankJob,
    TranscribeJob,
)
from inferd.errors import EmbedUnsupportedError, InternalError, RerankUnsupportedError
from inferd.wire.responses import (
    CacheMiss,
    DraftCounts,
)

J = TypeVar("J", bound=Job)
BackendState = Literal["unloaded", "loading", "ready", "unloading", "failed"]
"""Whether a backend serves, and why not."""


class EmbedResult(Struct, frozen=True, kw_only=True):
    """One vector for each input, in order."""

    embeddings: list[bytes]
    """Parts that, joined, are a JSON array of arrays of numbers."""
    dimensions: int
    """Length of every vector."""
    input_tokens: int
    is_estimate: bool = False
    """Whether the tokens are estimated."""


class RerankResult(Struct, frozen=True, kw_only=True):
    """One score for each document, in order; higher is better."""

    scores: list[float]
    input_tokens: int
    is_estimate: bool = False
    """Whether the tokens are estimated."""


class Prepared(Struct, Generic[J], frozen=True, kw_only=True):
    """A job that a backend has tokenised, counted and found to fit."""

    ticket: int
    """The backend's own number for the job."""
    job: J
    input_tokens: int
    """Tokens of the prompt, or of all texts."""
    is_estimate: bool = False
    """Whether the tokens are estimated."""
    open_thought: str = ""
    """The marker of the reasoning that the prompt ends inside, if any: the answer continues
    there."""


E_co = TypeVar("E_co", bound=TokenEvent | TokenEventV2, covariant=True)


class CacheReuse(Struct, frozen=True, kw_only=True):
    """A job's use of the prompt cache."""

    cached_tokens: int = 0
    """Tokens of the prompt that were in the cache, and so are not decoded."""
    miss: CacheMiss | None = None
    """The reason if no token was in the cache."""
    saved_bytes: int = 0
    """Host memory of all cached prompts."""


class EventStream(Protocol[E_co]):
    """Batches of events; the last event of the last batch is the end."""

    n_tokens: int
    """Tokens of the answer so far."""
    n_first_tokens: int
    """How many of these came at once with the first."""
    first_token_at: float | None
    """When the first token came, on trio's clock: its text may be sent later."""
    warnings: Sequence[MalformedToolCall]
    """Malformed calls that were sent as text so far; none in v1."""
    reuse: CacheReuse
    """Use of the prompt cache; empty until the run has begun."""
    draft_counts: DraftCounts
    """Counts of drafted and accepted tokens so far."""

    @property
    def unsent_token_ids(self) -> Sequence[int]:
        """Ids of the tokens that no event had so far, if they were requested."""

    def __aiter__(self) -> AsyncIterator[Sequence[E_co]]:
        """Iterate over the batches, none of which is empty."""

    async def forward(self, send: Callable[[Iterable[E_co]], bool]) -> bool:
        """Have a function called with the events as they come, until it returns false.

        An engine may call it in a task of its own, so that a token wakes no other task. It
        is not called while no task is inside.

        Args:
            send: does not wait. It has to iterate over all events of a call, perhaps none:
                they are computed meanwhile.

        Returns:
            Whether the stream goes on: false after its last event.

        Raises:
            Exception: as the iterator, or as ``send``.

        Cancellation: no event is lost.
        """

    def until_over(self) -> AbstractContextManager[None]:
        """Return a context that cancels its body once the engine has finished.

        An engine goes on whether its batches are taken or not.
        """


class StartFailedError(Exception):
    """A backend did not get ready when its model was first loaded.

    Args:
        text: one line for the operator.
        reason: one line for clients, which names no file; by default the same.
        is_broken_file: whether the content of its file is at fault: with the same file, no
            further attempt will succeed.
    """

    def __init__(
        self, text: str, *, reason: str = "", is_broken_file: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason or text
        self.is_broken_file = is_broken_file


class Backend(ABC):
    """An engine as the server sees it.

    A stream that fails raises; a stream that ends has yielded exactly one ``Done``. Leaving
    a context early cancels its job within one decode step.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The configured name, as ``backend`` in frames."""

    @property
    def key(self) -> str:
        """What tells it from a backend of the same name that it replaces."""
        return self.name

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether a request would be served now."""

    @property
    @abstractmethod
    def unavailable(self) -> str | None:
        """Why it will not be ready soon, or ``None`` if waiting for it makes sense."""

    @property
    def retry_after_ms(self) -> int | None:
        """Milliseconds until it is tried again, if it is unavailable and that is known."""
        return None

    @property
    def state(self) -> BackendState:
        """``ready``; ``failed`` while it is unavailable; otherwise ``loading``.

        A model that is loaded on demand may also be ``unloaded`` or ``unloading``.
        """
        if self.unavailable is not None:
            return "failed"
        return "ready" if self.ready else "loading"

    @property
    def worker_pid(self) -> int | None:
        """The process id of its worker; ``None`` while it has none."""
        return None

    @property
    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """The backend's capabilities; known once it has been ready."""

    @abstractmethod
    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep the backend alive until cancelled.

        Args:
            on_ready: called once, when it is ready for the first time.

        Raises:
            StartFailedError: it did not get ready the first time.
        """

    @abstractmethod
    def stop(self, reason: str) -> None:
        """Fail all jobs, current and later, with ``BackendUnavailableError``."""

    async def render(
        self,
        job: GenerateJob,  # noqa: ARG002  # for those that render prompts
    ) -> RenderedJob | None:
        """Render a job that is not plain before it is prepared; ``None`` if it is plain.

        One job at a time is rendered. Rendering is the slow part of clients' requests, so
        it has a queue of its own.

        Raises:
            GenerateError: the job cannot be served, or the backend is out of service.

        Cancellation: safe.
        """
        return None

    @abstractmethod
    def prepare(
        self, job: J, fds: Sequence[int] = ()
    ) -> AbstractAsyncContextManager[Prepared[J]]:
        """Tokenise and count a job; inside the context the backend holds it.

        May be called before the job has a permit to run. Waits for a backend that is only
        restarting.

        Args:
            job: to serve.
            fds: of the files with its media, in their order; they belong to the caller, and
                stay open inside the context.

        Raises:
            GenerateError: the job cannot be served, or the backend is out of service.
        """

    @abstractmethod
    def pause(self, prepared: Prepared[J], on_paused: Callable[[], object]) -> None:
        """Pause a prepared job, whether it runs or is about to.

        Its state is kept, and its slot is free once ``on_paused`` is called: at once, or
        after the current step. It is not called for a job that ends before.
        """

    @abstractmethod
    def resume(self, prepared: Prepared[J]) -> None:
        """Resume a paused job; a slot is free for it."""

    def report_queue_position(self, prepared: Prepared[J], position: int) -> None:  # noqa: B027  # optional
        """Have the stream of a paused job yield its queue position."""

    @abstractmethod
    def generate(
        self, prepared: Prepared[GenerateJob]
    ) -> AbstractAsyncContextManager[EventStream[TokenEvent]]:
        """Run a prepared job.

        Raises:
            GenerateError: before the first event; or in the middle of the stream, as
                ``BackendUnavailableError`` if the engine died, and as
                ``InvalidRequestError`` if constraining the answer takes too much work.
        """

    def generate_v2(
        self,
        prepared: Prepared[GenerateJob],  # noqa: ARG002  # for those that can
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        """Run a prepared job with typed blocks; only if ``capabilities.v2``."""
        raise InternalError(f'backend "{self.name}" does not advertise v2 capability')

    def transcribe(
        self,
        prepared: Prepared[TranscribeJob],  # noqa: ARG002  # for those that can
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        """Transcribe speech; only if ``capabilities.transcribe``."""
        raise InternalError(f'backend "{self.name}" does not transcribe')

    def append_audio(
        self,
        prepared: Prepared[TranscribeJob],  # noqa: ARG002  # for those that can
        n_bytes: int,  # noqa: ARG002
        *,
        is_last: bool,  # noqa: ARG002
    ) -> None:
        """Report that an open medium has grown, whether the job runs already or not.

        Args:
            prepared: the medium's job.
            n_bytes: length of its file.
            is_last: whether it is complete.
        """
        raise InternalError(f'backend "{self.name}" does not transcribe')

    def on_audio_needed(  # noqa: B027  # for those that transcribe
        self, prepared: Prepared[TranscribeJob], callback: Callable[[int], object]
    ) -> None:
        """Set the callback for a job that waits for more audio.

        Args:
            prepared: a job with an open medium.
            callback: called with the bytes that the medium must have before the job
                continues, unless the job ends.
        """

    async def embed(
        self,
        prepared: Prepared[EmbedJob],  # noqa: ARG002  # for those that can
    ) -> EmbedResult:
        """Embed texts; only if ``capabilities.embed``. Cancelling drops the job."""
        raise EmbedUnsupportedError

    async def rerank(
        self,
        prepared: Prepared[RerankJob],  # noqa: ARG002  # for those that can
    ) -> RerankResult:
        """Score documents; only if ``capabilities.rerank``. Cancelling drops the job."""
        raise RerankUnsupportedError
