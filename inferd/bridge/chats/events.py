"""The events of an answer: what a reader who has read so far is to be sent; pure.

The id of an event says how much of the answer has been sent, so that no event has to be kept:
who comes back with it is sent the rest of the text, by any bridge that has it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from inferd.bridge.translation.failures import BridgeError, invalid
from inferd.bridge.translation.sse import CONTENT_TYPE, KEEP_ALIVE
from inferd.chats.documents import MessageDocument, message_document
from inferd.chats.records import FilterWord, KeptMessage, LeftOut, StoredCall

END: Final = "end"
"""Id of the last event."""
_ID: Final = re.compile(r"(\d{1,9})-(\d{1,9})-(\d{1,9})(?:-(\d{1,9}))?\Z")
_TEXTS: Final = {
    "aborted_by_worker": "the bridge that generated the answer was stopped before its end",
    "timeout": "the answer took too long",
}


class PendingEvent(Struct, frozen=True, kw_only=True):
    """Where an answer waits."""

    event_type: Literal["pending"] = "pending"
    queue_position: Annotated[int, Meta(ge=0)] = 0
    """1 for the next to run; 0 while it is started."""
    estimate_s: float | None = None
    phase: str = "queued"
    processed: int | None = None
    total: int | None = None


class TokenEvent(Struct, frozen=True, kw_only=True):
    """A part of the text, or of the reasoning."""

    event_type: Literal["token", "thinking"]
    text: str


class CallEvent(Struct, frozen=True, kw_only=True):
    """A call of a tool, or how it ended."""

    tool_call: StoredCall
    event_type: Literal["tool_call", "tool_result"] = "tool_call"


class SafetyEvent(Struct, frozen=True, kw_only=True):
    """What the filter has said of a prompt or an answer."""

    safe_prompt: str
    """A sentence for people."""
    word: FilterWord
    message: MessageDocument
    """The answer, as far as it is."""
    event_type: Literal["safe_prompt"] = "safe_prompt"


class ContextEvent(Struct, frozen=True, kw_only=True):
    """What the model was not shown."""

    context: LeftOut
    event_type: Literal["context"] = "context"


class MessageEvent(Struct, frozen=True, kw_only=True):
    """The end of an answer."""

    message: MessageDocument
    event_type: Literal["message"] = "message"


class FailureEvent(Struct, frozen=True, kw_only=True):
    """The end of an answer that failed."""

    error: str
    code: str
    message: MessageDocument | None = None
    event_type: Literal["error"] = "error"


class ChatEventStream:
    """The form of streams of events."""

    content_type = CONTENT_TYPE
    keep_alive = KEEP_ALIVE

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream of which no more can be read."""
        told = FailureEvent(error=str(failure), code=failure.reason.value)
        return f"data: {msgspec.json.encode(told).decode()}\n\n".encode()


class ReadSoFar(Struct, frozen=True, kw_only=True):
    """How much of an answer a reader has."""

    n_thinking: int = 0
    """Characters of the reasoning."""
    n_text: int = 0
    n_calls: int = 0
    n_results: int = 0
    """Of the calls, those whose end the reader knows, and those before it that nobody makes."""
    has_context: bool = False
    n_words: int = 0
    """Of the filter."""
    pending: PendingEvent | None = None
    """The latest word on where it waits."""
    is_over: bool = False

    @property
    def event_id(self) -> str:
        """The id of the event that a reader has read so far."""
        if self.is_over:
            return END
        read = f"{self.n_thinking}-{self.n_text}-{self.n_calls}"
        return f"{read}-{self.n_results}" if self.n_results else read


def read_so_far(event_id: str) -> ReadSoFar:
    """Return what a reader has who names the last event; an empty id is none.

    Raises:
        BridgeError: it is no id of an event.
    """
    if not event_id:
        return ReadSoFar()
    if event_id == END:
        return ReadSoFar(is_over=True)
    found = _ID.match(event_id)
    if found is None:
        raise invalid("Last-Event-ID", "is no id of an event of an answer")
    n_thinking, n_text, n_calls, n_results = map(int, found.groups(default="0"))
    return ReadSoFar(
        n_thinking=n_thinking, n_text=n_text, n_calls=n_calls, n_results=n_results
    )


def events_since(
    so_far: ReadSoFar, message: KeptMessage, pending: PendingEvent | None = None
) -> Iterator[tuple[bytes, ReadSoFar]]:
    """Give the events that a reader lacks, each with what is read then.

    Args:
        so_far: what the reader has.
        message: the answer as it is now.
        pending: where it waits, if it does.
    """
    if so_far.is_over:
        return
    for event, after in _events(so_far, message, pending):
        so_far = after
        yield _line(event, after.event_id), after
    if not message.is_unfinished:
        after = msgspec.structs.replace(so_far, is_over=True)
        yield _line(_last(message), END), after


def _events(
    read: ReadSoFar, message: KeptMessage, pending: PendingEvent | None
) -> Iterator[tuple[Struct, ReadSoFar]]:
    details = message.details
    if message.is_unfinished and pending is not None and pending != read.pending:
        read = msgspec.structs.replace(read, pending=pending)
        yield pending, read
    if details.left_out is not None and not read.has_context:
        read = msgspec.structs.replace(read, has_context=True)
        yield ContextEvent(context=details.left_out), read
    for word in details.filter_words[read.n_words :]:
        read = msgspec.structs.replace(read, n_words=read.n_words + 1)
        text = word.reason or word.label or word.verdict
        document = message_document(message)
        yield SafetyEvent(safe_prompt=text, word=word, message=document), read
    if len(message.thinking) > read.n_thinking:
        more = message.thinking[read.n_thinking :]
        read = msgspec.structs.replace(read, n_thinking=len(message.thinking))
        yield TokenEvent(event_type="thinking", text=more), read
    if len(message.text) > read.n_text:
        more = message.text[read.n_text :]
        read = msgspec.structs.replace(read, n_text=len(message.text))
        yield TokenEvent(event_type="token", text=more), read
    yield from _call_events(read, details.calls)


def _call_events(
    read: ReadSoFar, calls: Sequence[StoredCall]
) -> Iterator[tuple[Struct, ReadSoFar]]:
    """Give the events of calls, and of their ends."""
    for call in calls[read.n_calls :]:
        read = msgspec.structs.replace(read, n_calls=read.n_calls + 1)
        yield CallEvent(tool_call=call), read
    for call in calls[read.n_results :]:
        if not call.has_ended:  # those that are made end in their order
            break
        read = msgspec.structs.replace(read, n_results=read.n_results + 1)
        if call.state != "told":
            yield CallEvent(tool_call=call, event_type="tool_result"), read


def _last(message: KeptMessage) -> Struct:
    document = message_document(message)
    if message.state in {"complete", "cancelled"}:
        return MessageEvent(message=document)
    failure = message.details.failure
    text = failure.message if failure else _TEXTS.get(message.state, message.state)
    code = failure.code if failure else message.state
    return FailureEvent(error=text, code=code, message=document)


def _line(event: Struct, event_id: str) -> bytes:
    return b"id: %b\ndata: %b\n\n" % (event_id.encode(), msgspec.json.encode(event))
