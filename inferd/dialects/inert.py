"""Keep the texts of clients from becoming special tokens.

In a rendered prompt the text of a special token is that token, whoever wrote it. So where
a client's text spells one, or could be part of one, a character is swapped for another
that stands in for it. When the prompt is written the character is put back, and where it
is part of a special token the prompt is cut in two: what is tokenised apart is text.

A stand-in takes one character's place, so a template may trim, slice, split and measure
texts as it likes. It is a private-use character that no text of the conversation holds.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from inferd.dialects.spellings import Spellings
from inferd.dialects.turns import parsed, to_json
from inferd.job import Tool, ToolCall, Turn
from inferd.limits import SPELLED_TOKENS

_PRIVATE: Final = range(0xE000, 0xF900)
_ESCAPED: Final = re.compile(r"\\u([ef][0-9a-f]{3})", re.IGNORECASE)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(?:(")(\s*+:)?)?', re.DOTALL)
"""A string in JSON, or one without an end, so that its end is looked for but once."""


class SpelledError(Exception):
    """A conversation spells too much; one line for the client."""


class Disguise:
    """A conversation whose texts spell no special token.

    Args:
        spellings: of the special tokens.
        turns: the conversation.
        tools: that may be called.
        spared: where the assistant has said one of these, they stay as they are.

    Raises:
        SpelledError: it spells too many, or holds too many private-use characters.
    """

    def __init__(
        self,
        spellings: Spellings,
        turns: Sequence[Turn],
        tools: Sequence[Tool],
        spared: Sequence[str] = (),
    ) -> None:
        self._spellings = spellings
        self._given = (turns, tools)
        self._spared = re.compile(f"({'|'.join(map(re.escape, spared))})")
        self._has_spared = bool(spared)
        self._used: dict[str, str] = {}
        self._n_spelled = 0
        self.turns = [self._turn(each) for each in turns]
        """The conversation, disguised."""
        self.tools = tuple(map(self._tool, tools))
        """The tools, disguised."""

    @property
    def is_needed(self) -> bool:
        """Whether anything had to be swapped."""
        return bool(self._used)

    def reveal(self, written: str) -> tuple[str, ...]:
        """Give a prompt in the pieces that have to be tokenised apart; mostly it is one."""
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
            for begin, end in self._spellings.wholes_in(text)
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

    def _call(self, call: ToolCall) -> ToolCall:
        return ToolCall(
            id=self._text(call.id),
            name=self._name(call.name),
            arguments=self._json(call.arguments),
        )

    def _tool(self, tool: Tool) -> Tool:
        return Tool(
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
        """Disguise the strings in JSON; what is no JSON is one text."""
        try:
            json.loads(text)
        except ValueError:
            return self._text(text)
        except RecursionError:  # it may be JSON to those that have more room
            return self._text(_STRING.sub(self._string, text))
        return _STRING.sub(self._string, text)

    def _string(self, found: re.Match[str]) -> str:
        quoted, end, colon = found[1], found[2], found[3] or ""
        if not end:
            return found[0]
        text = str(parsed(f'"{quoted}"')) if "\\" in quoted else quoted
        disguised = self._name(text) if colon else self._text(text)
        return found[0] if disguised == text else to_json(disguised) + colon

    def _name(self, text: str) -> str:
        """Disguise what a template may put between signs, as ``<{{ name }}>``.

        It is done at the end, so that names stay in their order.
        """
        disguised = self._text(text)
        return self._swapped_at(self._spellings.name_in(text), text, disguised)

    def _text(self, text: str) -> str:
        """Disguise where tokens begin, and the beginning of what may be the rest of one."""
        if not text:
            return text
        disguised = text
        for letter, begun in self._spellings.begun_in(text):
            room = SPELLED_TOKENS - self._n_spelled
            disguised, n = begun.subn(self._swapped(letter), disguised, room + 1)
            self._n_spelled += n
            if n > room:
                raise SpelledError(
                    f"the conversation spells over {SPELLED_TOKENS} special tokens"
                )
        return self._swapped_at(self._spellings.end_in(text), text, disguised)

    def _swapped_at(self, place: int | None, text: str, disguised: str) -> str:
        if place is None:
            return disguised
        stand_in = self._swapped(text[place])
        return disguised[:place] + stand_in + disguised[place + 1 :]

    def _swapped(self, letter: str) -> str:
        return self._used.setdefault(letter, self._stand_ins[letter])

    @cached_property
    def _stand_ins(self) -> dict[str, str]:
        """Choose those that are in no text, not even escaped."""
        held: set[str] = set()
        for text in _texts(*self._given):
            held.update(text)
            held.update(chr(int(code, 16)) for code in set(_ESCAPED.findall(text)))
        free = (each for each in map(chr, _PRIVATE) if each not in held)
        found = dict(zip(self._spellings.letters, free, strict=False))
        if len(found) < len(self._spellings.letters):
            raise SpelledError("the conversation holds too many private-use characters")
        return found


def _texts(turns: Iterable[Turn], tools: Iterable[Tool]) -> Iterator[str]:
    for turn in turns:
        yield from (turn.text, turn.call_id, turn.name)
        for call in turn.calls:
            yield from (call.id, call.name, call.arguments)
    for tool in tools:
        yield from (tool.name, tool.description, tool.input_schema)
