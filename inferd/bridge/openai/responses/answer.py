"""The answer to a request for a response: its events, or all of it."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.openai.responses.output import Fields, ItemEnd, Output
from inferd.bridge.translation import sse
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.generated import GeneratedAnswer
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


class ResponseAnswer(GeneratedAnswer):
    """The events of a response, and all of it."""

    def __init__(self, form: ResponseForm) -> None:
        super().__init__(allows_one_call=form.allows_one_call)
        self._form = form
        self._stem = form.request_id.removeprefix("req_")
        self._output = Output(self._stem, form.n_alternatives)
        self._n_events = 0
        self._status = "in_progress"

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

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        yield from self._begin()
        yield from map(self._event, self._output.take(frame))

    def _close(self, reason: str) -> Iterator[bytes]:
        yield from self._begin()
        status: ItemEnd = "incomplete" if reason == "max_tokens" else "completed"
        yield from map(self._event, self._output.close(status))
        self._status = status

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
            # Clients made from OpenAI's document allow none, and no `null`.
            **({"usage": _usage(self._done.usage)} if self._done else {}),
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
