"""How gpt-oss writes: messages, each on a channel that tells what it is.

Thoughts are on ``analysis``, text is on ``final``, and on ``commentary`` are calls and text
that comes before them. A call ends the answer, so an answer has one at most.

Sources: OpenAI's description of the harmony format; the chat template of gpt-oss.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final

from inferd.dialects.arguments import arguments_json
from inferd.dialects.dialect import Arguments, Call, Dialect, Region
from inferd.dialects.json_calls import checked, plain_json
from inferd.dialects.lark import Lark, either
from inferd.dialects.strings import JsonStrings
from inferd.dialects.turns import arguments_of, one_call_each, to_json
from inferd.dialects.typescript import namespace
from inferd.job import Tool, Turn

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
"""What a header begins with: the first one's beginning stands in the prompt."""
_STRAYS: Final = ("", _COMMENTARY, f"{_COMMENTARY} to=assistant")
"""What models sometimes write in front of a channel, to no purpose."""
_FORMATS: Final = ("", f" {_CONSTRAIN}json", f"{_CONSTRAIN}json", " json")
_NAME: Final = r"[^\s<{\[]+"
_HEADER: Final = re.compile(
    rf"({_NAME})(?:<\|channel\|>(?:commentary|analysis))? ?(?:<\|constrain\|>)?\w*"
)
"""Of a call, from the name on."""

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


def _render(turns: Sequence[Turn], tools: Sequence[Tool], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
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
    for turn in one_call_each(turns):
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


def _read(text: str, _tools: Sequence[Tool]) -> Sequence[Call] | None:
    header, _, arguments = text.partition(_MESSAGE)
    found = _HEADER.fullmatch(header)
    if found is None:
        return None
    try:
        return [checked(found[1], plain_json(arguments, Arguments))]
    except (ValueError, RecursionError):
        return None


def _write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    again = f"({lark.marker(_ASSISTANT)})?"  # a thought was a message of its own
    return f"{again} {either([_call(lark, tool) for tool in tools])}"


def _call(lark: Lark, tool: Tool) -> str:
    headers = (
        (_TO, f"{_COMMENTARY} json{_MESSAGE}"),
        (f"{_COMMENTARY}{_TO}", f" {_CONSTRAIN}json{_MESSAGE}"),
    )
    begins = [
        f"{lark.marker(before)} {lark.marker(after, after=tool.name)}"
        for before, after in headers
    ]
    arguments = lark.json(arguments_json(tool))
    return f"{either(begins)} {arguments}"


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture == "gpt-oss"
    return _START in template and _CHANNEL in template


def _headers(*parts: Iterable[str]) -> tuple[str, ...]:
    """Spell headers in all the ways there are."""
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
            strings=JsonStrings,
        ),
        Region(
            holds="calls",
            begins=(_TO,),
            ends=(_CALL, _END),
            only_first=True,
            read=_read,
            strings=JsonStrings,
        ),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tool_names=re.compile(_NAME),
)
