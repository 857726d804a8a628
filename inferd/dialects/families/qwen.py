"""Dialect of Qwen 2.5 and Qwen 3: ChatML, calls as in Hermes, thoughts first.

QwQ, MiMo and SmolLM3 have it too. To suppress thinking, a prompt contains an empty thought.

Sources: the chat templates of Qwen2.5-7B-Instruct, Qwen3-0.6B, QwQ-32B and SmolLM3-3B.
"""

from collections.abc import Sequence
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.dialect import Dialect
from inferd.dialects.families import chatml, hermes

_ARCHITECTURES: Final = frozenset(
    {"qwen3", "qwen3moe", "qwen3next", "qwen3vl", "qwen3vlmoe", "smollm3"}
)
_EMPTY_THOUGHT: Final = "<think>\n" + hermes.CLOSE_THOUGHT


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    prompt = chatml.render(turns, tools, thinks)
    return prompt if thinks else prompt + _EMPTY_THOUGHT


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture in _ARCHITECTURES
    return chatml.is_chatml(template) and chatml.is_qwen(template)


QWEN: Final = Dialect(
    name="qwen",
    regions=(hermes.THOUGHT, hermes.CALLS),
    render=_render,
    write_calls=hermes.write_calls,
    recognises=_recognises,
    close_thought=hermes.CLOSE_THOUGHT,
    tools_as_text=hermes.tools_as_text,
)
