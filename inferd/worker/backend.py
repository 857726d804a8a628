"""The interface that a backend implements inside its worker."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from inferd.backend.job import Job
from inferd.ipc.worker import (
    AudioNeeded,
    CpuVariant,
    Embedded,
    Failed,
    Loaded,
    Loading,
    Paused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.memory.plan import MemoryDemand, MemoryShare

LoadReporter = Callable[[Loading | CpuVariant], None]
"""Reports the phases of the load to the daemon; also a sign of life."""

StepOutcome = (
    Step
    | Embedded
    | Scored
    | Transcribed
    | TranscriptEnded
    | Paused
    | AudioNeeded
    | Failed
)
"""A result of a step."""


class LoadError(Exception):
    """The model cannot be served; the text is one line for the operator.

    Args:
        reason: one line for clients, which names no file.
        detail: the operator's line; empty if it is the same.
        is_broken_file: whether the content of a file is at fault: with the same file, no
            further attempt will succeed.
        is_changed_file: whether a file changed during the load, or something about it, as
            its number of names: another attempt checks what it is by then.
    """

    def __init__(
        self,
        reason: str,
        detail: str = "",
        *,
        is_broken_file: bool = False,
        is_changed_file: bool = False,
    ) -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail
        self.is_broken_file = is_broken_file
        self.is_changed_file = is_changed_file

    @classmethod
    def of_file(
        cls,
        path: Path,
        fault: str,
        *,
        kind: str = "model file",
        is_broken: bool = False,
        is_changed: bool = False,
    ) -> Self:
        """Describe what is wrong with a file; only the operator's line names it."""
        texts = (f"{kind}: {fault}", f"{kind} {path}: {fault}")
        return cls(*texts, is_broken_file=is_broken, is_changed_file=is_changed)


class RefusedError(Exception):
    """A job cannot be served; the text is one line for the client."""


class PromptOverflowError(Exception):
    """A prompt leaves no space for an answer.

    Attributes:
        prompt_tokens: the prompt's tokens.
        n_ctx: tokens that one request may take.
        at_least: whether the prompt may have more tokens than these.
    """

    def __init__(
        self, prompt_tokens: int, n_ctx: int, *, at_least: bool = False
    ) -> None:
        super().__init__(prompt_tokens, n_ctx, at_least)
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx
        self.at_least = at_least


class PreparedJob(ABC):
    """A tokenised job that fits; each backend extends it."""

    @property
    @abstractmethod
    def prompt_tokens(self) -> int:
        """Tokens of the rendered prompt, or of all texts."""

    @property
    def open_thought(self) -> str:
        """The marker of the reasoning that the prompt ends inside, if any."""
        return ""

    def close(self) -> None:  # noqa: B027  # optional: for those that hold descriptors
        """Release resources: the job will not be started. Called once, by any thread."""


class WorkerBackend(ABC):
    """A model library as the worker's threads see it.

    ``load``, ``start``, ``pause``, ``resume``, ``drop``, ``append_audio`` and ``step`` are
    called by the decoding thread alone, ``prepare`` by two others, of which one prepares
    only jobs with a grammar; ``interrupt`` and ``token_table`` by any thread.
    """

    def verify(self, report: LoadReporter) -> None:  # noqa: B027  # optional
        """Compare the digests of the files, before ``predict``, unless for an ``outline``.

        Raises:
            LoadError: the model cannot be served.
        """

    def predict(self, report: LoadReporter) -> MemoryDemand | None:  # noqa: ARG002  # optional
        """Predict the machine's memory that ``load`` takes; ``None`` if next to nothing.

        Raises:
            LoadError: the model cannot be served.
        """
        return None

    @abstractmethod
    def load(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Load the model and decode a few tokens with it; return its capabilities.

        Args:
            report: called with each phase.
            share: the memory granted; if ``None``, it takes what it would demand.

        Raises:
            LoadError: the model cannot be served.
        """

    def outline(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Return what ``load`` would, from the headers of the files, without loading them.

        The capabilities count; the rest may be empty. The default loads the model. What is
        read was not verified: that would take a minute for the files of large models.

        Raises:
            LoadError: the model cannot be served.
        """
        return self.load(report, share)

    @abstractmethod
    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Render and tokenise a job's input and compile the constraint on its answer.

        Args:
            job: to prepare.
            fds: descriptors of its media, in their order. The prepared job owns them, and
                closes them at the end of its run or when it is itself closed; if this
                raises, the caller closes them.

        Raises:
            RefusedError: the job cannot be served as it stands.
            PromptOverflowError: its prompt does not fit.
        """

    @abstractmethod
    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Give a job a slot; one is free, since no more jobs run than there are slots."""

    @abstractmethod
    def pause(self, ticket: int) -> None:
        """Pause a job, and free its slot, as soon as possible.

        One of the next steps then returns ``Paused``, unless the job ends before. An
        unknown job has ended. Its state is kept, within the memory granted for it, or is
        recomputed.
        """

    @abstractmethod
    def resume(self, ticket: int) -> None:
        """Resume a paused job; a slot is free. An unknown job has ended."""

    @abstractmethod
    def drop(self, ticket: int) -> None:
        """Drop a job that was started, and free its slot, if it has one."""

    @abstractmethod
    def step(self) -> list[StepOutcome]:
        """Advance every running job; takes up to a second or so, or waits as scripted."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether a step would do anything."""

    @property
    def leaves_cores(self) -> bool:
        """Whether steps leave cores to the other threads; constant once it is loaded."""
        return False

    def append_audio(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:  # noqa: B027  # optional: for those that take audio
        """Note that there is more of a job's open medium.

        Args:
            ticket: of a job that was started; unknown if it has ended.
            n_bytes: length of the medium's file.
            is_last: whether it is complete.
        """

    def token_table(self) -> bytes:
        """Return the vocabulary that grammars are compiled against; empty if there is none.

        Called by a thread of its own, and so may block.
        """
        return b""

    def interrupt(self, ticket: int) -> None:  # noqa: B027  # optional: most steps are short
        """Abort the current step if a prompt or audio of this job makes it long.

        Any thread may call.
        """
