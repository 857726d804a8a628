"""Registry of dialects, with detection by model metadata.

Both the daemon and its workers have all dialects; they exchange only the name.
"""

from collections.abc import Mapping
from typing import Final

from inferd.dialects.dialect import Dialect
from inferd.dialects.families.chatml import CHATML
from inferd.dialects.families.deepseek import DEEPSEEK
from inferd.dialects.families.gemma3 import GEMMA3
from inferd.dialects.families.gemma4 import GEMMA4
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.families.granite import GRANITE
from inferd.dialects.families.harmony import HARMONY
from inferd.dialects.families.llama3 import LLAMA3
from inferd.dialects.families.mistral import MISTRAL
from inferd.dialects.families.qwen import QWEN
from inferd.dialects.families.qwen3_coder import QWEN3_CODER

_FAMILIES: Final = (
    *(HARMONY, GEMMA4, GEMMA3, DEEPSEEK, GRANITE, MISTRAL, LLAMA3),
    *(QWEN3_CODER, QWEN, CHATML, GENERIC),
)

DIALECTS: Final[Mapping[str, Dialect]] = {each.name: each for each in _FAMILIES}
"""By name, in the order in which ``detect_dialect`` asks them: the first that recognises a
model is its dialect, so those with markers of their own come before more general ones."""


def detect_dialect(architecture: str, template: str) -> Dialect:
    """Return the dialect of a model, or the generic one if none recognises it.

    Args:
        architecture: ``general.architecture`` of the model.
        template: the chat template that it carries; empty without one.
    """
    known = (
        each for each in DIALECTS.values() if each.recognises(architecture, template)
    )
    return next(known, GENERIC)


TEMPLATE_ALIASES: Final[Mapping[str, Dialect]] = {
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
"""Dialects by the names of llama.cpp's built-in templates."""


def is_template_alias(template: str) -> bool:
    """Return whether a chat template is only the name of a built-in one."""
    return "{" not in template


def has_format(template: str) -> bool:
    """Tell whether a chat template, or the name in place of one, determines the prompts.

    A model without it is served only where the configuration names its family.
    """
    return not is_template_alias(template) or template in TEMPLATE_ALIASES


def dialect_of(architecture: str, template: str) -> Dialect:
    """Return the dialect of a model whose chat template may be a mere name.

    Args:
        architecture: ``general.architecture`` of the model.
        template: the chat template that it carries, or the name of a built-in one; empty
            without one.
    """
    if is_template_alias(template):
        return TEMPLATE_ALIASES.get(template) or detect_dialect(architecture, "")
    return detect_dialect(architecture, template)
