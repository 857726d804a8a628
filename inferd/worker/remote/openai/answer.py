"""A streamed answer as pieces and an end; others are an error."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from inferd.backend.job import GenerateJob
from inferd.ipc.worker import Ended
from inferd.wire.responses import StopReason, Usage
from inferd.worker.remote.api import Piece, TokenPiece
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.generic_writer import GenericWriter
from inferd.worker.remote.openai.errors import error_in_answer
from inferd.worker.remote.openai.logprobs import ChosenToken, LogprobReader

DONE: Final = b"[DONE]"
_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_calls": "end",
    "function_call": "end",
    "length": "length",
}
_MAX_TOKENS: Final = 2**31 - 1
_NULL: Final = msgspec.Raw(b"null")


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int = 0
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    reasoning: str | None = None
    """As vLLM and Ollama name it."""
    reasoning_content: str | None = None
    """As llama-server, SGLang and DeepSeek do; some servers send both."""
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Logprobs(Struct):
    content: list[ChosenToken] | None = None


class _Choice(Struct):
    index: int = 0
    logprobs: _Logprobs | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _CachedTokens(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw = _NULL


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class AnswerReader:
    """Reads the events of one answer.

    Args:
        ticket: of the job.
        job: that is answered.
        expect_model: the name that the model must have; ``None`` for any.
        prompt_tokens: estimated, for a server that counts none.
        n_ctx: of the model, which no counts exceed; ``None`` if it is not known.
    """

    def __init__(
        self,
        ticket: int,
        job: GenerateJob,
        *,
        expect_model: str | None,
        prompt_tokens: int,
        n_ctx: int | None = None,
    ) -> None:
        self._ticket = ticket
        self._expect_model = expect_model
        self._prompt_tokens = prompt_tokens
        self._most = n_ctx or _MAX_TOKENS
        self._writer = GenericWriter(job)
        self._logprobs = (
            LogprobReader(job.n_alternatives) if job.n_alternatives else None
        )
        self._usage: _Usage | None = None
        self._finish_reason: str | None = None
        self._is_done = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected."""
        return self._is_done

    @property
    def n_pieces(self) -> int:
        """Parts of reasoning, text and calls so far, those that are written later included."""
        return self._writer.n_pieces

    def read(self, data: bytes) -> Sequence[Piece]:
        """Read the data of an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """
        if data == DONE:
            self._is_done = True
            return []
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RemoteError(
                "the remote sent something that is not part of an answer"
            ) from None
        if chunk.error != _NULL:
            raise error_in_answer(data)
        self._check_model(chunk.model)
        if chunk.usage is not None:
            self._usage = chunk.usage
        return [
            piece
            for choice in chunk.choices
            if choice.index == 0
            for piece in self._choice(choice)
        ]

    def finish(self) -> tuple[Sequence[Piece], Ended]:
        """Return the last pieces and the end, when the answer has ended.

        Raises:
            RemoteError: it ended in its middle.
        """
        reason = self._finish_reason
        if reason is None:
            raise RemoteError("the remote's answer ended in its middle")
        if reason == "content_filter":
            raise RemoteError(
                "the remote's content filter withholds the rest", by_request=True
            )
        stop_reason = _STOP_REASONS.get(reason)
        if stop_reason is None:
            raise RemoteError(f"the remote ended with the reason {quote(reason)!r}")
        pieces = self._writer.finish()
        was_cut = stop_reason == "length"
        return pieces, Ended(
            ticket=self._ticket,
            stop_reason=stop_reason,
            usage=self._counted(),
            structure_complete=self._writer.is_structure_complete(was_cut=was_cut),
        )

    def _text(self, text: str, logprobs: _Logprobs | None) -> list[Piece]:
        tokens: list[TokenPiece] = []
        if self._logprobs is not None:
            told = logprobs or _Logprobs()
            tokens = self._logprobs.read(text, told.content or ())
        if tokens:
            return self._writer.write_tokens(tokens)
        return [*self._writer.write(text)] if text else []

    def _choice(self, choice: _Choice) -> list[Piece]:
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason
        delta = choice.delta
        if delta is None:
            return []
        pieces: list[Piece] = []
        if reasoning := delta.reasoning_content or delta.reasoning:
            pieces += self._writer.reason(reasoning)
        pieces += self._text(delta.content or delta.refusal or "", choice.logprobs)
        for call in delta.tool_calls or ():
            function = call.function or _Function()
            self._writer.call(call.index, function.name or "", function.arguments or "")
        return pieces

    def _check_model(self, model: str | None) -> None:
        if self._expect_model is None or not model or model == self._expect_model:
            return
        raise RemoteError(f"the remote answers with another model, {quote(model)!r}")

    def _counted(self) -> Usage:
        """Return the remote's counts as far as they can be, else what was counted here."""
        usage = self._usage or _Usage()
        most = self._most
        prompt_tokens = _plausible(usage.prompt_tokens, self._prompt_tokens, most)
        n_pieces = self._writer.n_pieces
        details = usage.prompt_tokens_details or _CachedTokens()
        counts = (usage.prompt_tokens, usage.completion_tokens)
        is_counted = all(each is not None and each >= 0 for each in counts)
        return Usage(
            prompt_tokens,
            _plausible(usage.completion_tokens, n_pieces, most - prompt_tokens),
            _plausible(details.cached_tokens, 0, prompt_tokens),
            is_estimate=UNSET if is_counted else True,
        )


def _plausible(count: int | None, otherwise: int, most: int) -> int:
    return min(otherwise if count is None or count < 0 else count, most)
