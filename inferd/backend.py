"""The daemon's interface to an engine, and the events that its streams yield.

A backend may be a worker process with llama.cpp, a remote service, or a script; what
stands here is all that the server knows of it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from inferd.errors import EmbedUnsupportedError, InternalError
from inferd.job import GenerateJob
from inferd.wire.responses import StopReason, Usage


class AcceleratorKind(StrEnum):
    """What the engine was built for."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    ROCM = "rocm"


class AcceleratorInfo(Struct, frozen=True, kw_only=True):
    """The accelerator an engine uses."""

    kind: AcceleratorKind = AcceleratorKind.CPU
    gpu_layers: int = 0
    """Layers on the accelerator; 0 means that the CPU does all, whatever ``kind`` says."""


class BackendCapabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do."""

    generate: bool = True
    v2: bool = False
    vision: bool = False
    audio: bool = False
    video: bool = False
    tools: bool = False
    thinking: bool = False
    embed: bool = False
    accelerator: AcceleratorInfo = AcceleratorInfo()
    n_ctx: int = 0
    """Tokens one request may take, prompt and answer together; 0 where it has no bound."""
    model: str = ""
    """The model's own name."""


class Token(Struct, frozen=True):
    """A piece of the answer, as text."""

    text: str


class Done(Struct, frozen=True, kw_only=True):
    """The end of a stream that did not fail."""

    stop_reason: StopReason
    usage: Usage


TokenEvent = Token | Done


class Text(Struct, frozen=True):
    """A piece of the visible answer."""

    delta: str


class Thinking(Struct, frozen=True):
    """A piece of the reasoning trace."""

    delta: str


class ToolUse(Struct, frozen=True, kw_only=True):
    """A whole tool call."""

    tool_call_id: str
    name: str
    input: object


class UsageV2(Struct, frozen=True):
    """What a v2 generation cost, in tokens."""

    input_tokens: int
    output_tokens: int


StopReasonV2 = Literal[
    "end_turn", "max_tokens", "tool_use", "stop_sequence", "cancelled", "error"
]


class DoneV2(Struct, frozen=True, kw_only=True):
    """The end of a v2 stream that did not fail."""

    stop_reason: StopReasonV2
    usage: UsageV2


TokenEventV2 = Text | Thinking | ToolUse | DoneV2


class EmbedResult(Struct, frozen=True, kw_only=True):
    """One vector for each input, in order, all of length ``dimensions``."""

    embeddings: list[list[float]]
    dimensions: int
    model: str
    input_tokens: int


class Prepared(Struct, frozen=True, kw_only=True):
    """A job whose prompt a backend has rendered, counted and found to fit."""

    ticket: int
    """The backend's own number for the job."""
    job: GenerateJob
    prompt_tokens: int


TokenStream = AsyncIterator[Sequence[TokenEvent]]
"""Batches of events, none empty; the last event of the last batch is ``Done``."""


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

    @abstractmethod
    def prepare(self, job: GenerateJob) -> AbstractAsyncContextManager[Prepared]:
        """Render and count the prompt of a job; while inside, the backend remembers it.

        May be called before it is the job's turn to run. Waits for a backend that is
        only restarting.

        Raises:
            GenerateError: the job cannot be served, or the backend is out of service.
        """

    @abstractmethod
    def generate(self, prepared: Prepared) -> AbstractAsyncContextManager[TokenStream]:
        """Run a prepared job.

        Raises:
            GenerateError: before the first event or, as ``BackendUnavailableError``, in
                the middle of the stream when the engine died.
        """

    def generate_v2(
        self,
        prepared: Prepared,  # noqa: ARG002  # for those that can
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[TokenEventV2]]]:
        """Run a prepared job with typed blocks; only where ``capabilities.v2``."""
        raise InternalError(f'backend "{self.name}" does not advertise v2 capability')

    async def embed(
        self,
        texts: Sequence[str],  # noqa: ARG002  # for those that can
    ) -> EmbedResult:
        """Embed texts; only where ``capabilities.embed``."""
        raise EmbedUnsupportedError
