"""Escape special tokens in the texts of clients.

In a rendered prompt the text of a special token is tokenised as that token, also if it
comes from a client. So where a client's text spells one, or could be part of one, a character is replaced by
a stand-in. After rendering, the character is restored, and where it is part of a special
token the prompt is cut in two pieces, which are tokenised separately as text.

A stand-in replaces exactly one character, so a template may trim, slice, split and measure
texts. It is a private-use character that no text of the conversation contains.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.special_tokens import SpecialTokens
from inferd.dialects.rendering import parse_json, to_json
from inferd.limits.prompts import SPELLED_SPECIAL_TOKENS

_PRIVATE: Final = range(0xE000, 0xF900)
_ESCAPED: Final = re.compile(r"\\u([ef][0-9a-f]{3})", re.IGNORECASE)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(?:(")(\s*+:)?)?', re.DOTALL)
"""A JSON string, or one without an end, so that the end is searched only once."""


class TokenEscapeError(Exception):
    """A conversation cannot be escaped; the text is one line for the client."""


class TokenEscape:
    """A conversation in which spelled special tokens are escaped.

    Args:
        special_tokens: of the model.
        turns: the conversation.
        tools: tools that may be called.
        spared: texts that are not escaped in the assistant's turns.

    Raises:
        TokenEscapeError: it spells too many tokens, or has too many private-use characters.
    """

    def __init__(
        self,
        special_tokens: SpecialTokens,
        turns: Sequence[Turn],
        tools: Sequence[ToolSpec],
        spared: Sequence[str] = (),
    ) -> None:
        self._special_tokens = special_tokens
        self._given = (turns, tools)
        self._spared = re.compile(f"({'|'.join(map(re.escape, spared))})")
        self._has_spared = bool(spared)
        self._used: dict[str, str] = {}
        self._n_spelled = 0
        self.turns = [self._turn(each) for each in turns]
        """The escaped conversation."""
        self.tools = tuple(map(self._tool, tools))
        """The escaped tools."""

    @property
    def is_needed(self) -> bool:
        """Whether any character was replaced."""
        return bool(self._used)

    def unescape(self, written: str) -> tuple[str, ...]:
        """Restore a prompt, in pieces to tokenise separately; usually there is only one."""
        if not self._used:
            return (written,)
        for stand_in in self._used.values():  # templates may have escaped it
            written = written.replace(f"\\u{ord(stand_in):04x}", stand_in)
        text = written
        for letter, stand_in in self._used.items():
            text = text.replace(stand_in, letter)
        stand_ins = re.compile(f"[{''.join(self._used.values())}]")
        cuts = sorted(
            begin + 1
            for begin, end in self._special_tokens.tokens_in(text)
            if stand_ins.search(written, begin, end)
        )
        return tuple(text[begin:end] for begin, end in pairwise([0, *cuts, len(text)]))

    def _turn(self, turn: Turn) -> Turn:
        said = self._said if turn.role == "assistant" else self._text
        return Turn(
            turn.role,
            said(turn.text),
            calls=tuple(map(self._call, turn.calls)),
            call_id=self._text(turn.call_id),
            name=self._name(turn.name),
        )

    def _call(self, call: PastCall) -> PastCall:
        return PastCall(
            id=self._text(call.id),
            name=self._name(call.name),
            arguments=self._json(call.arguments),
        )

    def _tool(self, tool: ToolSpec) -> ToolSpec:
        return ToolSpec(
            name=self._name(tool.name),
            description=self._text(tool.description),
            input_schema=self._json(tool.input_schema),
        )

    def _said(self, text: str) -> str:
        if not self._has_spared:
            return self._text(text)
        parts = self._spared.split(text)
        return "".join(
            part if n % 2 else self._text(part) for n, part in enumerate(parts)
        )

    def _json(self, text: str) -> str:
        """Escape the strings in JSON; invalid JSON is escaped as one text."""
        try:
            json.loads(text)
        except ValueError:
            return self._text(text)
        except RecursionError:  # other parsers may accept it
            return self._text(_STRING.sub(self._string, text))
        return _STRING.sub(self._string, text)

    def _string(self, found: re.Match[str]) -> str:
        quoted, end, colon = found[1], found[2], found[3] or ""
        if not end:
            return found[0]
        text = str(parse_json(f'"{quoted}"')) if "\\" in quoted else quoted
        escaped = self._name(text) if colon else self._text(text)
        return found[0] if escaped == text else to_json(escaped) + colon

    def _name(self, text: str) -> str:
        """Escape a text that a template may put in brackets, as ``<{{ name }}>``.

        The last possible character is replaced, so that names keep their order.
        """
        escaped = self._text(text)
        return self._replaced_at(self._special_tokens.name_in(text), text, escaped)

    def _text(self, text: str) -> str:
        """Escape beginnings of tokens, and a beginning of the text that may end one."""
        if not text:
            return text
        escaped = text
        for letter, begun in self._special_tokens.starts_in(text):
            room = SPELLED_SPECIAL_TOKENS - self._n_spelled
            escaped, n = begun.subn(self._stand_in_for(letter), escaped, room + 1)
            self._n_spelled += n
            if n > room:
                raise TokenEscapeError(
                    f"the conversation spells over {SPELLED_SPECIAL_TOKENS} special tokens"
                )
        return self._replaced_at(self._special_tokens.tail_in(text), text, escaped)

    def _replaced_at(self, place: int | None, text: str, escaped: str) -> str:
        if place is None:
            return escaped
        stand_in = self._stand_in_for(text[place])
        return escaped[:place] + stand_in + escaped[place + 1 :]

    def _stand_in_for(self, letter: str) -> str:
        return self._used.setdefault(letter, self._stand_ins[letter])

    @cached_property
    def _stand_ins(self) -> dict[str, str]:
        """Choose private-use characters that no text contains, not even as an escape."""
        held: set[str] = set()
        for text in _texts(*self._given):
            held.update(text)
            held.update(chr(int(code, 16)) for code in set(_ESCAPED.findall(text)))
        free = (each for each in map(chr, _PRIVATE) if each not in held)
        found = dict(zip(self._special_tokens.letters, free, strict=False))
        if len(found) < len(self._special_tokens.letters):
            raise TokenEscapeError(
                "the conversation has too many private-use characters"
            )
        return found


def _texts(turns: Iterable[Turn], tools: Iterable[ToolSpec]) -> Iterator[str]:
    for turn in turns:
        yield from (turn.text, turn.call_id, turn.name)
        for call in turn.calls:
            yield from (call.id, call.name, call.arguments)
    for tool in tools:
        yield from (tool.name, tool.description, tool.input_schema)
