"""The events of an answer in a chat as pieces and an end.

Source: ``docs/chats.md``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.job import GenerateJob, Turn
from inferd.config.kinds.inferd import InferdSettings
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.responses import StopReason
from inferd.worker.remote.api import Piece
from inferd.worker.remote.conversation.reader import AnswerBase, Counts, decode_part
from inferd.worker.remote.errors import ReportedError, error_in, error_of
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.kept_chats.places import ChatPlace, ChatPlaces

_COMPLETE: Final = "complete"
_LENGTH: Final = "max_tokens"
_BUSY: Final = frozenset({"queue_full", "chat_limit", "rate_limit_exceeded"})
_BY_REQUEST: Final = frozenset({"context_length_exceeded", "content_refused"})


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class _Message(Struct):
    id: str
    chat_id: str
    state: str
    finish_reason: str | None = None
    usage: _Usage | None = None


class _Event(Struct):
    event_type: str
    text: str = ""
    message: _Message | str | None = None
    error: str = ""
    code: str = ""


class _Failure(Struct):
    code: str = ""
    message: str = ""


class _FailureBody(Struct):
    error: _Failure


_EVENT: Final = msgspec.json.Decoder(_Event)
_BODY: Final = msgspec.json.Decoder(_FailureBody)


class ChatEventReader(AnswerBase):
    """Reads the events of one answer, and remembers where its conversation goes on.

    Args:
        places: where conversations go on.
        settings: of the backend.
        ticket: of the job.
        job: that is answered.
        prompt_tokens: estimated.
    """

    def __init__(
        self,
        places: ChatPlaces,
        settings: InferdSettings,
        ticket: int,
        job: GenerateJob,
        prompt_tokens: int,
    ) -> None:
        super().__init__(settings, ticket, job, prompt_tokens)
        self._places = places
        self._owner, self._turns = job.owner, job.turns
        self._texts: list[str] = []

    def read(self, data: bytes) -> Sequence[Piece]:
        """Read an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is none, or reports that the answer failed.
        """
        event = decode_part(_EVENT, data)
        match event:
            case _Event(event_type="token"):
                self._texts.append(event.text)
                return self._write(text=event.text)
            case _Event(event_type="thinking"):
                return self._write(thought=event.text)
            case _Event(event_type="message", message=_Message() as message):
                self._end(message)
            case _Event(event_type="error"):
                raise _failure_of(event.code, event.error)
            case _:  # where it waits, and what tools of that side do
                pass
        return []

    def _end(self, message: _Message) -> None:
        if message.state != _COMPLETE:
            raise RemoteError(f"the remote's answer is {quote(message.state)}")
        reason: StopReason = "length" if message.finish_reason == _LENGTH else "end"
        self._stop_reason = reason
        self.is_over = True
        if (usage := message.usage) is not None:
            self._counts = Counts(
                usage.input_tokens, usage.output_tokens, usage.cached_tokens
            )
        answer = Turn("assistant", "".join(self._texts))
        place = ChatPlace(message.chat_id, message.id)
        self._places.add(self._owner, [*self._turns, answer], place)


def chat_error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError | None:
    """Make the error of an answer that is not 200; ``None`` if it is none of chats."""
    try:
        failure = _BODY.decode(body).error
    except DECODE_FAILURES:
        return None
    if failure.code in _BUSY or failure.code in _BY_REQUEST:
        return _failure_of(failure.code, failure.message)
    return error_of(status, headers, now, ReportedError(failure.message))


def chat_error_in(data: bytes) -> RemoteError | None:
    """Make the error that an answer reports although its status was 200."""
    try:
        event = _EVENT.decode(data)
    except DECODE_FAILURES:
        return None
    return _failure_of(event.code, event.error) if event.event_type == "error" else None


def _failure_of(code: str, text: str) -> RemoteError:
    if code in _BUSY:
        return RemoteError(f"the remote is busy: {quote(text)}", is_limit=True)
    if code in _BY_REQUEST:
        return RemoteError(f"the remote refuses it: {quote(text)}", by_request=True)
    return error_in(ReportedError(text))
