"""How Qwen 2.5 and Qwen 3 write: ChatML, calls as Hermes has them, thoughts first.

So do QwQ, MiMo and SmolLM3. A prompt of Qwen 3 that wants no thought holds an empty one.

Sources: the chat templates of Qwen2.5-7B-Instruct, Qwen3-0.6B, QwQ-32B and SmolLM3-3B.
"""

from collections.abc import Sequence
from typing import Final

from inferd.dialects import chatml, hermes
from inferd.dialects.dialect import Dialect
from inferd.job import Tool, Turn

_ARCHITECTURES: Final = frozenset(
    {"qwen3", "qwen3moe", "qwen3next", "qwen3vl", "qwen3vlmoe", "smollm3"}
)
_EMPTY_THOUGHT: Final = "<think>\n" + hermes.NO_THOUGHT


def _render(turns: Sequence[Turn], tools: Sequence[Tool], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    prompt = chatml.render(turns, tools, thinks)
    return prompt if thinks else prompt + _EMPTY_THOUGHT


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture in _ARCHITECTURES
    return chatml.is_chatml(template) and chatml.is_qwens(template)


QWEN: Final = Dialect(
    name="qwen",
    regions=(hermes.THOUGHT, hermes.CALLS),
    render=_render,
    write_calls=hermes.write_calls,
    recognises=_recognises,
    no_thought=hermes.NO_THOUGHT,
    in_plain_turns=hermes.in_plain_turns,
)
