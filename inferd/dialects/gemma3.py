"""How Gemma 1 to 3 write: user and model in turn, and nothing else.

What the system says goes before what the user says. They know no thoughts and no tools;
those are described in plain text, as Hermes has them.

Source: the chat template of gemma-3-it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.dialects import hermes
from inferd.dialects.dialect import Dialect
from inferd.job import Tool, Turn

_BEGIN: Final = "<start_of_turn>"
_FUNCTION_GEMMA: Final = "<start_function_declaration>"
_ARCHITECTURES: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3n"})


def _render(turns: Sequence[Turn], tools: Sequence[Tool], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    plain = hermes.in_plain_turns(turns, tools)
    return "".join(_alternating(plain)) + f"{_BEGIN}model\n"


def _alternating(turns: Sequence[Turn]) -> Iterator[str]:
    """Write turns, those of one side in a row as one."""
    for role, run in groupby(turns, _role):
        text = "\n\n".join(map(_text, run))
        yield f"{_BEGIN}{role}\n{text}<end_of_turn>\n"


def _role(turn: Turn) -> str:
    return "model" if turn.role == "assistant" else "user"


def _text(turn: Turn) -> str:
    return turn.text if turn.role == "system" else turn.text.strip()


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture in _ARCHITECTURES
    return _BEGIN in template and _FUNCTION_GEMMA not in template


GEMMA3: Final = Dialect(
    name="gemma3",
    regions=(hermes.CALLS,),
    render=_render,
    write_calls=hermes.write_calls,
    recognises=_recognises,
    in_plain_turns=hermes.in_plain_turns,
)
