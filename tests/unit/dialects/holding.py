"""What grammars of calls allow, by the bytes, and what is read of it."""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Self

from llguidance import LLMatcher, LLTokenizer

from inferd.backend.events import MalformedToolCall, Text, Thinking, ToolUse
from inferd.backend.job import ToolSpec
from inferd.dialects.dialect import Dialect, ParsedCall
from inferd.dialects.lark import LarkBuilder
from inferd.dialects.registry import DIALECTS
from inferd.output.parser import BlockParser, merge_deltas

_TOKENS: Final = LLTokenizer("byte")
_PATIENCE: Final = 150
"""Bytes after which a walk mostly takes what closes something."""
_AT_MOST: Final = 3000


@cache
def _source(family: str, tools: Sequence[ToolSpec]) -> str:
    lark = LarkBuilder()
    source = lark.source(DIALECTS[family].write_calls(lark, tools))
    return '%llguidance {"no_forcing": true}\n' + source


def _compiled(family: str, tools: Sequence[ToolSpec]) -> LLMatcher:
    """Compile anew each time: copies share states, of which there may be so many."""
    found = LLMatcher(_TOKENS, _source(family, tools), log_level=0)
    assert not found.is_error(), found.get_error()
    return found


def takes(dialect: Dialect, tools: Sequence[ToolSpec], text: str) -> bool:
    """Tell whether a text is allowed as a whole."""
    held = _compiled(dialect.name, tuple(tools))
    data = text.encode()
    return held.try_consume_tokens([*data]) == len(data) and held.is_accepting()


def walked(dialect: Dialect, tools: Sequence[ToolSpec], seed: int) -> str | None:
    """Write any text that is allowed; nothing where it comes to no end."""
    chance = random.Random(seed)  # noqa: S311  # nobody's secret
    held = _compiled(dialect.name, tuple(tools))
    written = bytearray()
    while len(written) < _AT_MOST:
        if held.is_stopped() or (held.is_accepting() and chance.random() < 0.5):
            return written.decode()
        allowed = _Allowed.of(held.compute_bitmask())
        byte = chance.choice(_wanted(allowed, chance, len(written)))
        held.consume_token(byte)
        written.append(byte)
    return None


class _Allowed(NamedTuple):
    """Bytes that may come next, and those of them that end or make up what is written."""

    all: list[int]
    closing: list[int]
    telling: list[int]

    @classmethod
    @cache
    def of(cls, mask: bytes) -> Self:
        """Read a mask; a walk meets few different ones."""
        found = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        return cls(
            found,
            [byte for byte in found if byte in b'"}]\n'],
            [byte for byte in found if byte in b'<>|/{}[]"\\:, \n_=tolcarmep'],
        )


def _wanted(allowed: _Allowed, chance: random.Random, n_written: int) -> list[int]:
    """Prefer what closes, or what markers and JSON are made of, to any other byte."""
    if n_written > _PATIENCE and allowed.closing and chance.random() < 0.7:
        return allowed.closing
    is_plain = not allowed.telling or chance.random() >= 0.7
    return allowed.all if is_plain else allowed.telling


def told(
    dialect: Dialect, tools: Sequence[ToolSpec], pieces: Sequence[str]
) -> list[Any]:
    """Read an answer as clients are told it."""
    parser = BlockParser(dialect.regions, tools)
    said = [each for piece in pieces for each in parser.feed(piece)]
    said += parser.finish()
    warnings = [each for each in said if isinstance(each, MalformedToolCall)]
    blocks = merge_deltas(
        [each for each in said if isinstance(each, Text | Thinking | ToolUse)]
    )
    calls = [_call(each) if isinstance(each, ToolUse) else each for each in blocks]
    return [*warnings, *calls]


def _call(use: ToolUse) -> ParsedCall:
    assert isinstance(use.input, dict)
    return ParsedCall(use.name, use.input)
