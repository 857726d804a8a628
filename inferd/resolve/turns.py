"""Typed blocks to turns: what was said, called and answered, in order."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Final, Literal

from inferd.job import ToolCall, Turn
from inferd.resolve.sampling import json_text
from inferd.wire.blocks import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock
from inferd.wire.requests import Role

_PARAGRAPH: Final = "\n\n"


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """Give the turns of a conversation, oldest first.

    Calls are the assistant's and results their tools', whoever's message they stand in;
    all else is who wrote it. What one of them says in a row is one turn; the assistant's
    has its calls after its text. The tool that a result comes from is known if the call
    that it answers stands before it.

    Raises:
        InvalidRequestError: the input of a call is not UTF-8.
    """
    names: dict[str, str] = {}
    return [turn for message in messages for turn in _turns_in(message, names)]


def flat_text(blocks: Iterable[Block]) -> str:
    """Join the text of blocks and of results in them, with nothing in between."""
    texts: list[str] = []
    _collect(blocks, texts)
    return "".join(texts)


def _collect(blocks: Iterable[Block], texts: list[str]) -> None:
    """Add the texts to a list: a generator in a generator would pass each one on."""
    for block in blocks:
        match block:
            case TextBlock(text):
                texts.append(text)
            case ToolResultBlock(content=content):
                _collect(content, texts)
            case _:
                pass


def _turns_in(message: Message, names: dict[str, str]) -> Iterator[Turn]:
    for speaker, part in groupby(message.content, partial(_speaker, message.role)):
        blocks = [*part]
        if speaker == "tool":
            yield from _answers(blocks, names)
        else:
            made = [each for each in blocks if isinstance(each, ToolUseBlock)]
            calls = tuple(map(_call, made))
            names.update((call.id, call.name) for call in calls)
            yield Turn(speaker, _said(blocks), calls=calls)


def _speaker(role: Role, block: Block) -> Role | Literal["tool"]:
    """Tell whose a block is; in v0.2 a call may stand in anybody's message."""
    match block:
        case ToolResultBlock():
            return "tool"
        case ToolUseBlock():
            return "assistant"
        case _:
            return role


def _answers(blocks: Iterable[Block], names: Mapping[str, str]) -> Iterator[Turn]:
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            text, call_id = flat_text(block.content), block.tool_call_id
            yield Turn("tool", text, call_id=call_id, name=names.get(call_id, ""))


def _said(blocks: Iterable[Block]) -> str:
    """Join the texts of a turn: at a call, which a turn has at its end, a new paragraph."""
    runs = [flat_text(run) for is_call, run in groupby(blocks, _is_call) if not is_call]
    return _PARAGRAPH.join(filter(None, runs))


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolUseBlock)


def _call(block: ToolUseBlock) -> ToolCall:
    return ToolCall(
        id=block.tool_call_id,
        name=block.name,
        arguments=json_text(f'input of call "{block.tool_call_id}"', block.input),
    )
