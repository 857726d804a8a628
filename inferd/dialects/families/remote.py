"""The format of what remote engines answer, as their workers write it: no family's.

Reasoning and calls come between the markers of the generic dialect. A server that has no parser
for its model leaves the model's own markers in the text, so that the most widespread forms of
calls count here, too: JSON and tags after ``<tool_call>``, tags without it, and bare JSON at the
beginning of an answer.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inferd.backend.job import ToolSpec
from inferd.dialects.calls import json_syntax, tagged_syntax
from inferd.dialects.calls.string_tracker import JsonOrTaggedStringTracker
from inferd.dialects.dialect import ParsedCall
from inferd.dialects.families import hermes
from inferd.dialects.families.generic import GENERIC
from inferd.dialects.families.llama3 import BARE_CALLS
from inferd.dialects.families.qwen3_coder import UNMARKED_CALLS


def _read(text: str, tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    if text.lstrip().startswith(tagged_syntax.BEGIN):
        return tagged_syntax.read_calls(text, tools)
    return json_syntax.read_calls(text)


REMOTE: Final = replace(
    GENERIC,
    regions=(
        hermes.THOUGHT,
        replace(hermes.CALLS, read=_read, string_tracker=JsonOrTaggedStringTracker),
        UNMARKED_CALLS,
        BARE_CALLS,
    ),
)
"""The generic dialect, with the calls that servers leave in their text."""
