"""An answer with calls of tools, as the turns that the model is shown of it; pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from inferd.chats.records import KeptMessage, StoredCall
from inferd.wire.blocks import (
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_NOT_CALLED: Final = "[not called]"


def told_calls(message: KeptMessage, *, as_calls: bool) -> Iterator[Message]:
    """Give the turns of an answer: a text, its calls and their results, and so on.

    Args:
        message: the answer.
        as_calls: whether calls are told as such, or as texts of one turn.
    """
    start = 0
    for _, group in groupby(message.details.calls, lambda call: call.round):
        calls = list(group)
        end = max(calls[-1].at, start)
        text, start = message.text[start:end], end
        before = [TextBlock(text)] if text else []
        if not as_calls:
            yield Message("assistant", [*before, *map(_as_text, calls)])
            continue
        yield Message("assistant", [*before, *map(_use, calls)])
        yield Message("user", _results(calls))
    if rest := message.text[start:]:
        yield Message("assistant", [TextBlock(rest)])


def _use(call: StoredCall) -> Block:
    return ToolUseBlock(
        call.id, call.name, msgspec.Raw(msgspec.json.encode(call.input))
    )


def _results(calls: Sequence[StoredCall]) -> list[Block]:
    return [
        ToolResultBlock(call.id, [TextBlock(call.result or _NOT_CALLED)])
        for call in calls
    ]


def _as_text(call: StoredCall) -> Block:
    given = msgspec.json.encode(call.input).decode()
    return TextBlock(f"[{call.name} {given}: {call.result or _NOT_CALLED}]")
