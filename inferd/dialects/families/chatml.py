"""Dialect of models with plain ChatML, as SmolLM2: tools as in Hermes, no thoughts.

Sources: the chat templates of SmolLM2, Qwen 2 and Hermes 3.
"""

from collections.abc import Sequence
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.dialect import Dialect
from inferd.dialects.families import hermes

_BEGIN: Final = "<|im_start|>"
_FOREIGN: Final = (
    "<|im_sep|>",
    "<|im_middle|>",
    "<end_of_utterance>",
    "<function=",
    "<function name=",
    "List of tools: [",
    "tool_list_start",
)
"""Texts in templates with other markers than ChatML's, or other calls than Hermes'."""
_HERMES_CALLS: Final = "<args-json-object>"
_THOUGHT: Final = "<think>"


def render(turns: Sequence[Turn], tools: Sequence[ToolSpec], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    """Render a prompt."""
    plain = hermes.tools_as_text(turns, tools)
    return "".join(format_turn(each.role, each.text) for each in plain) + ASSISTANT


def format_turn(role: str, text: str) -> str:
    """Render a turn."""
    return f"{_BEGIN}{role}\n{text}<|im_end|>\n"


ASSISTANT: Final = f"{_BEGIN}assistant\n"
"""Beginning of the assistant's turn."""


def is_chatml(template: str) -> bool:
    """Return whether a template is ChatML, with Hermes' calls or none."""
    return _BEGIN in template and not any(each in template for each in _FOREIGN)


def is_qwen(template: str) -> bool:
    """Return whether a ChatML template has thoughts, or Qwen's description of tools."""
    return _THOUGHT in template or _HERMES_CALLS in template


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture.startswith("qwen2")
    return is_chatml(template) and not is_qwen(template)


CHATML: Final = Dialect(
    name="chatml",
    regions=(hermes.CALLS,),
    render=render,
    write_calls=hermes.write_calls,
    recognises=_recognises,
    tools_as_text=hermes.tools_as_text,
)
