"""Families by name: for files whose chat template is no more than one.

Source: the names that llama.cpp takes for a template.
"""

from collections.abc import Mapping
from typing import Final

from inferd.dialects.chatml import CHATML
from inferd.dialects.deepseek import DEEPSEEK
from inferd.dialects.dialect import Dialect
from inferd.dialects.gemma3 import GEMMA3
from inferd.dialects.granite import GRANITE
from inferd.dialects.harmony import HARMONY
from inferd.dialects.llama3 import LLAMA3
from inferd.dialects.mistral import MISTRAL

NAMED: Final[Mapping[str, Dialect]] = {
    "chatml": CHATML,
    "deepseek3": DEEPSEEK,
    "gemma": GEMMA3,
    "gpt-oss": HARMONY,
    "granite": GRANITE,
    "granite-4.0": GRANITE,
    "granite-4.1": GRANITE,
    "llama3": LLAMA3,
    "mistral-v1": MISTRAL,
    "mistral-v3": MISTRAL,
    "mistral-v3-tekken": MISTRAL,
    "mistral-v7": MISTRAL,
    "mistral-v7-tekken": MISTRAL,
}
"""The dialects of those names whose family is known here."""


def is_name(template: str) -> bool:
    """Tell whether a chat template is just a name: it has nothing to fill in."""
    return "{" not in template
