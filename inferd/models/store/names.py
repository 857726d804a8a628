"""Names of models in the store."""

import re
from typing import Final

from inferd.limits.models import MODEL_NAME_MAX_CHARS

_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.))*"
    r"(?:/[a-z0-9](?:[a-z0-9_-]|\.(?!\.))*){0,3}"
    r"(?::[a-z0-9](?:[a-z0-9_-]|\.(?!\.))*)?",
    re.IGNORECASE | re.ASCII,  # without ASCII, [a-z] has two more letters
)
_RULE: Final = (
    "a model's name is family/model:variant: up to four parts between slashes, and "
    "perhaps a variant after a colon; each begins with a letter or digit and has "
    "letters, digits, '-', '_' and single dots"
)
_FILE_SUFFIX: Final = ".json"
_ESCAPES: Final = {"/": "+", ":": "@"}
"""Characters of names that stand for others in file names; no name has them itself."""


class InvalidNameError(Exception):
    """It is no name of a model; the message is one line and says the rule."""


def check_name(name: str) -> str:
    """Return a model's name as it is.

    Raises:
        InvalidNameError: it is none.
    """
    if len(name) > MODEL_NAME_MAX_CHARS:
        raise InvalidNameError(
            f"a model's name has at most {MODEL_NAME_MAX_CHARS} characters, "
            f"this one has {len(name)}"
        )
    if not _NAME.fullmatch(name):
        raise InvalidNameError(f"{name!r}: {_RULE}")
    return name


def file_of(name: str) -> str:
    """Return the file name of a model's manifest; names differ where their files do."""
    for character, escape in _ESCAPES.items():
        name = name.replace(character, escape)
    return name + _FILE_SUFFIX


def name_of(file: str) -> str | None:
    """Return the model's name of a manifest's file name; ``None`` for other files."""
    if not file.endswith(_FILE_SUFFIX):
        return None
    name = file.removesuffix(_FILE_SUFFIX)
    for character, escape in _ESCAPES.items():
        name = name.replace(escape, character)
    try:
        return check_name(name) if file_of(name) == file else None
    except InvalidNameError:
        return None
