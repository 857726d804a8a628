"""A streamed answer of Ollama, lines of JSON, as pieces and an end."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.wire.responses import StopReason
from inferd.worker.remote.conversation.reader import AnswerBase, Counts, decode_part
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.ollama.errors import error_in_answer

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "end",
    "": "end",
}
"""Old servers end without a reason, and some others with that of OpenAI's API."""
_NULL: Final = msgspec.Raw(b"null")
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")


class _Function(Struct):
    name: str
    arguments: dict[str, msgspec.Raw] | None = None


class _Call(Struct):
    function: _Function


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct):
    message: _Message | None = None
    model: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: msgspec.Raw = _NULL


_LINE: Final = msgspec.json.Decoder(_Line)


class OllamaReader(AnswerBase):
    """Reads the lines of one answer."""

    def read(self, data: bytes) -> Sequence[bytes]:
        """Read a line; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """
        line = decode_part(_LINE, data)
        if line.error != _NULL:
            raise error_in_answer(data)
        self._check_model(line.model)
        pieces = [] if line.message is None else self._read_message(line.message)
        if line.done:
            self._end(line)
        elif line.message is None:
            raise RemoteError("the remote sent something that is not part of an answer")
        return pieces

    def _read_message(self, message: _Message) -> list[bytes]:
        pieces = self._write(thought=message.thinking, text=message.content)
        for call in message.tool_calls or ():
            arguments = call.function.arguments
            raw = _NO_ARGUMENTS if not arguments else msgspec.Raw(_encoded(arguments))
            self._write_call(call.function.name, raw)
        return pieces

    def _end(self, line: _Line) -> None:
        reason = line.done_reason or ""
        self._stop_reason = _STOP_REASONS.get(reason)
        if self._stop_reason is None:
            raise RemoteError(f"the remote ended with the reason {quote(reason)!r}")
        # a prompt that was in the cache is not counted by all servers
        self._counts = Counts(line.prompt_eval_count or None, line.eval_count)
        self.is_over = True


def _encoded(arguments: dict[str, msgspec.Raw]) -> bytes:
    return msgspec.json.encode(arguments)
