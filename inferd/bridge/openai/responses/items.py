"""The input of a response: from items to the daemon's messages."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from inferd.bridge.openai.messages import Detail, InputAudio
from inferd.bridge.translation.body import convert
from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.media import (
    MediaOfRequest,
    not_stored,
    read_base64,
    read_picture_url,
)
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import (
    call_arguments,
    some_blocks,
    unsupported_part,
)
from inferd.wire.blocks import (
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)


class InputTextPart(Strict, frozen=True, tag_field="type", tag="input_text"):
    """A text."""

    text: str
    prompt_cache_breakpoint: object = None
    """Without effect: every prefix is cached."""


class OutputTextPart(Strict, frozen=True, tag_field="type", tag="output_text"):
    """A text of an earlier answer."""

    text: str
    annotations: list[object] | None = None
    logprobs: list[object] | None = None


class OutputRefusalPart(Strict, frozen=True, tag_field="type", tag="refusal"):
    """A refusal of an earlier answer."""

    refusal: str


class InputImagePart(
    Strict, frozen=True, kw_only=True, tag_field="type", tag="input_image"
):
    """A picture."""

    image_url: str | None = None
    """``data:``, with the picture in it."""
    file_id: str | None = None
    """Refused: nothing is stored."""
    detail: Detail | None = None
    """Without effect: pictures are not scaled for it."""
    prompt_cache_breakpoint: object = None


class InputAudioPart(Strict, frozen=True, tag_field="type", tag="input_audio"):
    """A recording."""

    input_audio: InputAudio
    prompt_cache_breakpoint: object = None


class InputFilePart(Struct, frozen=True, tag_field="type", tag="input_file"):
    """A file."""


InputPart = (
    InputTextPart
    | OutputTextPart
    | OutputRefusalPart
    | InputImagePart
    | InputAudioPart
    | InputFilePart
)
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Strict, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputPart]
    id: str | None = None
    status: ItemStatus | None = None
    phase: str | None = None


class CallItem(
    Strict, frozen=True, kw_only=True, tag_field="type", tag="function_call"
):
    """A call of an earlier answer."""

    call_id: str
    name: str
    arguments: str
    """JSON."""
    id: str | None = None
    status: ItemStatus | None = None
    caller: object = None
    namespace: None = None


class CallOutputItem(
    Strict, frozen=True, kw_only=True, tag_field="type", tag="function_call_output"
):
    """The result of a call."""

    call_id: str
    output: str | list[InputPart]
    id: str | None = None
    status: ItemStatus | None = None
    name: str | None = None
    caller: object = None
    namespace: None = None


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """Reasoning of an earlier answer; it is not repeated to the model."""


InputItem = MessageItem | CallItem | CallOutputItem | ReasoningItem


class InputList(Struct, frozen=True):
    """The items of a request, in its field."""

    input: list[InputItem]


def to_messages(
    items: str | Sequence[dict[str, object]], media: MediaOfRequest
) -> list[Message]:
    """Translate the input; what the assistant said and called together is one message.

    Args:
        items: a text, or the items.
        media: takes their pictures and recordings.

    Raises:
        BridgeError: an item is of no known type, has nothing in it, or something that cannot
            be passed on.
    """
    if isinstance(items, str):
        return [Message("user", [TextBlock(items)])]
    typed = [{"type": "message", **item} for item in items]
    messages: list[Message] = []
    previous: InputItem | None = None
    for index, item in enumerate(convert({"input": typed}, InputList).input):
        message = _message(item, media, f"input[{index}]")
        if message is None:
            continue
        if previous is not None and _is_one_turn(previous, item):
            messages[-1].content.extend(message.content)
        else:
            messages.append(message)
        previous = item
    if not messages:
        raise invalid("input", "must have an item that is no reasoning")
    return messages


def _is_one_turn(previous: InputItem, item: InputItem) -> bool:
    """Tell whether two items are parts of one turn: of an answer, or of its results."""
    if isinstance(item, CallItem):
        return isinstance(previous, CallItem) or (
            isinstance(previous, MessageItem) and previous.role == "assistant"
        )
    return isinstance(item, CallOutputItem) and isinstance(previous, CallOutputItem)


def _message(item: InputItem, media: MediaOfRequest, place: str) -> Message | None:
    match item:
        case ReasoningItem():
            return None
        case CallItem(call_id=call, name=name, arguments=text):
            arguments = call_arguments(text, f"{place}.arguments")
            return Message("assistant", [ToolUseBlock(call, name, arguments)])
        case CallOutputItem(call_id=call, output=output):
            results = [*_blocks(output, media, f"{place}.output")]
            return Message("user", [ToolResultBlock(call, results)])
        case MessageItem(role="assistant", content=content):
            blocks = [*_blocks(content, media, f"{place}.content")]
            return Message("assistant", blocks or [TextBlock("")])
        case MessageItem(role=role, content=content):
            found = _blocks(content, media, f"{place}.content")
            blocks = some_blocks(found, f"{place}.content")
            return Message("user" if role == "user" else "system", blocks)


def _blocks(
    content: str | Sequence[InputPart], media: MediaOfRequest, place: str
) -> Iterator[Block]:
    if isinstance(content, str):
        yield TextBlock(content)
        return
    for index, part in enumerate(content):
        match part:
            case InputTextPart(text=text) | OutputTextPart(text=text):
                yield TextBlock(text)
            case OutputRefusalPart(refusal=text):
                yield TextBlock(text)
            case InputImagePart():
                yield _picture(part, media, f"{place}[{index}]")
            case InputAudioPart(input_audio=audio):
                field = f"{place}[{index}].input_audio.data"
                yield media.sound(read_base64(audio.data, field), field)
            case InputFilePart():
                raise unsupported_part("input_file", f"{place}[{index}]")


def _picture(part: InputImagePart, media: MediaOfRequest, place: str) -> ImageBlock:
    if part.file_id is not None:
        raise not_stored(f"{place}.file_id")
    field = f"{place}.image_url"
    return media.picture(read_picture_url(part.image_url or "", field), field)
