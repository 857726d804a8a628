"""The system prompt, without the line that coding agents put at its head."""

from collections.abc import Iterator, Sequence
from typing import Final

from inferd.bridge.anthropic.content import Plain, TextContent
from inferd.bridge.translation.prompt import unsupported_part
from inferd.wire.blocks import Message, TextBlock

BILLING_HEADER: Final = "x-anthropic-billing-header:"
"""Begins a line at the head of the system prompt by which a service counts who sends what.
Its values change with each turn, and it tells the model nothing: with it, no turn would have
the prefix of the one before, and the whole prompt would be computed again."""


def to_system(system: str | Sequence[Plain]) -> list[Message]:
    """Translate a system prompt: one message, or none where nothing is said.

    Raises:
        BridgeError: a block of it is no text.
    """
    parts = [system] if isinstance(system, str) else [*_texts(system)]
    if parts:
        parts[0] = without_billing_header(parts[0])
    blocks = [TextBlock(part) for part in parts if part]
    return [Message("system", [*blocks])] if blocks else []


def _texts(blocks: Sequence[Plain]) -> Iterator[str]:
    for index, block in enumerate(blocks):
        if not isinstance(block, TextContent):
            kind = str(block.__struct_config__.tag)
            raise unsupported_part(kind, f"system[{index}]", noun="blocks")
        yield block.text


def without_billing_header(text: str) -> str:
    """Return a text without the line of the billing header, if it begins with one."""
    if text[: len(BILLING_HEADER)].lower() != BILLING_HEADER:
        return text
    return text.partition("\n")[2].lstrip("\r\n")
