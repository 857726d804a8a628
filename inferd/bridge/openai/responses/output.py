"""The output items of a response, and the events by which they come."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from inferd.bridge.translation.logprobs import stated_logprobs
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, ToolCall

Fields = dict[str, object]
Kind = Literal["message", "reasoning"]
ItemEnd = Literal["completed", "incomplete"]


class Output:
    """Output items, one after the other.

    Args:
        stem: of the ids of items.
        n_alternatives: of each token that log probabilities tell; ``None`` for none at all.
    """

    def __init__(self, stem: str, n_alternatives: int | None) -> None:
        self._stem = stem
        self._n_alternatives = n_alternatives
        self.items: list[Fields] = []
        """Those that have ended."""
        self._open: Kind | None = None
        """The item that has not ended."""
        self._parts: list[str] = []
        """Its text."""
        self._logprobs: list[Fields] = []

    def take(self, frame: BlockFrame) -> Iterator[Fields]:
        """Take a block; yield its events."""
        match frame.block:
            case TextDelta(delta=text):
                yield from self._begin("message")
                logprobs = (
                    stated_logprobs(frame.logprobs, self._n_alternatives)
                    if self._n_alternatives is not None
                    else []
                )
                self._logprobs += logprobs
                yield self._text(text, logprobs=logprobs)
            case ThinkingDelta(delta=text):
                yield from self._begin("reasoning")
                yield self._text(text)
            case ToolCall() as call:
                yield from self.close()
                yield from self._call(call)

    def close(self, status: ItemEnd = "completed") -> Iterator[Fields]:
        """End the item that has begun, if there is one."""
        if self._open is None:
            return
        text = "".join(self._parts)
        part = self._part(text)
        yield self._part_event(f"{_text_of(self._open)}.done", **_without_type(part))
        yield self._part_event("content_part.done", part=part)
        item = self._item(status, [part])
        yield self._item_event("output_item.done", item)
        self.items.append(item)
        self._open = None
        self._parts.clear()
        self._logprobs = []

    # --- items ------------------------------------------------------------------------

    def _begin(self, kind: Kind) -> Iterator[Fields]:
        """Begin an item, unless one of this kind has begun."""
        if self._open == kind:
            return
        yield from self.close()
        self._open = kind
        yield self._item_event("output_item.added", self._item("in_progress", []))
        yield self._part_event("content_part.added", part=self._part(""))

    def _text(self, text: str, **fields: object) -> Fields:
        """Add text to the item that has begun."""
        self._parts.append(text)
        kind = _text_of(self._open or "message")
        return self._part_event(f"{kind}.delta", delta=text, **fields)

    def _call(self, call: ToolCall) -> Iterator[Fields]:
        """Yield a call as clients assemble it: its name, then its arguments."""
        arguments = msgspec.json.encode(call.input).decode()
        item: Fields = {
            "id": self._id("fc"),
            "type": "function_call",
            # The daemon's ids begin anew with each answer.
            "call_id": self._id("call"),
            "name": call.name,
            "arguments": "",
            "status": "in_progress",
        }
        place: Fields = {"item_id": item["id"], "output_index": len(self.items)}
        kind = "response.function_call_arguments"
        yield self._item_event("output_item.added", item)
        yield {"type": f"{kind}.delta", **place, "delta": arguments}
        done: Fields = {"name": call.name, "arguments": arguments}
        yield {"type": f"{kind}.done", **place, **done}
        item = {**item, "arguments": arguments, "status": "completed"}
        yield self._item_event("output_item.done", item)
        self.items.append(item)

    def _item(self, status: str, content: Sequence[Fields]) -> Fields:
        common: Fields = {"id": self._open_id(), "status": status, "content": content}
        if self._open == "reasoning":
            return {"type": "reasoning", **common, "summary": []}
        return {"type": "message", **common, "role": "assistant"}

    def _part(self, text: str) -> Fields:
        if self._open == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": self._logprobs,
        }

    def _open_id(self) -> str:
        return self._id("rs" if self._open == "reasoning" else "msg")

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._stem}_{len(self.items)}"

    # --- events -----------------------------------------------------------------------

    def _item_event(self, name: str, item: Fields) -> Fields:
        index = len(self.items)
        return {"type": f"response.{name}", "output_index": index, "item": item}

    def _part_event(self, name: str, **fields: object) -> Fields:
        return {
            "type": f"response.{name}",
            "item_id": self._open_id(),
            "output_index": len(self.items),
            "content_index": 0,
            **fields,
        }


def _text_of(kind: Kind) -> str:
    return "reasoning_text" if kind == "reasoning" else "output_text"


def _without_type(part: Fields) -> Fields:
    return {
        name: value
        for name, value in part.items()
        if name not in ("type", "annotations")
    }
