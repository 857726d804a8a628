"""Take what looks like a secret out of a record of the log, whatever put it there.

Works on the record and not on its line, so that a line stays JSON, a secret is found
whatever quotes and colours it is written with, and text is searched as it was meant.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Final, NamedTuple

from inferd.limits import LOG_VALUE_CHARS, LOG_VALUE_DEPTH

Record = dict[str, object]
"""What one line says: names, and values that JSON has."""

USUAL_NAMES: Final = 256
"""Names of fields whose verdict is remembered: the daemon has fewer of its own."""

USUAL_NAME_CHARS: Final = 64

AUTH_HEADER: Final = "[REDACTED:auth-header]"
SECRET_KV: Final = "[REDACTED:secret-kv]"  # noqa: S105  # what stands in its place


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str


def _rule(pattern: str, replacement: str) -> _Rule:
    return _Rule(re.compile(pattern, re.ASCII | re.DOTALL), replacement)


HINTS: Final = re.compile(
    r"authorization|passw|pwd|key|secret|token|eyj|sk-|xox|gh[a-z]_|pat[-_]|hf_|a[ks]ia"
)
"""Without any of these, in lower case, no rule finds anything: most texts are that."""

_NAMED: Final = r"(?i:password|passwd|pwd|api[_-]?key|secret|token)"
_COLON: Final = r"""\\*["']?\s*[:=]\s*"""
"""Behind a name: JSON ends it with a quote first, JSON within JSON with an escaped one."""

RULES: Final = (
    _rule(
        rf"""((?i:authorization){_COLON}\\*["']?\s*(?i:bearer|basic|token)\s+)"""
        r"[A-Za-z0-9._~+/=-]{8,}",
        rf"\1{AUTH_HEADER}",
    ),
    _rule(  # in quotes up to the one that ends it, however it is escaped
        rf"""({_NAMED}{_COLON})(\\*["'])(?:(?!(?<!\\)\2).)*""",
        rf"\1\2{SECRET_KV}",
    ),
    _rule(
        rf"""({_NAMED}{_COLON})(?:[^\s"'\\,&}}]|\\(?!["']))"""
        r"""(?:[^\s"\\,&}]|\\(?!["'])){3,}""",
        rf"\1{SECRET_KV}",
    ),
    _rule(
        r"\beyJ[\w-]{4,2048}\.[\w-]{4,2048}\.[\w-]{4,}",
        "[REDACTED:jwt]",
    ),
    _rule(
        r"\b(?:sk-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|gh[a-z]_[A-Za-z0-9]{20,}"
        r"|github_pat_[A-Za-z0-9_]{20,}|pat-[A-Za-z0-9]{16,}"
        r"|thingspat_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{20,})",
        "[REDACTED:api-key]",
    ),
    _rule(r"\bAKIA[0-9A-Z]{16}\b", "[REDACTED:aws-access]"),
    _rule(r"\bASIA[0-9A-Z]{16}\b", "[REDACTED:aws-session]"),
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
    if HINTS.search(text.lower()) is not None:
        for rule in RULES:
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
        is_usual = len(name) <= USUAL_NAME_CHARS
        name, replacement = (_judge_usual if is_usual else _judge)(name)
        is_secret = replacement is not None and value is not None
        record[name] = replacement if is_secret else _plain(value, depth)
    return record


def _judge(name: str) -> tuple[str, str | None]:
    """Tell how to write a name, and what to say for its value if that is a secret."""
    replacements = (text for pattern, text in _NAMES if pattern.search(name))
    return redact_text(name), next(replacements, None)


_judge_usual = lru_cache(USUAL_NAMES)(_judge)


def _plain(value: object, depth: int) -> object:
    match value:
        case str():
            text = value
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case Mapping() if depth:
            return _members(value, depth - 1)
        case list() | tuple() | set() | frozenset() if depth:
            return _items(value, depth - 1)
        case _:
            text = repr(value)
    return redact_text(text)


def _items(values: Iterable[object], depth: int) -> list[object]:
    return [_plain(each, depth) for each in values]
