"""Dialect of Gemma 1 to 3: alternating turns of user and model, and nothing else.

System turns are merged into the user's. There are no thoughts and no tools; tools are
described in plain text, as in Hermes.

Source: the chat template of gemma-3-it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.dialect import Dialect
from inferd.dialects.families import hermes

_BEGIN: Final = "<start_of_turn>"
_FUNCTION_GEMMA: Final = "<start_function_declaration>"
_ARCHITECTURES: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3n"})


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    plain = hermes.tools_as_text(turns, tools)
    return "".join(_alternating(plain)) + f"{_BEGIN}model\n"


def _alternating(turns: Sequence[Turn]) -> Iterator[str]:
    """Render turns; consecutive turns of one side are merged."""
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
    tools_as_text=hermes.tools_as_text,
)
