"""Typed blocks to turns: what was said, called and answered, in order."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Final, Literal

from inferd.job import ToolCall, Turn
from inferd.resolve.sampling import json_text
from inferd.wire.blocks import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from inferd.wire.requests import Role

_PARAGRAPH: Final = "\n\n"


def turns_of(messages: Iterable[Message], marker: str = "") -> list[Turn]:
    """Give the turns of a conversation, oldest first.

    Calls are the assistant's and results their tools', whoever's message they stand in;
    all else is who wrote it. What one of them says in a row is one turn; the assistant's
    has its calls after its text. The tool that a result comes from is known if the call
    that it answers stands before it.

    Args:
        messages: of the conversation.
        marker: to stand in texts where images and sound do.

    Raises:
        InvalidRequestError: the input of a call is not UTF-8.
    """
    turns = _Turns(marker)
    return [turn for message in messages for turn in turns.of(message)]


def flat_text(blocks: Iterable[Block], marker: str = "") -> str:
    """Join the text of blocks and of results in them, with nothing in between."""
    texts: list[str] = []
    _collect(blocks, texts, marker)
    return "".join(texts)


def _collect(blocks: Iterable[Block], texts: list[str], marker: str) -> None:
    """Add the texts to a list: a generator in a generator would pass each one on."""
    for block in blocks:
        match block:
            case TextBlock(text):
                texts.append(text)
            case ToolResultBlock(content=content):
                _collect(content, texts, marker)
            case ImageBlock() | AudioBlock():
                texts.append(marker)
            case _:
                pass


class _Turns:
    """Turns of messages, one after another, and the names of the tools called so far."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._names: dict[str, str] = {}

    def of(self, message: Message) -> Iterator[Turn]:
        for speaker, part in groupby(message.content, partial(_speaker, message.role)):
            blocks = [*part]
            if speaker == "tool":
                yield from self._answers(blocks)
            else:
                made = [each for each in blocks if isinstance(each, ToolUseBlock)]
                calls = tuple(map(_call, made))
                self._names.update((call.id, call.name) for call in calls)
                yield Turn(speaker, self._said(blocks), calls=calls)

    def _answers(self, blocks: Iterable[Block]) -> Iterator[Turn]:
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                call_id = block.tool_call_id
                text = flat_text(block.content, self._marker)
                name = self._names.get(call_id, "")
                yield Turn("tool", text, call_id=call_id, name=name)

    def _said(self, blocks: Iterable[Block]) -> str:
        """Join the texts of a turn: at a call, which it has at its end, a paragraph."""
        runs = [
            flat_text(run, self._marker)
            for is_call, run in groupby(blocks, _is_call)
            if not is_call
        ]
        return _PARAGRAPH.join(filter(None, runs))


def _speaker(role: Role, block: Block) -> Role | Literal["tool"]:
    """Tell whose a block is; in v0.2 a call may stand in anybody's message."""
    match block:
        case ToolResultBlock():
            return "tool"
        case ToolUseBlock():
            return "assistant"
        case _:
            return role


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolUseBlock)


def _call(block: ToolUseBlock) -> ToolCall:
    return ToolCall(
        id=block.tool_call_id,
        name=block.name,
        arguments=json_text(f'input of call "{block.tool_call_id}"', block.input),
    )
