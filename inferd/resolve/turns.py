"""Typed blocks to turns: what was said, called and answered, in order."""

from collections.abc import Iterable, Iterator, Sequence

from inferd.job import ToolCall, Turn
from inferd.resolve.sampling import json_text
from inferd.wire.blocks import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock


def turns_of(messages: Iterable[Message]) -> list[Turn]:
    """Give the turns of a conversation, oldest first.

    What the assistant says in one message is one turn, its calls after its text. Results
    stand for themselves, wherever they were written; the tool that a result comes from is
    known if the call that it answers stands before it.

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
    blocks = message.content
    calls = tuple(_call(each) for each in blocks if isinstance(each, ToolUseBlock))
    names.update((call.id, call.name) for call in calls)
    if calls:
        said = [each for each in blocks if isinstance(each, TextBlock)]
        yield Turn("assistant", flat_text(said), calls=calls)
        blocks = [each for each in blocks if isinstance(each, ToolResultBlock)]
    for run in _runs(blocks):
        match run:
            case [ToolResultBlock(tool_call_id=call_id, content=content)]:
                name = names.get(call_id, "")
                yield Turn("tool", flat_text(content), call_id=call_id, name=name)
            case _:
                yield Turn(message.role, flat_text(run))


def _runs(blocks: Iterable[Block]) -> Iterator[Sequence[Block]]:
    """Give each result alone, and what stands between results together."""
    run: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            if run:
                yield run
            yield [block]
            run = []
        else:
            run.append(block)
    if run:
        yield run


def _call(block: ToolUseBlock) -> ToolCall:
    return ToolCall(
        id=block.tool_call_id,
        name=block.name,
        arguments=json_text(f'input of call "{block.tool_call_id}"', block.input),
    )
