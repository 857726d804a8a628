"""Builder of grammars in llguidance's dialect of Lark.

Source: llguidance, ``docs/syntax.md`` and ``docs/json_schema.md``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from inferd.dialects.step_limit import step
from inferd.limits.protocol import MAX_TOOL_CALLS

_JSON_STYLE: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""White space as most models generate it. If it is free, small models generate newlines until
``max_tokens``. Without any, they extracted fewer values from texts correctly: 145 instead of
150 of 150 (SmolLM2 135M), 120 instead of 137 (Gemma 3 270M)."""
_ANY_TEXT: Final = "(?s:.*)"
_PARTS: Final = re.compile(r"\\(?P<escaped>.)|(?P<bare>[/\n])", re.DOTALL)
"""Escapes, slashes and newlines in a regular expression, which is put between slashes."""


class LarkBuilder:
    """A grammar under construction; its methods return expressions as strings.

    Args:
        tokens: ids of special tokens by their text. The part of a marker that is a special
            token matches only that token.
    """

    def __init__(self, tokens: Mapping[str, int] | None = None) -> None:
        self._tokens = tokens or {}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._rules: dict[str, str] = {}

    def fresh(self) -> "LarkBuilder":
        """Return an empty grammar with the same tokens, sharing their pattern."""
        another = LarkBuilder()
        another._tokens, another._special = self._tokens, self._special
        return another

    def text(self, literal: str) -> str:
        """Match a text as ordinary text, even if it spells special tokens."""
        return _quoted(literal) or '""'

    def marker(self, marker: str, *, after: str = "") -> str:
        """Match a marker of the family; special tokens in it match as tokens only.

        Args:
            marker: the marker; never text from a client.
            after: ordinary text before it.
        """
        parts: list[str] = []
        at = 0
        for found in self._special.finditer(marker):
            parts += [
                _quoted(after + marker[at : found.start()]),
                self._token(found[0]),
            ]
            at, after = found.end(), ""
        parts.append(_quoted(after + marker[at:]))
        return " ".join(filter(None, parts)) or '""'

    def json(self, schema: object) -> str:
        """Match a JSON value that a schema allows, without free white space.

        Args:
            schema: of JSON Schema, as Python objects.
        """
        rules = schema if isinstance(schema, dict) else {"allOf": [schema]}
        return self.rule(f"%json {json.dumps({**rules, 'x-guidance': _JSON_STYLE})}")

    def until(self, marker: str, *likes: str, without: Sequence[str] = ()) -> str:
        """Match text up to and including the first occurrence of a marker.

        Args:
            marker: the end of the text.
            likes: regular expressions that the text before the marker must all match;
                without any, it is any text, possibly empty.
            without: regular expressions that must not match anywhere in the text.
        """
        special = self._special.search(marker)
        before = re.escape(marker[: special.start()]) if special else ""
        banned = [re.escape(marker), *without] if special else without
        wanted = [f"(?:{like}){before}" for like in likes or (_ANY_TEXT,)]
        text = self.terminal(*wanted, without=banned)
        if special is not None:  # no text can spell the rest
            return f"{text} {self.marker(marker[special.start() :])}"
        name = self._name()
        self._rules[f"{name}[suffix={_quoted(marker)}]"] = text
        return name

    def terminal(self, *regexes: str, without: Sequence[str] = ()) -> str:
        """Match a text that fully matches all of several regular expressions.

        Args:
            regexes: the regular expressions.
            without: regular expressions that must not match anywhere in the text.
        """
        name = f"T{len(self._rules)}"
        parts = [_between_slashes(each) for each in regexes]
        if without:
            anywhere = f"{_ANY_TEXT}(?:{'|'.join(without)}){_ANY_TEXT}"
            parts.append(f"~{_between_slashes(anywhere)}")
        self._rules[name] = " & ".join(parts)
        return name

    def pattern(self, regex: str) -> str:
        """Match a text that fully matches a regular expression in Rust's syntax."""
        return self.rule(_between_slashes(regex))

    def rule(self, body: str) -> str:
        """Add a rule, so that its name can be repeated or used as an alternative."""
        return self.recursive(lambda _: body)

    def recursive(self, body_of: Callable[[str], str]) -> str:
        """Add a rule that may refer to itself.

        Args:
            body_of: returns the rule's body, given its name.
        """
        name = self._name()
        self._rules[name] = ""  # reserves the name
        body = body_of(name)
        step(len(body))
        self._rules[name] = body
        return name

    def source(self, start: str) -> str:
        """Return the whole grammar with a start expression."""
        rules = {"start": start, **self._rules}
        return "".join(f"{name}: {body}\n" for name, body in rules.items())

    def _name(self) -> str:
        return f"r{len(self._rules)}"

    def _token(self, text: str) -> str:
        return f"<[{self._tokens[text]}]>"


def one_of(expressions: list[str]) -> str:
    """Match one of several expressions."""
    return "(" + " | ".join(expressions) + ")"


def one_or_more_calls(lark: LarkBuilder, call: str, separator: str) -> str:
    """Match one to ``MAX_TOOL_CALLS`` calls.

    Args:
        lark: the grammar.
        call: expression for one call.
        separator: text between two calls; may be empty.
    """
    item = lark.rule(call)
    if not separator:
        return f"{item}{{1,{MAX_TOOL_CALLS}}}"
    return f"{item} ({lark.text(separator)} {item}){{0,{MAX_TOOL_CALLS - 1}}}"


def _between_slashes(regex: str) -> str:
    return f"/{_PARTS.sub(_escaped, regex) or '(?:)'}/"


def _escaped(part: re.Match[str]) -> str:
    if part["bare"]:
        return r"\/" if part["bare"] == "/" else r"\n"
    return r"\n" if part["escaped"] == "\n" else part[0]


def _quoted(text: str) -> str:
    """Quote a text as in Lark, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False) if text else ""
