"""The messages of a request: from turns of content to the daemon's blocks."""

from collections.abc import Iterator, Sequence

from inferd.bridge.anthropic.content import (
    Base64Source,
    CallContent,
    Content,
    FileSource,
    ImageContent,
    Plain,
    RedactedContent,
    ResultContent,
    TextContent,
    ThinkingContent,
    UrlSource,
)
from inferd.bridge.translation.media import (
    MediaOfRequest,
    not_fetched,
    not_stored,
    read_base64,
)
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import raw_json, some_blocks, unsupported_part
from inferd.wire.blocks import (
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_FAILED = "Error: "
"""Stands before the result of a call that failed: the daemon has no field for that."""


class UserTurn(Strict, frozen=True, tag_field="role", tag="user"):
    """A turn of the user, with results of calls."""

    content: str | list[Content]


class AssistantTurn(Strict, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer; its reasoning is not repeated to the model."""

    content: str | list[Content]


class SystemTurn(Strict, frozen=True, tag_field="role", tag="system"):
    """Instructions within the conversation."""

    content: str | list[Plain]


Turn = UserTurn | AssistantTurn | SystemTurn


def to_messages(turns: Sequence[Turn], media: MediaOfRequest) -> list[Message]:
    """Translate a conversation.

    Args:
        turns: of it.
        media: takes its pictures.

    Raises:
        BridgeError: a turn has nothing in it, or something that cannot be passed on.
    """
    return [
        _message(turn, media, f"messages[{index}]") for index, turn in enumerate(turns)
    ]


def _message(turn: Turn, media: MediaOfRequest, place: str) -> Message:
    blocks = _blocks(turn.content, media, f"{place}.content")
    match turn:
        case AssistantTurn():
            return Message("assistant", [*blocks] or [TextBlock("")])
        case UserTurn():
            return Message("user", some_blocks(blocks, f"{place}.content"))
        case SystemTurn():
            return Message("system", some_blocks(blocks, f"{place}.content"))


def _blocks(
    content: str | Sequence[Content], media: MediaOfRequest, place: str
) -> Iterator[Block]:
    if isinstance(content, str):
        yield TextBlock(content)
        return
    for index, block in enumerate(content):
        match block:
            case TextContent(text=text):
                yield TextBlock(text)
            case CallContent(id=call, name=name, input=values):
                yield ToolUseBlock(call, name, raw_json(values))
            case ResultContent(tool_use_id=call):
                results = _result(block, media, f"{place}[{index}].content")
                yield ToolResultBlock(call, [*results])
            case ImageContent():
                yield _picture(block, media, f"{place}[{index}].source")
            case ThinkingContent() | RedactedContent():
                pass
            case _:
                kind = str(block.__struct_config__.tag)
                raise unsupported_part(kind, f"{place}[{index}]", noun="blocks")


def _picture(block: ImageContent, media: MediaOfRequest, place: str) -> ImageBlock:
    match block.source:
        case Base64Source(data=data):
            field = f"{place}.data"
            return media.picture(read_base64(data, field), field)
        case UrlSource():
            raise not_fetched(f"{place}.url")
        case FileSource():
            raise not_stored(f"{place}.file_id")


def _result(block: ResultContent, media: MediaOfRequest, place: str) -> Iterator[Block]:
    if block.is_error:
        yield TextBlock(_FAILED)
    yield from _blocks(block.content or [], media, place)
