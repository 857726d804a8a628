"""Read a configuration from TOML, or say what is wrong with it and where.

A key nobody knows, a wrong type, a value out of range: each is refused with the key, the
value and what is allowed. Nothing is guessed and nothing is half accepted.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
from msgspec import Struct

from inferd.choices import CacheType, Family, Speculation, Use
from inferd.config import (
    AccessRule,
    AccessSettings,
    AdmissionSettings,
    Config,
    ConfigError,
    LimitSettings,
    Listen,
    LlamaCppSettings,
    LogSettings,
    MemorySettings,
    MockSettings,
    WhisperCppSettings,
)

SHOWN_CHARS = 120
"""Characters of a refused value that its complaint repeats."""


def parse_config(text: str) -> Config:
    """Read a TOML configuration.

    Raises:
        ConfigError: one line with the key, the value and what is allowed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(_one_line(f"not TOML: {error}")) from error
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_one_line(_explain(document, str(error)))) from error
    _refuse_contradictions(config)
    return config


def _refuse_contradictions(config: Config) -> None:
    seen: set[str] = set()
    for index, backend in enumerate(config.backend):
        if backend.name in seen:
            raise ConfigError(
                f"backend[{index}].name = {backend.name!r}: each backend needs its own name"
            )
        seen.add(backend.name)
        match backend:
            case LlamaCppSettings(speculation="draft", draft_model=None):
                raise ConfigError(
                    f"backend[{index}].speculation = 'draft': draft_model is to name a file"
                )
            case LlamaCppSettings(speculation="off" | "lookup", draft_model=str(draft)):
                raise ConfigError(
                    f"backend[{index}].draft_model = {_shown(draft)}: of use with "
                    "speculation = 'draft' alone"
                )
            case LlamaCppSettings(mmproj=None, mmproj_sha256=str(digest)):
                raise ConfigError(
                    f"backend[{index}].mmproj_sha256 = {_shown(digest)}: of use with "
                    "mmproj alone"
                )
            case _:
                pass


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


_COMPLAINT = re.compile(
    r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL
)
_STEP = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def _explain(document: Mapping[str, object], complaint: str) -> str:
    """Turn msgspec's complaint into key, value and what is allowed."""
    parts = _COMPLAINT.fullmatch(complaint)
    what, where = (parts["what"], parts["where"] or "") if parts else (complaint, "")
    value = _look_up(document, where)
    if unknown := _UNKNOWN.fullmatch(what):
        key = f"{where}.{unknown[1]}".lstrip(".")
        return f"{key}: no such key; allowed: {', '.join(_keys_of(where, value))}"
    if what.startswith("Invalid enum value"):
        allowed = _CHOICES.get(where.rpartition(".")[2], Use)
        what = f"expected one of {', '.join(get_args(allowed))}"
    elif what.startswith("Invalid value"):
        what = f"expected one of {', '.join(sorted(_KINDS))}"
    what = what[0].lower() + what[1:]
    return f"{where} = {_shown(value)}: {what}" if where else what


def _shown(value: object) -> str:
    """Write a value as it may stand in a line: long ones are cut off."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return "something of thousands of characters"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _look_up(document: object, where: str) -> object:
    for name, index in _STEP.findall(where):
        if name and isinstance(document, Mapping):
            document = document.get(name)
        elif index and isinstance(document, Sequence):
            document = document[int(index)]
    return document


_KINDS: Mapping[str, type[Struct]] = {
    str(settings.__struct_config__.tag): settings
    for settings in (LlamaCppSettings, WhisperCppSettings, MockSettings)
}
_CHOICES: Mapping[str, object] = {
    "cache_type_k": CacheType,
    "cache_type_v": CacheType,
    "chat_template": Family,
    "serves": Use,
    "speculation": Speculation,
}
"""The settings that are one word of a few."""

_TABLES: Mapping[str, type[Struct]] = {
    "": Config,
    "listen": Listen,
    "access": AccessSettings,
    **{f"access.{name}": AccessRule for name in AccessSettings.__struct_fields__},
    "admission": AdmissionSettings,
    "memory": MemorySettings,
    "limits": LimitSettings,
    "log": LogSettings,
}


def _keys_of(where: str, value: object) -> list[str]:
    table = _TABLES.get(where)
    if table is None and isinstance(value, Mapping):
        table = _KINDS.get(str(value.get("kind")))
    if table is None:
        return []
    return sorted([*table.__struct_fields__, *_tag_field_of(table)])


def _tag_field_of(table: type[Struct]) -> list[str]:
    field = table.__struct_config__.tag_field
    return [field] if field else []
