"""The daemon's interface to an engine, and the events that its streams yield.

A backend may be a worker process with llama.cpp, a remote service, or a script; what
stands here is all that the server knows of it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from inferd.capabilities import BackendCapabilities
from inferd.errors import EmbedUnsupportedError, InternalError, RerankUnsupportedError
from inferd.events import MalformedToolCall, TokenEvent, TokenEventV2
from inferd.job import EmbedJob, GenerateJob, Job, RerankJob, TranscribeJob, Written
from inferd.wire.responses import (
    CacheMiss,
    Guesses,
)

J = TypeVar("J", bound=Job)


class EmbedResult(Struct, frozen=True, kw_only=True):
    """One vector for each input, in order."""

    embeddings: list[bytes]
    """Parts that, joined, are an array of arrays of numbers, as JSON."""
    dimensions: int
    """Length of every vector."""
    input_tokens: int


class RerankResult(Struct, frozen=True, kw_only=True):
    """One score for each document, in order; higher is better."""

    scores: list[float]
    input_tokens: int


class Prepared(Struct, Generic[J], frozen=True, kw_only=True):
    """A job that a backend has tokenised, counted and found to fit."""

    ticket: int
    """The backend's own number for the job."""
    job: J
    input_tokens: int
    """Tokens of the prompt, or of all texts."""
    open_thought: str = ""
    """The marker of the thought that the prompt ends inside, if any: the answer goes on
    there."""


E_co = TypeVar("E_co", bound=TokenEvent | TokenEventV2, covariant=True)


class Reuse(Struct, frozen=True, kw_only=True):
    """What a job found of its prompt in the cache."""

    cached_tokens: int = 0
    """Tokens that need not be decoded."""
    miss: CacheMiss | None = None
    """Why there are none."""
    saved_bytes: int = 0
    """Host memory that all prompts take that are kept there."""


class EventStream(Protocol[E_co]):
    """Batches of events; the last event of the last batch is the end."""

    n_tokens: int
    """Tokens of the answer so far."""
    first_token_at: float | None
    """When the first one came, on trio's clock: its text may go out later."""
    warnings: Sequence[MalformedToolCall]
    """Calls that went out as text so far; none in v1."""
    reuse: Reuse
    """What was in the cache; nothing, until the run has begun."""
    guesses: Guesses
    """What was guessed of the answer so far."""

    def __aiter__(self) -> AsyncIterator[Sequence[E_co]]:
        """Iterate over the batches, none of which is empty."""

    def until_over(self) -> AbstractContextManager[None]:
        """Cut short what is inside once the engine is done: no batch is waited for then.

        An engine goes on whether its batches are taken or not.
        """


class StartFailedError(Exception):
    """A backend did not get ready at the daemon's start; one line for the operator."""


class Backend(ABC):
    """An engine as the server sees it.

    A stream that fails raises; a stream that ends has given exactly one ``Done``. Leaving
    a context early cancels what it stands for, within one decode step.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Its configured name, as ``backend`` in frames."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether a request would be served now."""

    @property
    @abstractmethod
    def unavailable(self) -> str | None:
        """Why it will not be ready soon, or ``None`` while waiting for it makes sense."""

    @property
    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """What it can do; known once it has been ready."""

    @abstractmethod
    async def run(self, on_ready: Callable[[], None]) -> None:
        """Keep it alive until cancelled.

        Args:
            on_ready: called once, when it is ready for the first time.

        Raises:
            StartFailedError: it did not get ready the first time.
        """

    @abstractmethod
    def stop(self, reason: str) -> None:
        """Fail every job it has, and every later one, with ``BackendUnavailableError``."""

    async def write(
        self,
        job: GenerateJob,  # noqa: ARG002  # for those that write prompts
    ) -> Written | None:
        """Write what is not plain of a job before it is prepared; nothing if all is.

        One job at a time is written. It is what takes long of clients' requests, so it
        has a queue of its own.

        Raises:
            GenerateError: the job cannot be served, or the backend is out of service.

        Cancellation: safe.
        """
        return None

    @abstractmethod
    def prepare(
        self, job: J, fds: Sequence[int] = ()
    ) -> AbstractAsyncContextManager[Prepared[J]]:
        """Tokenise and count what a job has to read; while inside, the backend remembers it.

        May be called before it is the job's turn to run. Waits for a backend that is
        only restarting.

        Args:
            job: to be served.
            fds: of the files with its media, in their order; the caller's, and open while
                inside.

        Raises:
            GenerateError: the job cannot be served, or the backend is out of service.
        """

    @abstractmethod
    def generate(
        self, prepared: Prepared[GenerateJob]
    ) -> AbstractAsyncContextManager[EventStream[TokenEvent]]:
        """Run a prepared job.

        Raises:
            GenerateError: before the first event; or in the middle of the stream, as
                ``BackendUnavailableError`` when the engine died, and as
                ``InvalidRequestError`` when what the answer is held to is too much work.
        """

    def generate_v2(
        self,
        prepared: Prepared[GenerateJob],  # noqa: ARG002  # for those that can
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        """Run a prepared job with typed blocks; only where ``capabilities.v2``."""
        raise InternalError(f'backend "{self.name}" does not advertise v2 capability')

    def transcribe(
        self,
        prepared: Prepared[TranscribeJob],  # noqa: ARG002  # for those that can
    ) -> AbstractAsyncContextManager[EventStream[TokenEventV2]]:
        """Write speech down; only where ``capabilities.transcribe``."""
        raise InternalError(f'backend "{self.name}" does not transcribe')

    def append(
        self,
        prepared: Prepared[TranscribeJob],  # noqa: ARG002  # for those that can
        n_bytes: int,  # noqa: ARG002
        *,
        is_last: bool,  # noqa: ARG002
    ) -> None:
        """Tell that there is more of an open medium; no matter if the job runs already.

        Args:
            prepared: whose medium it is.
            n_bytes: that its file has by now, in all.
            is_last: nothing more will come.
        """
        raise InternalError(f'backend "{self.name}" does not transcribe')

    async def embed(
        self,
        prepared: Prepared[EmbedJob],  # noqa: ARG002  # for those that can
    ) -> EmbedResult:
        """Embed texts; only where ``capabilities.embed``. Cancelling drops the job."""
        raise EmbedUnsupportedError

    async def rerank(
        self,
        prepared: Prepared[RerankJob],  # noqa: ARG002  # for those that can
    ) -> RerankResult:
        """Score documents; only where ``capabilities.rerank``. Cancelling drops the job."""
        raise RerankUnsupportedError
