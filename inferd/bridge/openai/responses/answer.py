"""The answer to a request for a response: its events, or all of it."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.openai.responses.output import Fields, ItemEnd, Output
from inferd.bridge.translation import sse
from inferd.bridge.translation.cost import AnswerCost
from inferd.bridge.translation.endings import stop_reason
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import BlockFrame, UsageV2

_CODES: Final = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponseForm(Struct, frozen=True, kw_only=True):
    """What a request says of the form of its answer."""

    request_id: str
    created_s: int
    stated: dict[str, object]
    """Fields of the request, which responses repeat."""
    n_alternatives: int | None = None
    """Alternatives of each token; ``None`` for no log probabilities."""
    allows_one_call: bool = False


class ResponseAnswer:
    """The events of a response, and all of it."""

    def __init__(self, form: ResponseForm) -> None:
        self._form = form
        self._stem = form.request_id.removeprefix("req_")
        self._output = Output(self._stem, form.n_alternatives)
        self._cost = AnswerCost()
        self._n_events = 0
        self._done: ClientBlocksDone | None = None
        self._status = "in_progress"

    @property
    def has_enough(self) -> bool:
        """Whether the one call that is wanted has come."""
        return self._form.allows_one_call and self._output.has_call

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt and the answer; of one that was cut, those that have come."""
        return self._cost.n_tokens

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; yield the events that follow from it.

        Raises:
            BridgeError: the answer ends without being complete.
        """
        self._cost.take(frame)
        match frame:
            case BlockFrame() if not self.has_enough:
                yield from self._begin()
                yield from map(self._event, self._output.take(frame))
            case ClientBlocksDone():
                reason = stop_reason(frame, was_enough=self.has_enough)
                yield from self._begin()
                is_cut = reason == "max_tokens"
                status: ItemEnd = "incomplete" if is_cut else "completed"
                yield from map(self._event, self._output.close(status))
                self._done, self._status = frame, status
            case _:
                pass

    def end(self) -> Iterator[bytes]:
        """Yield the event that ends a stream."""
        yield self._state(self._status)

    def whole(self) -> bytes:
        """Return the whole response."""
        return msgspec.json.encode(self._response())

    def failure_event(self, failure: BridgeError) -> bytes:
        """Return the event that ends a stream that fails, and those that begin it."""
        begun = b"".join(self._begin())
        self._status = "failed"
        code = _CODES.get(failure.status, "server_error")
        error = {"code": code, "message": str(failure)}
        return begun + self._state("failed", error=error)

    def _begin(self) -> Iterator[bytes]:
        """Yield the first events, once."""
        if not self._n_events:
            yield self._state("created")
            yield self._state("in_progress")

    def _state(self, name: str, **fields: object) -> bytes:
        """Return an event that has the response."""
        response = {**self._response(), **fields}
        return self._event({"type": f"response.{name}", "response": response})

    def _event(self, fields: Fields) -> bytes:
        """Return an event, with its number."""
        numbered = {**fields, "sequence_number": self._n_events}
        self._n_events += 1
        return sse.event(msgspec.json.encode(numbered), str(fields["type"]))

    def _response(self) -> Fields:
        """Return the response as far as it is known."""
        stated = self._form.stated
        backend = self._done.backend if self._done else ""
        is_cut = self._status == "incomplete"
        return {
            "id": f"resp_{self._stem}",
            "object": "response",
            "created_at": self._form.created_s,
            "status": self._status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            **stated,
            "model": stated["model"] or backend,
            "output": self._output.items,
            "usage": _usage(self._done.usage) if self._done else None,
        }


def _usage(usage: UsageV2) -> Fields:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
