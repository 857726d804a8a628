"""Write settings as TOML."""

import json
from collections.abc import Mapping, Sequence

import msgspec


def toml_value(value: object) -> str:
    """Write a value of a setting in one line.

    Args:
        value: a text, number, boolean, sequence, mapping or table of settings; no ``None``
            but in tables, where it is left out.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    return _inline(value)


def _inline(value: object) -> str:
    """Write a table or an array."""
    if isinstance(value, Mapping):
        items = [
            f"{_key(key)} = {toml_value(each)}"
            for key, each in value.items()
            if each is not None
        ]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def _text(text: str) -> str:
    """Write a basic string, with every character escaped that is not printable."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted
    )


def _key(key: object) -> str:
    text = str(key)
    is_bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if is_bare else _text(text)
