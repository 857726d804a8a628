"""The kind ``mock``: a script in a worker, without a model."""

from typing import Annotated, Final

from msgspec import Meta

from inferd.config.kinds.kind import (
    BackendKind,
    DoctorPolicy,
    InWorker,
    MemoryPolicy,
    Sandbox,
    no_contradiction,
    no_credential,
    no_files,
    no_rungs,
)
from inferd.config.kinds.model_paths import FindModel
from inferd.config.settings import Natural, WorkerSettings


class MockSettings(WorkerSettings, frozen=True, tag="mock", tag_field="kind"):
    """A backend without a model that sends fixed tokens, for tests of clients and inferd."""

    tokens: tuple[str, ...] = ("mock-response",)
    """The tokens of every answer, each sent in a frame of its own."""
    vision: bool = False
    """Accept images."""
    audio: bool = False
    """Accept audio of 16 kHz."""
    transcribe: bool = False
    """Transcribe audio: every second of it yields the next token."""
    prepare_delay_ms: Natural = 0
    """Milliseconds that preparing a request takes."""
    token_delay_ms: Natural = 0
    """Milliseconds before every token."""
    die_after_tokens: Natural = 0
    """Tokens of one answer after which the worker sends itself ``die_by``; 0 for never."""
    die_by: Annotated[str, Meta(pattern=r"^SIG(KILL|SEGV|ABRT|TERM|STOP)\Z")] = (
        "SIGKILL"
    )
    """The signal that the worker sends itself; SIGSTOP makes it hang instead of die."""
    die_at_load: bool = False
    """Die while loading."""
    load_delay_ms: Natural = 0
    """Milliseconds that loading takes."""
    memory_mb: Natural = 0
    """MiB that count as its memory; none is taken."""


def _locate(settings: MockSettings, _: FindModel) -> MockSettings:
    return settings


def _without_hashes(settings: MockSettings) -> MockSettings:
    return settings


def _memory(settings: MockSettings) -> MemoryPolicy:
    return MemoryPolicy.DEMANDED if settings.memory_mb else MemoryPolicy.NONE


def _sandbox(_settings: MockSettings) -> Sandbox:
    return Sandbox.CPU


MOCK: Final = BackendKind(
    settings=MockSettings,
    served_by=InWorker(
        program="inferd.worker.mock",
        sandbox=_sandbox,
        memory=_memory,
        credential=no_credential,
    ),
    extra=None,
    doctor=DoctorPolicy(files=no_files, without_hashes=_without_hashes, needs=[]),
    file_format=None,
    contradiction=no_contradiction,
    rungs=no_rungs,
    locate=_locate,
)
