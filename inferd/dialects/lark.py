"""Write grammars in llguidance's dialect of Lark.

Source: llguidance, ``docs/syntax.md`` and ``docs/json_schema.md``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from inferd.dialects.effort import step

_JSON_STYLE: Final = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""White space as most models write it. Where it is free, small models write newlines
until they run out of tokens; without any, they got 145 of 150 values of texts right where
they got 150 (SmolLM2 135M), and 120 where they got 137 (Gemma 3 270M)."""
_ANY_TEXT: Final = "(?s:.*)"
_PARTS: Final = re.compile(r"\\(?P<escaped>.)|(?P<bare>[/\n])", re.DOTALL)
"""What matters in a regular expression that is to stand between slashes on one line."""


class Lark:
    """A grammar under construction. Expressions are texts; all methods give one.

    Args:
        tokens: special tokens by their texts. A marker that a model spells with such a
            token is matched by nothing else.
    """

    def __init__(self, tokens: Mapping[str, int] | None = None) -> None:
        self._tokens = tokens or {}
        longest_first = sorted(self._tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._rules: dict[str, str] = {}

    def fresh(self) -> "Lark":
        """Give an empty grammar with the same tokens; their pattern is made once."""
        another = Lark()
        another._tokens, another._special = self._tokens, self._special
        return another

    def text(self, literal: str) -> str:
        """Match a text, which is text alone, whatever special tokens it spells."""
        return _quoted(literal) or '""'

    def marker(self, marker: str, *, after: str = "") -> str:
        """Match a marker of the family: what special tokens spell of it, as these alone.

        Args:
            marker: what it is; never a text of a client's.
            after: text that comes before it.
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
        """Match text up to and with the first occurrence of a marker.

        Args:
            marker: what ends it.
            likes: regular expressions, all of which what stands before matches; without
                any it is any text, perhaps none.
            without: regular expressions for what must not stand in it either.
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
        """Match a text that all of several regular expressions match as a whole.

        Args:
            regexes: what it matches.
            without: regular expressions for what must not stand anywhere in it.
        """
        name = f"T{len(self._rules)}"
        parts = [_between_slashes(each) for each in regexes]
        if without:
            anywhere = f"{_ANY_TEXT}(?:{'|'.join(without)}){_ANY_TEXT}"
            parts.append(f"~{_between_slashes(anywhere)}")
        self._rules[name] = " & ".join(parts)
        return name

    def pattern(self, regex: str) -> str:
        """Match what a regular expression, of Rust's kind, matches as a whole."""
        return self.rule(_between_slashes(regex))

    def rule(self, body: str) -> str:
        """Add a rule, so that an expression can be repeated or be one of several."""
        return self.recursive(lambda _: body)

    def recursive(self, body_of: Callable[[str], str]) -> str:
        """Add a rule that may stand in its own body.

        Args:
            body_of: takes the rule's name, and gives its body.
        """
        name = self._name()
        self._rules[name] = ""  # its place
        body = body_of(name)
        step(len(body))
        self._rules[name] = body
        return name

    def source(self, start: str) -> str:
        """Give the whole grammar, which begins with an expression."""
        rules = {"start": start, **self._rules}
        return "".join(f"{name}: {body}\n" for name, body in rules.items())

    def _name(self) -> str:
        return f"r{len(self._rules)}"

    def _token(self, text: str) -> str:
        return f"<[{self._tokens[text]}]>"


def either(expressions: list[str]) -> str:
    """Match one of several expressions."""
    return "(" + " | ".join(expressions) + ")"


def in_a_row(lark: Lark, expression: str, between: str) -> str:
    """Match an expression once or more.

    Args:
        lark: the grammar.
        expression: what is repeated.
        between: the text between two.
    """
    item = lark.rule(expression)
    return f"{item} ({lark.text(between)} {item})*" if between else f"{item}+"


def _between_slashes(regex: str) -> str:
    return f"/{_PARTS.sub(_escaped, regex) or '(?:)'}/"


def _escaped(part: re.Match[str]) -> str:
    if part["bare"]:
        return r"\/" if part["bare"] == "/" else r"\n"
    return r"\n" if part["escaped"] == "\n" else part[0]


def _quoted(text: str) -> str:
    """Write a text as Lark does: JSON's escapes are its own."""
    return json.dumps(text, ensure_ascii=False) if text else ""
