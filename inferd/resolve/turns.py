"""Convert messages of typed blocks to turns of text, tool calls and tool results."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Final, Literal

from inferd.backend.job import PastCall, Turn
from inferd.resolve.options import json_text
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
    """Return the turns of a conversation, oldest first.

    Tool calls belong to the assistant and results to the tool, in whichever message they
    are; other blocks belong to the role of the message. Consecutive blocks of one role are
    one turn; the assistant's turn has its calls after its text. The tool of a result is
    known if the call comes before it.

    Args:
        messages: of the conversation.
        marker: text inserted in place of images and audio.

    Raises:
        InvalidRequestError: the input of a call is not UTF-8.
    """
    turns = _TurnBuilder(marker)
    return [turn for message in messages for turn in turns.of(message)]


def flat_text(blocks: Iterable[Block], marker: str = "") -> str:
    """Concatenate the text of blocks, including that of tool results."""
    texts: list[str] = []
    _collect(blocks, texts, marker)
    return "".join(texts)


def _collect(blocks: Iterable[Block], texts: list[str], marker: str) -> None:
    """Append the texts to a list; nested generators would be slower."""
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


class _TurnBuilder:
    """Converts messages to turns, and remembers the tool names of calls by id."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._names: dict[str, str] = {}

    def of(self, message: Message) -> Iterator[Turn]:
        for role, part in groupby(message.content, partial(_role_of, message.role)):
            blocks = [*part]
            if role == "tool":
                yield from self._results(blocks)
            else:
                made = [each for each in blocks if isinstance(each, ToolUseBlock)]
                calls = tuple(map(_call, made))
                self._names.update((call.id, call.name) for call in calls)
                yield Turn(role, self._text(blocks), calls=calls)

    def _results(self, blocks: Iterable[Block]) -> Iterator[Turn]:
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                call_id = block.tool_call_id
                text = flat_text(block.content, self._marker)
                name = self._names.get(call_id, "")
                yield Turn("tool", text, call_id=call_id, name=name)

    def _text(self, blocks: Iterable[Block]) -> str:
        """Join the texts of a turn, with an empty line where a call was between them."""
        runs = [
            flat_text(run, self._marker)
            for is_call, run in groupby(blocks, _is_call)
            if not is_call
        ]
        return _PARAGRAPH.join(filter(None, runs))


def _role_of(role: Role, block: Block) -> Role | Literal["tool"]:
    """Return the role of a block; in v0.2 a call may be in a message of any role."""
    match block:
        case ToolResultBlock():
            return "tool"
        case ToolUseBlock():
            return "assistant"
        case _:
            return role


def _is_call(block: Block) -> bool:
    return isinstance(block, ToolUseBlock)


def _call(block: ToolUseBlock) -> PastCall:
    return PastCall(
        id=block.tool_call_id,
        name=block.name,
        arguments=json_text(f'input of call "{block.tool_call_id}"', block.input),
    )
