"""What the readers of answers have in common: decoding, counts and the end."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from inferd.backend.job import GenerateJob
from inferd.config.kinds.remote import RemoteSettings
from inferd.ipc.worker import Ended
from inferd.wire.responses import StopReason, Usage
from inferd.worker.remote.api import Piece
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.generic_writer import GenericWriter

_MAX_TOKENS: Final = 2**31 - 1
T = TypeVar("T")


class Counts(NamedTuple):
    """Tokens as a remote counts them; ``None`` for what it does not say."""

    prompt: int | None = None
    answer: int | None = None
    cached: int | None = None


class AnswerBase(ABC):
    """The reader of one answer, but for the form of its events.

    Args:
        settings: of the backend.
        ticket: of the job.
        job: that is answered.
        prompt_tokens: estimated, for a server that counts none.
    """

    def __init__(
        self,
        settings: RemoteSettings,
        ticket: int,
        job: GenerateJob,
        prompt_tokens: int,
    ) -> None:
        self._settings = settings
        self._ticket = ticket
        self._prompt_tokens = prompt_tokens
        self._writer = GenericWriter(job)
        self._counts = Counts()
        self._stop_reason: StopReason | None = None
        self._n_calls = 0
        self.is_over = False
        """Whether nothing more is expected."""

    @property
    def n_pieces(self) -> int:
        """Parts of reasoning, text and calls so far, those that are written later included."""
        return self._writer.n_pieces

    @abstractmethod
    def read(self, data: bytes) -> Sequence[Piece]:
        """Read the data of an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """

    def finish(self) -> tuple[Sequence[Piece], Ended]:
        """Return the last pieces and the end, when the answer has ended.

        Raises:
            RemoteError: it ended in its middle.
        """
        reason = self._stop_reason
        if reason is None:
            raise ended_in_its_middle()
        pieces = self._writer.finish()
        complete = self._writer.is_structure_complete(was_cut=reason == "length")
        return pieces, Ended(
            ticket=self._ticket,
            stop_reason=reason,
            usage=self._usage(),
            structure_complete=complete,
        )

    def _check_model(self, model: str | None) -> None:
        expected = self._settings.expect_model
        if expected is not None and model and model != expected:
            raise RemoteError(
                f"the remote answers with another model, {quote(model)!r}"
            )

    def _write(
        self, *, thought: str | None = None, text: str | None = None
    ) -> list[bytes]:
        """Write parts of an answer, as far as they have something."""
        pieces = self._writer.reason(thought) if thought else []
        return [*pieces, *self._writer.write(text)] if text else pieces

    def _write_call(
        self, name: str, arguments: msgspec.Raw, token_ids: Sequence[int] = ()
    ) -> None:
        """Write a call that has come whole."""
        self._writer.call(self._n_calls, name, bytes(arguments).decode(), token_ids)
        self._n_calls += 1

    def _usage(self) -> Usage:
        """Return the remote's counts as far as they can be, else what was counted here."""
        most = self._settings.n_ctx or _MAX_TOKENS
        counts = self._counts
        prompt = _plausible(counts.prompt, self._prompt_tokens, most)
        is_counted = _is_count(counts.prompt) and _is_count(counts.answer)
        return Usage(
            prompt,
            _plausible(counts.answer, self._writer.n_pieces, most - prompt),
            _plausible(counts.cached, 0, prompt),
            is_estimate=UNSET if is_counted else True,
        )


def ended_in_its_middle() -> RemoteError:
    """Make the error of an answer without an end."""
    return RemoteError("the remote's answer ended in its middle")


def decode_part(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode a part of an answer.

    Raises:
        RemoteError: it is none.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RemoteError(
            "the remote sent something that is not part of an answer"
        ) from None


def _is_count(count: int | None) -> bool:
    return count is not None and count >= 0


def _plausible(count: int | None, otherwise: int, most: int) -> int:
    return min(otherwise if count is None or count < 0 else count, most)
