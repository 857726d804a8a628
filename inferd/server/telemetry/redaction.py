"""Redaction of texts that look like secrets in log records.

Works on the record and not on the encoded line, so that the line stays valid JSON, and
escapes or colours of the encoding hide no secret.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Final, NamedTuple

from inferd.limits.log import LOG_VALUE_CHARS, LOG_VALUE_DEPTH

Record = dict[str, object]
"""The fields of one line, with values that JSON can encode."""

USUAL_NAMES: Final = 256
"""Field names whose check is cached; the daemon itself uses fewer."""

USUAL_NAME_CHARS: Final = 64

AUTH_HEADER: Final = "[REDACTED:auth-header]"
SECRET_KV: Final = "[REDACTED:secret-kv]"  # noqa: S105  # the replacement


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str


def _rule(pattern: str, replacement: str) -> _Rule:
    return _Rule(re.compile(pattern, re.ASCII | re.DOTALL), replacement)


HINTS: Final = re.compile(
    r"authorization|passw|pwd|key|secret|token|eyj|sk-|xox|gh[a-z]_|pat[-_]|hf_|a[ks]ia"
)
"""A lower-cased text without a match of this matches no rule, as most texts."""

_NAMED: Final = r"(?i:password|passwd|pwd|api[_-]?key|secret|token)"
_COLON: Final = r"""\\*["']?\s*[:=]\s*"""
"""The separator after a name, which JSON ends with a quote, nested JSON with an escaped one."""

RULES: Final = (
    _rule(
        rf"""((?i:authorization){_COLON}\\*["']?\s*(?i:bearer|basic|token)\s+)"""
        r"[A-Za-z0-9._~+/=-]{8,}",
        rf"\1{AUTH_HEADER}",
    ),
    _rule(  # a quoted value up to the closing quote, which may be escaped
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
"""Applied in this order; each takes linear time on any text."""

_NAMES: Final = (
    (re.compile(r"authorization\Z", re.IGNORECASE | re.ASCII), AUTH_HEADER),
    (re.compile(rf"{_NAMED}\Z", re.ASCII), SECRET_KV),
)


def redact(fields: Mapping[str, object]) -> Record:
    """Copy an event's fields as JSON values, cut to bounds and without secrets."""
    return _members(fields, LOG_VALUE_DEPTH)


def redact_text(text: str) -> str:
    """Replace each secret by its kind, after cutting a long text at a space.

    Bounds:
        Scans ``LOG_VALUE_CHARS``; the result is longer only by the replacements.
    """
    text = _cut(text)
    if HINTS.search(text.lower()) is not None:
        for rule in RULES:
            text = rule.pattern.sub(rule.replacement, text)
    return text


def _cut(text: str) -> str:
    """Cut between words: half of a secret would not be recognized."""
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
        name, replacement = (_check_usual_name if is_usual else _check_name)(name)
        is_secret = replacement is not None and value is not None
        record[name] = replacement if is_secret else _plain(value, depth)
    return record


def _check_name(name: str) -> tuple[str, str | None]:
    """Redact a field's name, and give the replacement of its value if that is secret."""
    replacements = (text for pattern, text in _NAMES if pattern.search(name))
    return redact_text(name), next(replacements, None)


_check_usual_name = lru_cache(USUAL_NAMES)(_check_name)


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
