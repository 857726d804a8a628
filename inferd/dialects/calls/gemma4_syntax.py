"""Gemma 4's syntax of calls and values: like JSON, except for strings and keys.

A string is enclosed in two special tokens and contains anything else; keys are unquoted and
in alphabetical order.

Source: the chat template of gemma-4-31B-it; llama.cpp's reading of such calls.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.json_syntax import TOOL_CALL_MAX_DEPTH, make_call
from inferd.dialects.dialect import ParsedCall
from inferd.dialects.rendering import to_json

BEGIN: Final = "<|tool_call>"
END: Final = "<tool_call|>"
QUOTE: Final = '<|"|>'

NAME: Final = r"[^{\s<>]+"
"""A tool's name, as a regular expression."""
_HEAD: Final = re.compile(rf"\s*call:({NAME})(?=\{{)")
BARE_KEY: Final = r'[^:{}\[\],<>"\s\x00-\x1f][^:{}\[\],<>"\x00-\x1f]*'
"""A key that needs no quotes, as a regular expression."""
_KEY: Final = re.compile(
    rf'(?:<\|"\|>((?:(?!<\|"\|>).)*)<\|"\|>|({BARE_KEY})):', re.DOTALL
)
_SPACE: Final = re.compile(r"\s*")
_PLAIN: Final = re.compile(
    r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
)


def sorted_items(items: dict[str, object]) -> list[tuple[str, object]]:
    """Sort items in the order in which the model generates them."""
    return sorted(items.items(), key=lambda item: item[0].lower())


def format_value(value: object, *, quotes_keys: bool = False) -> str:
    """Format a value; one that is nested too deeply is formatted as JSON."""
    try:
        return _text_of(value, quotes_keys=quotes_keys)
    except RecursionError:
        return to_json(value)


def _text_of(value: object, *, quotes_keys: bool) -> str:
    match value:
        case str():
            return f"{QUOTE}{value}{QUOTE}"
        case dict():
            members = [
                f"{_text_of(key, quotes_keys=True) if quotes_keys else key}:"
                f"{_text_of(each, quotes_keys=quotes_keys)}"
                for key, each in sorted_items(value)
            ]
            return f"{{{','.join(members)}}}"
        case list():
            items = [_text_of(each, quotes_keys=quotes_keys) for each in value]
            return f"[{','.join(items)}]"
        case _:
            return to_json(value)


def read_call(
    text: str, _tools: Sequence[ToolSpec] = ()
) -> Sequence[ParsedCall] | None:
    """Parse a call; return ``None`` if the text is not valid."""
    head = _HEAD.match(text)
    if head is None:
        return None
    reader = _Reader(text, head.end())
    try:
        arguments = reader.members(TOOL_CALL_MAX_DEPTH)
        reader.end()
        return [make_call(head[1], arguments)]
    except ValueError:
        return None


class _Reader:
    """Recursive-descent parser of values; invalid text raises ``ValueError``."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def end(self) -> None:
        """Check that nothing follows."""
        self._skip()
        if self._at < len(self._text):
            raise ValueError("more than a call")

    def members(self, depth: int) -> dict[str, object]:
        """Parse an object of at most ``depth`` levels."""
        found: dict[str, object] = {}
        self._open("{", depth)
        is_over = self._takes("}")
        while not is_over:
            quoted, bare = self._matched(_KEY).groups()
            key = bare if quoted is None else quoted
            if key in found:
                raise ValueError("a key twice")
            found[key] = self._value(depth - 1)
            is_over = self._takes("}")
            if not is_over:
                self._demand(",")
        return found

    def _items(self, depth: int) -> list[object]:
        found: list[object] = []
        self._open("[", depth)
        is_over = self._takes("]")
        while not is_over:
            found.append(self._value(depth - 1))
            is_over = self._takes("]")
            if not is_over:
                self._demand(",")
        return found

    def _value(self, depth: int) -> object:
        if self._takes(QUOTE):
            return self._string()
        if self._text.startswith("{", self._at):
            return self.members(depth)
        if self._text.startswith("[", self._at):
            return self._items(depth)
        plain: object = msgspec.json.decode(self._matched(_PLAIN)[0])
        return plain

    def _string(self) -> str:
        end = self._text.index(QUOTE, self._at)
        text = self._text[self._at : end]
        self._at = end + len(QUOTE)
        return text

    def _open(self, mark: str, depth: int) -> None:
        if not depth:
            raise ValueError("too deep")
        self._demand(mark)

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _takes(self, mark: str) -> bool:
        self._skip()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _demand(self, mark: str) -> None:
        if not self._takes(mark):
            raise ValueError(f"no {mark}")

    def _matched(self, pattern: re.Pattern[str]) -> re.Match[str]:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError("not a value")
        self._at = found.end()
        return found
