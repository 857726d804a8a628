"""The interface that a backend implements inside its worker."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from inferd.fit import Demand, Share
from inferd.ipc import (
    Embedded,
    Failed,
    Loaded,
    Loading,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
    Variant,
)
from inferd.job import Job

Report = Callable[[Loading | Variant], None]
"""Tell the daemon how far the load is; also a sign of life."""

Outcome = Step | Embedded | Scored | Transcribed | TranscriptEnded | Failed
"""What came of a step."""


class LoadError(Exception):
    """The model cannot be served; its text is one line for the operator.

    Args:
        reason: one line for clients, which names no file.
        whole: the operator's line; empty where it is the same.
    """

    def __init__(self, reason: str, whole: str = "") -> None:
        super().__init__(whole or reason)
        self.reason = reason
        self.whole = whole

    @classmethod
    def of_file(cls, path: Path, fault: str, *, kind: str = "model file") -> Self:
        """Say what is wrong with a file, and to the operator alone which one it is."""
        return cls(f"{kind}: {fault}", f"{kind} {path}: {fault}")


class RefusedError(Exception):
    """A job cannot be served; its text is one line for the client."""


class PromptOverflowError(Exception):
    """A prompt leaves no room for an answer.

    Attributes:
        prompt_tokens: its tokens.
        n_ctx: tokens that one request may take.
        at_least: whether it may have more than these.
    """

    def __init__(
        self, prompt_tokens: int, n_ctx: int, *, at_least: bool = False
    ) -> None:
        super().__init__(prompt_tokens, n_ctx, at_least)
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx
        self.at_least = at_least


class PreparedJob(ABC):
    """A job whose texts fit; what else it holds is its backend's affair."""

    @property
    @abstractmethod
    def prompt_tokens(self) -> int:
        """Tokens of the rendered prompt, or of all texts."""

    @property
    def open_thought(self) -> str:
        """The marker of the thought that the prompt ends inside, if any."""
        return ""

    def close(self) -> None:  # noqa: B027  # optional: for those that hold descriptors
        """Let go of it: it will not be started. Called once, by any thread."""


class WorkerBackend(ABC):
    """A model library as the worker's threads see it.

    ``load``, ``start``, ``drop`` and ``step`` are called by the decoding thread alone,
    ``prepare`` by two others, of which one prepares all that is held to a grammar, and
    nothing else; ``interrupt`` and ``words`` by any.
    """

    def predict(self, report: Report) -> Demand | None:  # noqa: ARG002  # optional
        """Tell what ``load`` will take of the machine's memory; ``None`` for nothing much.

        Raises:
            LoadError: it cannot be served.
        """
        return None

    @abstractmethod
    def load(self, report: Report, share: Share | None = None) -> Loaded:
        """Load the model and decode a few tokens with it; say what it can do.

        Args:
            report: told how far it is.
            share: of the memory; without one it takes what it would demand.

        Raises:
            LoadError: it cannot be served.
        """

    @abstractmethod
    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Render and tokenise what a job reads and compile what constrains its answer.

        Args:
            job: to be served.
            fds: of the files with its media, in their order. They are the prepared
                job's to close, at the end of its run or when it is itself closed; where
                this raises, the caller closes them.

        Raises:
            RefusedError: the job cannot be served as it stands.
            PromptOverflowError: its prompt does not fit.
        """

    @abstractmethod
    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Give a job a slot; there is one, since no more jobs run than there are slots."""

    @abstractmethod
    def drop(self, ticket: int) -> None:
        """Free a job's slot, if it has one."""

    @abstractmethod
    def step(self) -> list[Outcome]:
        """Advance every running job; takes up to a second or so, or waits as scripted."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether a step would do anything."""

    def append(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:  # noqa: B027  # optional: for those that take sound
        """Note that there is more of a job's open medium; called as ``start`` is.

        Args:
            ticket: of a job that was started; one that is over is none any more.
            n_bytes: that its file has, in all.
            is_last: nothing more will come.
        """

    def words(self) -> bytes:
        """Give the vocabulary that grammars are tried for; empty where there is none.

        Called by a thread of its own: it may wait for it.
        """
        return b""

    def interrupt(self, ticket: int) -> None:  # noqa: B027  # optional: most steps are short
        """Cut short the step under way if this job is the reason why it takes long."""
