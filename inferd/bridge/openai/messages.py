"""The messages of a chat: from OpenAI's roles and parts to the daemon's blocks."""

from collections.abc import Iterator, Sequence
from typing import Literal

from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.media import (
    MediaOfRequest,
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
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

Detail = Literal["auto", "low", "high", "original"]


class TextPart(Strict, frozen=True, tag_field="type", tag="text"):
    """A text."""

    text: str
    prompt_cache_breakpoint: object = None
    """Without effect: every prefix is cached."""


class RefusalPart(Strict, frozen=True, tag_field="type", tag="refusal"):
    """A refusal of an earlier answer."""

    refusal: str


class ImageUrl(Strict, frozen=True, kw_only=True):
    """Where a picture is."""

    url: str
    """``data:``, with the picture in it."""
    detail: Detail | None = None
    """Without effect: pictures are not scaled for it."""


class ImagePart(Strict, frozen=True, tag_field="type", tag="image_url"):
    """A picture."""

    image_url: ImageUrl
    prompt_cache_breakpoint: object = None


class InputAudio(Strict, frozen=True, kw_only=True):
    """A recording."""

    data: str
    """The file, in base64."""
    format: Literal["wav", "mp3"]
    """Stated; what the file is decides how it is decoded."""


class AudioPart(Strict, frozen=True, tag_field="type", tag="input_audio"):
    """A recording."""

    input_audio: InputAudio
    prompt_cache_breakpoint: object = None


class FilePart(Strict, frozen=True, tag_field="type", tag="file"):
    """A file."""

    file: dict[str, object]


Part = TextPart | RefusalPart | ImagePart | AudioPart | FilePart
Content = str | list[Part]


class CalledFunction(Strict, frozen=True, kw_only=True):
    """The function of a call."""

    name: str
    arguments: str
    """JSON."""
    parsed_arguments: object = None
    """The same once more: OpenAI's client adds it, and sends it back."""


class Call(Strict, frozen=True, kw_only=True):
    """A call of an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class SystemMessage(Strict, frozen=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Content
    name: str | None = None


class DeveloperMessage(Strict, frozen=True, tag_field="role", tag="developer"):
    """Instructions, as later models call them."""

    content: Content
    name: str | None = None


class UserMessage(Strict, frozen=True, tag_field="role", tag="user"):
    """A turn of the user."""

    content: Content
    name: str | None = None


class AssistantMessage(Strict, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer; its reasoning is not repeated to the model."""

    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: list[object] | None = None
    audio: None = None
    function_call: None = None
    parsed: object = None
    """The content once more: OpenAI's client adds it, and sends it back."""


class ToolMessage(Strict, frozen=True, tag_field="role", tag="tool"):
    """The result of a call."""

    content: Content
    tool_call_id: str
    name: str | None = None


ChatMessage = (
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage
)


def to_messages(chat: Sequence[ChatMessage], media: MediaOfRequest) -> list[Message]:
    """Translate a conversation.

    Args:
        chat: its messages.
        media: takes its pictures and recordings.

    Raises:
        BridgeError: a message has nothing in it, or something that cannot be passed on.
    """
    return [
        _message(each, media, f"messages[{index}]") for index, each in enumerate(chat)
    ]


def _message(message: ChatMessage, media: MediaOfRequest, place: str) -> Message:
    match message:
        case AssistantMessage():
            return Message("assistant", _answer(message, media, place))
        case ToolMessage(content=content, tool_call_id=call):
            texts = [*_blocks(content, media, f"{place}.content")]
            return Message("user", [ToolResultBlock(call, texts)])
        case UserMessage(content=content):
            return Message("user", _some(content, media, f"{place}.content"))
        case _:
            return Message("system", _some(message.content, media, f"{place}.content"))


def _some(content: Content, media: MediaOfRequest, place: str) -> list[Block]:
    return some_blocks(_blocks(content, media, place), place)


def _answer(
    message: AssistantMessage, media: MediaOfRequest, place: str
) -> list[Block]:
    blocks = [*_blocks(message.content or [], media, f"{place}.content")]
    blocks += [TextBlock(message.refusal)] if message.refusal else []
    calls = message.tool_calls or []
    blocks += [
        ToolUseBlock(
            call.id,
            call.function.name,
            call_arguments(
                call.function.arguments, f"{place}.tool_calls[{n}].function.arguments"
            ),
        )
        for n, call in enumerate(calls)
    ]
    if not blocks and message.content is None:
        raise invalid(f"{place}.content", "needed where there are no tool_calls")
    return blocks or [TextBlock("")]


def _blocks(content: Content, media: MediaOfRequest, place: str) -> Iterator[Block]:
    if isinstance(content, str):
        yield TextBlock(content)
        return
    for index, part in enumerate(content):
        match part:
            case TextPart(text=text) | RefusalPart(refusal=text):
                yield TextBlock(text)
            case ImagePart(image_url=image):
                field = f"{place}[{index}].image_url.url"
                yield media.picture(read_picture_url(image.url, field), field)
            case AudioPart(input_audio=audio):
                field = f"{place}[{index}].input_audio.data"
                yield media.sound(read_base64(audio.data, field), field)
            case FilePart():
                raise unsupported_part("file", f"{place}[{index}]")
