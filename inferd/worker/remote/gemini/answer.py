"""A streamed answer of the Gemini API as pieces and an end.

Source: ``google.genai.types.GenerateContentResponse`` of the package ``google-genai``, whose
fields are in camel case on the wire. An answer has no mark at its end: its last event has a
``finishReason``, and then the connection ends.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.wire.responses import StopReason
from inferd.worker.remote.conversation.reader import AnswerBase, Counts, decode_part
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.gemini.errors import error_in_answer

_STOP_REASONS: Final[dict[str, StopReason]] = {"STOP": "end", "MAX_TOKENS": "length"}
_FILTERS: Final = frozenset(
    {
        *(
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
        ),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        *("ESCALATION", "MODEL_ARMOR"),
    }
)
"""``google.genai.types.FinishReason``: those of what is withheld."""
_NULL: Final = msgspec.Raw(b"null")
_NO_ARGUMENTS: Final[dict[str, msgspec.Raw]] = {}


class _Call(Struct):
    name: str
    args: dict[str, msgspec.Raw] | None = None


class _Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None


class _Content(Struct):
    parts: list[_Part] | None = None


class _Candidate(Struct, rename="camel"):
    index: int = 0
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    error: msgspec.Raw = _NULL


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class GeminiReader(AnswerBase):
    """Reads the events of one answer."""

    def read(self, data: bytes) -> Sequence[bytes]:
        """Read the data of an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """
        chunk = decode_part(_CHUNK, data)
        if chunk.error != _NULL:
            raise error_in_answer(data)
        self._check_model(chunk.model_version)
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason:
            reason = quote(feedback.block_reason)
            raise RemoteError(
                f"the remote's content filter refuses the prompt ({reason})",
                by_request=True,
            )
        self._count(chunk.usage_metadata)
        return [
            piece
            for candidate in chunk.candidates or ()
            if candidate.index == 0
            for piece in self._read_candidate(candidate)
        ]

    def _read_candidate(self, candidate: _Candidate) -> list[bytes]:
        pieces: list[bytes] = []
        content = candidate.content or _Content()
        for part in content.parts or ():
            if (call := part.function_call) is not None:
                arguments = msgspec.json.encode(call.args or _NO_ARGUMENTS)
                self._write_call(call.name, msgspec.Raw(arguments))
            elif part.thought:
                pieces += self._write(thought=part.text)
            else:
                pieces += self._write(text=part.text)
        if candidate.finish_reason:
            self._end(candidate.finish_reason)
        return pieces

    def _count(self, usage: _Usage | None) -> None:
        """Take counts over; those of a later event stand for the whole answer."""
        if usage is None:
            return
        answer = usage.candidates_token_count
        if usage.thoughts_token_count is not None:
            answer = (answer or 0) + usage.thoughts_token_count
        self._counts = Counts(
            usage.prompt_token_count, answer, usage.cached_content_token_count
        )

    def _end(self, reason: str) -> None:
        if reason in _FILTERS:
            raise RemoteError(
                f"the remote's content filter withholds the rest ({reason})",
                by_request=True,
            )
        self._stop_reason = _STOP_REASONS.get(reason)
        if self._stop_reason is None:
            raise RemoteError(f"the remote ended with the reason {quote(reason)!r}")
