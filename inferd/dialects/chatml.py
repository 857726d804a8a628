"""How models with plain ChatML write, as SmolLM2: tools as Hermes has them, no thoughts.

Sources: the chat templates of SmolLM2, Qwen 2 and Hermes 3.
"""

from collections.abc import Sequence
from typing import Final

from inferd.dialects import hermes
from inferd.dialects.dialect import Dialect
from inferd.job import Tool, Turn

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
"""In templates that have more markers than ChatML, or other calls than Hermes."""
_HERMES_CALLS: Final = "<args-json-object>"
_THOUGHT: Final = "<think>"


def render(turns: Sequence[Turn], tools: Sequence[Tool], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    """Write a prompt."""
    plain = hermes.in_plain_turns(turns, tools)
    return "".join(framed(each.role, each.text) for each in plain) + ASSISTANT


def framed(role: str, text: str) -> str:
    """Write a turn."""
    return f"{_BEGIN}{role}\n{text}<|im_end|>\n"


ASSISTANT: Final = f"{_BEGIN}assistant\n"
"""What the assistant's turn begins with."""


def is_chatml(template: str) -> bool:
    """Tell whether a template writes ChatML, with calls as Hermes has them or none."""
    return _BEGIN in template and not any(each in template for each in _FOREIGN)


def is_qwens(template: str) -> bool:
    """Tell whether a ChatML template has thoughts, or Qwen's words for tools."""
    return _THOUGHT in template or _HERMES_CALLS in template


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture.startswith("qwen2")
    return is_chatml(template) and not is_qwens(template)


CHATML: Final = Dialect(
    name="chatml",
    regions=(hermes.CALLS,),
    render=render,
    write_calls=hermes.write_calls,
    recognises=_recognises,
    in_plain_turns=hermes.in_plain_turns,
)
