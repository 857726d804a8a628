"""The messages of a chat: from Ollama's to the daemon's blocks."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import field

from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.media import MediaOfRequest, read_base64
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import raw_json, to_tool
from inferd.wire.blocks import (
    Block,
    Message,
    TextBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
)


class OllamaCalled(Strict, frozen=True, kw_only=True):
    """The function of a call."""

    name: str
    arguments: dict[str, object] = field(default_factory=dict)
    index: int | None = None
    description: str | None = None


class OllamaCall(Strict, frozen=True, kw_only=True):
    """A call of an earlier answer."""

    function: OllamaCalled
    id: str | None = None
    type: Literal["function"] = "function"


class OllamaMessage(Strict, frozen=True, kw_only=True):
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    """Of an earlier answer; it is not repeated to the model."""
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    """With a result: the function that was called."""
    tool_call_id: str | None = None


class OllamaFunction(Strict, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None


class OllamaTool(Strict, frozen=True, kw_only=True):
    """A tool; functions are the only ones."""

    function: OllamaFunction
    type: Literal["function"] = "function"


def to_tools(tools: Sequence[OllamaTool]) -> list[Tool]:
    """Translate tools."""
    return [
        to_tool(each.function.name, each.function.description, each.function.parameters)
        for each in tools
    ]


def to_messages(chat: Sequence[OllamaMessage], media: MediaOfRequest) -> list[Message]:
    """Translate a conversation.

    Calls need no ids in Ollama's API: a result belongs to the call whose id it has, else to
    the first one without a result that calls its function, else to the first without one.

    Args:
        chat: the messages.
        media: of the request; theirs are added.

    Raises:
        BridgeError: a message has something that cannot be passed on, or there is no call to
            which a result belongs.
    """
    calls = _OpenCalls()
    return [
        _message(message, f"messages[{index}]", calls, media)
        for index, message in enumerate(chat)
    ]


def image_blocks(
    images: Sequence[str] | None, place: str, media: MediaOfRequest
) -> list[Block]:
    """Translate pictures.

    Args:
        images: files in base64, of a message or a prompt.
        place: of the field that has them.
        media: of the request; the pictures are added.

    Raises:
        BridgeError: one is no base64, or there are too many.
    """
    return [
        media.picture(read_base64(image, at), at)
        for index, image in enumerate(images or [])
        for at in [f"{place}[{index}]"]
    ]


class _OpenCalls:
    """The calls of a conversation that have no result yet, oldest first."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Names of functions, by the calls' ids."""
        self._n_calls = 0

    def add(self, call: OllamaCall) -> str:
        """Add a call; return its id."""
        call_id = call.id or f"call-{self._n_calls}"
        self._n_calls += 1
        self._names[call_id] = call.function.name
        return call_id

    def take(self, message: OllamaMessage, place: str) -> str:
        """Remove the call of a result; return its id.

        Raises:
            BridgeError: there is none.
        """
        same = (call for call, name in self._names.items() if name == message.tool_name)
        found = next(same, None) or next(iter(self._names), None)
        if message.tool_call_id in self._names:
            found = message.tool_call_id
        if found is None:
            raise invalid(place, "is a result, and no call before it lacks one")
        del self._names[found]
        return found


def _message(
    message: OllamaMessage, place: str, calls: _OpenCalls, media: MediaOfRequest
) -> Message:
    blocks = image_blocks(message.images, f"{place}.images", media)
    match message.role:
        case "tool":
            text = TextBlock(message.content or "")
            return Message(
                "user", [ToolResultBlock(calls.take(message, place), [*blocks, text])]
            )
        case "assistant":
            blocks += [TextBlock(message.content)] if message.content else []
            blocks += _calls(message, calls)
            return Message("assistant", blocks or [TextBlock("")])
        case role:
            return Message(role, [*blocks, TextBlock(message.content or "")])


def _calls(message: OllamaMessage, calls: _OpenCalls) -> Iterator[Block]:
    for call in message.tool_calls or []:
        function = call.function
        yield ToolUseBlock(calls.add(call), function.name, raw_json(function.arguments))
