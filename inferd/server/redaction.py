"""Take what looks like a secret out of a record of the log, whatever put it there.

Works on the record and not on its line, so that a line stays JSON, a secret is found
whatever quotes and colours it is written with, and text is searched as it was meant.
"""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, NamedTuple

from inferd.limits import LOG_VALUE_CHARS, LOG_VALUE_DEPTH

Record = dict[str, object]
"""What one line says: names, and values that JSON has."""

AUTH_HEADER: Final = "[REDACTED:auth-header]"
SECRET_KV: Final = "[REDACTED:secret-kv]"  # noqa: S105  # what stands in its place


class _Rule(NamedTuple):
    hints: tuple[str, ...]
    """Lower case; a text without any of them cannot match, and is not searched."""
    pattern: re.Pattern[str]
    replacement: str


def _rule(hints: str, pattern: str, replacement: str) -> _Rule:
    flags = re.ASCII | re.DOTALL
    return _Rule(tuple(hints.split()), re.compile(pattern, flags), replacement)


_NAMED: Final = r"(?i:password|passwd|pwd|api[_-]?key|secret|token)"
_COLON: Final = r"""\\*["']?\s*[:=]\s*"""
"""Behind a name: JSON ends it with a quote first, JSON within JSON with an escaped one."""

RULES: Final = (
    _rule(
        "authorization",
        rf"""((?i:authorization){_COLON}\\*["']?\s*(?i:bearer|basic|token)\s+)"""
        r"[A-Za-z0-9._~+/=-]{8,}",
        rf"\1{AUTH_HEADER}",
    ),
    _rule(  # in quotes up to the one that ends it, however it is escaped
        "password passwd pwd key secret token",
        rf"""({_NAMED}{_COLON})(\\*["'])(?:(?!(?<!\\)\2).)*""",
        rf"\1\2{SECRET_KV}",
    ),
    _rule(
        "password passwd pwd key secret token",
        rf"""({_NAMED}{_COLON})(?:[^\s"'\\,&}}]|\\(?!["']))"""
        r"""(?:[^\s"\\,&}]|\\(?!["'])){3,}""",
        rf"\1{SECRET_KV}",
    ),
    _rule(
        "eyj",
        r"\beyJ[\w-]{4,2048}\.[\w-]{4,2048}\.[\w-]{4,}",
        "[REDACTED:jwt]",
    ),
    _rule(
        "sk- xox gh pat- pat_ hf_",
        r"\b(?:sk-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|gh[a-z]_[A-Za-z0-9]{20,}"
        r"|github_pat_[A-Za-z0-9_]{20,}|pat-[A-Za-z0-9]{16,}"
        r"|thingspat_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{20,})",
        "[REDACTED:api-key]",
    ),
    _rule("akia", r"\bAKIA[0-9A-Z]{16}\b", "[REDACTED:aws-access]"),
    _rule("asia", r"\bASIA[0-9A-Z]{16}\b", "[REDACTED:aws-session]"),
)
"""In this order; each takes time in proportion to the text, whatever it holds."""

_NAMES: Final = (
    (re.compile(r"authorization\Z", re.IGNORECASE | re.ASCII), AUTH_HEADER),
    (re.compile(rf"{_NAMED}\Z", re.ASCII), SECRET_KV),
)


def redact(fields: Mapping[str, object]) -> Record:
    """Copy what an event says, as JSON can hold it, cut to bounds and without secrets."""
    return _members(fields, LOG_VALUE_DEPTH)


def redact_text(text: str) -> str:
    """Put the kind of each secret in its place; a long text is cut at a space before.

    Bounds:
        Gives ``LOG_VALUE_CHARS`` and what replacements add, and looks no further.
    """
    text = _cut(text)
    lower = text.lower()
    for rule in RULES:
        if any(hint in lower for hint in rule.hints):
            text = rule.pattern.sub(rule.replacement, text)
    return text


def _cut(text: str) -> str:
    """Cut between words: half of a secret would not be known for one."""
    if len(text) <= LOG_VALUE_CHARS:
        return text
    text = text[:LOG_VALUE_CHARS]
    end = max(text.rfind(" "), text.rfind("\n"))
    return f"{text[: end + 1]}…"


def _members(fields: Mapping[str, object], depth: int) -> Record:
    record: Record = {}
    for key, value in fields.items():
        name = str(key)
        record[redact_text(name)] = _in_place_of(name, value) or _plain(value, depth)
    return record


def _in_place_of(name: str, value: object) -> str | None:
    """Tell what to say for the value of a name that is a secret's; ``None`` for itself."""
    if value is None:
        return None
    for pattern, replacement in _NAMES:
        if pattern.search(name):
            return replacement
    return None


def _plain(value: object, depth: int) -> object:
    match value:
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case Mapping() if depth:
            return _members(value, depth - 1)
        case list() | tuple() | set() | frozenset() if depth:
            return _items(value, depth - 1)
        case _:
            return redact_text(value if isinstance(value, str) else repr(value))


def _items(values: Iterable[object], depth: int) -> list[object]:
    return [_plain(each, depth) for each in values]
