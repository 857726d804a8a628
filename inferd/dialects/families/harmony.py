"""Dialect of gpt-oss, the harmony format: every message has a channel.

Thoughts are on ``analysis``, text is on ``final``, and calls and text before them are on
``commentary``. A call ends the answer, so an answer has at most one.

Sources: OpenAI's description of the harmony format; the chat template of gpt-oss.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.calls.json_syntax import make_call, strict_json
from inferd.dialects.calls.string_tracker import JsonStringTracker
from inferd.dialects.dialect import Arguments, Dialect, ParsedCall, Region
from inferd.dialects.lark import LarkBuilder, one_of
from inferd.dialects.rendering import arguments_of, split_parallel_calls, to_json
from inferd.dialects.schema.arguments import full_arguments_schema
from inferd.dialects.schema.typescript import namespace

_START: Final = "<|start|>"
_ASSISTANT: Final = f"{_START}assistant"
_CHANNEL: Final = "<|channel|>"
_MESSAGE: Final = "<|message|>"
_END: Final = "<|end|>"
_CALL: Final = "<|call|>"
_CONSTRAIN: Final = "<|constrain|>"
_COMMENTARY: Final = f"{_CHANNEL}commentary"
_ANALYSIS: Final = f"{_CHANNEL}analysis"
_FINAL: Final = f"{_CHANNEL}final"
_TO: Final = " to=functions."
_TURNS: Final = ("", _ASSISTANT)
"""Beginnings of a header; that of the first header is part of the prompt."""
_STRAYS: Final = ("", _COMMENTARY, f"{_COMMENTARY} to=assistant")
"""Texts that models sometimes generate before a channel, without a meaning."""
_FORMATS: Final = ("", f" {_CONSTRAIN}json", f"{_CONSTRAIN}json", " json")
_NAME: Final = r"[^\s<{\[]+"
_HEADER: Final = re.compile(
    rf"({_NAME})(?:<\|channel\|>(?:commentary|analysis))? ?(?:<\|constrain\|>)?\w*"
)
"""Header of a call, from the name on."""

# No date, unlike in the template: a prompt that changes daily would spoil caches.
_IDENTITY: Final = (
    "You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\n\n"
)
_CHANNELS: Final = (
    "# Valid channels: analysis, commentary, final. "
    "Channel must be included for every message."
)
_CALLS_CHANNEL: Final = (
    "\nCalls to these tools must go to the commentary channel: 'functions'."
)


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    effort = "medium" if thinks else "low"  # there is no off
    system = f"{_IDENTITY}Reasoning: {effort}\n\n{_CHANNELS}"
    parts = [_message("system", system + _CALLS_CHANNEL if tools else system)]
    told = ""
    if turns and turns[0].role == "system":
        told = _instructions(turns[0])
        turns = turns[1:]
    if tools:
        told += f"# Tools\n\n## functions\n\n{namespace('functions', tools)}"
    if told:
        parts.append(_message("developer", told))
    for turn in split_parallel_calls(turns):
        parts += _messages(turn)
    return "".join(parts) + _ASSISTANT


def _instructions(turn: Turn) -> str:
    return f"# Instructions\n\n{turn.text}\n\n" if turn.text else ""


def _messages(turn: Turn) -> Iterator[str]:
    match turn.role:
        case "system":
            yield _message("developer", _instructions(turn))
        case "user":
            yield _message("user", turn.text)
        case "tool":
            tool = f"functions.{turn.name}" if turn.name else "functions"
            yield _message(f"{tool} to=assistant{_COMMENTARY}", to_json(turn.text))
        case "assistant":
            if turn.text or not turn.calls:
                channel = _COMMENTARY if turn.calls else _FINAL
                yield _message(f"assistant{channel}", turn.text)
            for call in turn.calls:
                header = f"{_TO}{call.name}{_COMMENTARY} json"
                yield f"{_ASSISTANT}{header}{_MESSAGE}{arguments_of(call)}{_CALL}"


def _message(header: str, text: str) -> str:
    return f"{_START}{header}{_MESSAGE}{text}{_END}"


def _read(text: str, _tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    header, _, arguments = text.partition(_MESSAGE)
    found = _HEADER.fullmatch(header)
    if found is None:
        return None
    try:
        return [make_call(found[1], strict_json(arguments, Arguments))]
    except (ValueError, RecursionError):
        return None


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    again = f"({lark.marker(_ASSISTANT)})?"  # a thought was a message of its own
    return f"{again} {one_of([_call(lark, tool) for tool in tools])}"


def _call(lark: LarkBuilder, tool: ToolSpec) -> str:
    headers = (
        (_TO, f"{_COMMENTARY} json{_MESSAGE}"),
        (f"{_COMMENTARY}{_TO}", f" {_CONSTRAIN}json{_MESSAGE}"),
    )
    begins = [
        f"{lark.marker(before)} {lark.marker(after, after=tool.name)}"
        for before, after in headers
    ]
    arguments = lark.json(full_arguments_schema(tool))
    return f"{one_of(begins)} {arguments}"


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture == "gpt-oss"
    return _START in template and _CHANNEL in template


def _headers(*parts: Iterable[str]) -> tuple[str, ...]:
    """Return all spellings of headers."""
    return tuple(map("".join, product(_TURNS, *parts)))


HARMONY: Final = Dialect(
    name="harmony",
    regions=(
        Region(
            holds="thought",
            begins=_headers(_STRAYS, (f"{_ANALYSIS}{_MESSAGE}",)),
            ends=(_END,),
        ),
        Region(
            holds="text",
            begins=(
                *_headers(_STRAYS, (_FINAL,), _FORMATS, (_MESSAGE,)),
                *_headers((f"{_COMMENTARY}{_MESSAGE}",)),
            ),
            ends=(_END,),
        ),
        Region(
            holds="calls",
            begins=(
                *_headers((_COMMENTARY, _ANALYSIS), (_TO,)),
                f"{_ASSISTANT}{_TO}",
            ),
            ends=(_CALL, _END),
            read=_read,
            string_tracker=JsonStringTracker,
        ),
        Region(
            holds="calls",
            begins=(_TO,),
            ends=(_CALL, _END),
            only_first=True,
            read=_read,
            string_tracker=JsonStringTracker,
        ),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tool_names=re.compile(_NAME),
)
