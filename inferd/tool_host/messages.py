"""What the bridge and the process say to each other: a line of JSON each."""

from typing import Final

import msgspec
from msgspec import Struct


class CallOfTool(Struct, frozen=True, tag="call"):
    """What the bridge asks for."""

    name: str
    arguments: dict[str, object]


class ListedTool(Struct, frozen=True):
    """A tool, as its server describes it."""

    name: str
    description: str
    input_schema: dict[str, object]


class ToolListing(Struct, frozen=True, tag="tools"):
    """All tools of the server: what the process says first."""

    tools: list[ListedTool]


class ToolOutcome(Struct, frozen=True, tag="result"):
    """How a call ended."""

    text: str
    is_error: bool


class HostFault(Struct, frozen=True, tag="fault"):
    """Why nothing more comes."""

    text: str


HostMessage = ToolListing | ToolOutcome | HostFault
HOST_MESSAGE: Final = msgspec.json.Decoder(HostMessage)
CALL: Final = msgspec.json.Decoder(CallOfTool)
LINES: Final = msgspec.json.Encoder()
