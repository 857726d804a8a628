"""Probe what a chat template supports: many omit silently what they do not support."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.template import (
    DEFAULT_INPUT,
    ChatTemplate,
    TemplateError,
    TemplateInput,
)

_EFFORTS: Final = (("low", "medium"), ("none", "high"))
"""Values of ``reasoning_effort`` to try if a template has no switch for thinking."""
_PARAGRAPH: Final = "\n\n"


@dataclass(frozen=True, kw_only=True)
class TemplateCaps:
    """The features that a template supports."""

    input: TemplateInput
    """The input format that it needs."""
    system: bool
    """A system turn at the beginning."""
    later_system: bool
    """System turns after other turns."""
    system_at_results: bool
    """System turns in a conversation that ends with a tool result."""
    repeated_roles: bool
    """Several turns of one role in a row."""
    tools: bool
    """Descriptions of tools."""
    calls: bool
    """Turns with calls, and turns with their results."""
    parallel_calls: bool
    """Several calls in one turn."""
    text_beside_calls: bool
    """Whether it accepts text and calls in one turn, even if it omits the text."""
    toggles_thinking: bool
    """Whether an option of it turns reasoning on and off."""
    toggles_beside_system: bool
    """Whether that option has an effect in conversations with a system turn, too."""

    def supports(self, turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> bool:
        """Return whether it supports the tools, calls and results of a conversation."""
        n_calls = max((len(each.calls) for each in turns), default=0)
        n_results = sum(each.role == "tool" for each in turns)
        return (
            (self.tools or not tools)
            and (self.calls or not (n_calls or n_results))
            and (self.parallel_calls or n_calls <= 1)
        )

    def can_toggle_thinking(self, turns: Sequence[Turn]) -> bool:
        """Return whether its switch for thinking, if it has one, works with these turns."""
        has_system = any(each.role == "system" for each in turns)
        return self.toggles_beside_system or not (self.toggles_thinking and has_system)

    def adapted(self, turns: Sequence[Turn]) -> list[Turn]:
        """Convert unsupported turns, apart from tools, to supported ones.

        System turns become user turns, consecutive turns of one role are merged, and text
        beside calls is dropped if the template rejects it.
        """
        ends_with_result = bool(turns) and turns[-1].role == "tool"
        first = self.system_at_results if ends_with_result else self.system
        later = first and self.later_system
        fitted = [
            self._fitted(turn, has_system=later if n else first)
            for n, turn in enumerate(turns)
        ]
        has_users = any(
            new.role != old.role for new, old in zip(fitted, turns, strict=True)
        )
        return [*_joined(fitted)] if has_users or not self.repeated_roles else fitted

    def _fitted(self, turn: Turn, *, has_system: bool) -> Turn:
        if turn.role == "system" and not has_system:
            return Turn("user", turn.text)
        if turn.calls and not self.text_beside_calls:
            return Turn("assistant", "", turn.calls)
        return turn


def _joined(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Merge consecutive turns of one role, up to a turn with calls."""
    run: list[Turn] = []
    for turn in turns:
        if run and (turn.role != run[0].role or run[-1].calls or turn.role == "tool"):
            yield _as_one(run)
            run = []
        run.append(turn)
    if run:
        yield _as_one(run)


def _as_one(run: Sequence[Turn]) -> Turn:
    text = _PARAGRAPH.join(each.text for each in run if each.text)
    last = run[-1]
    return Turn(last.role, text, last.calls, last.call_id, last.name)


# Samples for probing. No text below is part of another.

_SYSTEM: Final = Turn("system", "system-words")
_LATER_SYSTEM: Final = Turn("system", "words-of-later")
_QUESTION: Final = Turn("user", "first-question")
_ANSWER: Final = Turn("assistant", "first-answer")
_NEXT_QUESTION: Final = Turn("user", "second-question")
_NEXT_ANSWER: Final = Turn("assistant", "second-answer")
_TOOL: Final = ToolSpec(
    name="tool_name",
    description="tool-description",
    input_schema='{"type": "object", "properties": {"input_key": {"type": "string"}}}',
)
_TOOLS: Final = ((), (_TOOL,))
_CALLS: Final = (
    PastCall(id="tc-0", name="tool_name", arguments='{"input_key": "first-input"}'),
    PastCall(id="tc-1", name="tool_name", arguments='{"input_key": "second-input"}'),
)
_RESULTS: Final = (
    Turn("tool", "first-result", call_id="tc-0", name="tool_name"),
    Turn("tool", "second-result", call_id="tc-1", name="tool_name"),
)
_BOTH: Final = (_QUESTION, Turn("assistant", "first-answer", _CALLS[:1]), _RESULTS[0])
_INTERRUPTED: Final = (
    (_QUESTION, _ANSWER, _LATER_SYSTEM, _NEXT_QUESTION),
    (_SYSTEM, _QUESTION, _ANSWER, _LATER_SYSTEM, _NEXT_QUESTION),
    (_SYSTEM, _LATER_SYSTEM, _QUESTION),
)
SAMPLE: Final = ((_SYSTEM, *_BOTH), (_TOOL,))
"""A conversation with all kinds of turns, and its tools."""
_ODD: Final = ("{'type': 'text'", "{'input_key': '", '{\\"input_key\\": \\"')
"""Objects formatted by Python, and JSON inside JSON: signs of a wrong input format."""


def probe_template(template: ChatTemplate) -> TemplateCaps | None:
    """Probe a template; return ``None`` if it does not even render user turns."""
    for wants in (DEFAULT_INPUT, TemplateInput(parts=True)):
        if _renders(template, wants, [_QUESTION]):
            return _probe_caps(template, wants)
    return None


def _probe_caps(template: ChatTemplate, wants: TemplateInput) -> TemplateCaps:
    shapes = (
        replace(wants, arguments_as_text=as_text, nine_char_ids=nine)
        for as_text, nine in product((False, True), repeat=2)
    )
    wants = next((each for each in shapes if _renders_calls(template, each, 1)), wants)
    switches = partial(_toggles_thinking, template, turns=[_QUESTION])
    efforts = (replace(wants, efforts=each) for each in (None, *_EFFORTS))
    wants = next(filter(switches, efforts), wants)
    renders = partial(_renders, template, wants)
    system = renders([_SYSTEM, _QUESTION])
    calls = _renders_calls(template, wants, 1)
    return TemplateCaps(
        input=wants,
        system=system,
        later_system=system and all(map(renders, _INTERRUPTED)),
        system_at_results=system
        and all(renders([_SYSTEM, *_called(1)], tools) for tools in _TOOLS if calls),
        repeated_roles=renders(
            [_QUESTION, _NEXT_QUESTION, _ANSWER, _NEXT_ANSWER, _QUESTION]
        ),
        tools=_renders_tools(template, wants),
        calls=calls,
        parallel_calls=_renders_calls(template, wants, 2),
        text_beside_calls=_attempt(template, wants, _BOTH) != "",
        toggles_thinking=_toggles_thinking(template, wants, [_QUESTION]),
        toggles_beside_system=_toggles_thinking(template, wants, [_SYSTEM, _QUESTION]),
    )


def _renders_tools(template: ChatTemplate, wants: TemplateInput) -> bool:
    text = _attempt(template, wants, [_QUESTION], [_TOOL])
    words = (_QUESTION.text, _TOOL.name, _TOOL.description, "input_key")
    return all(word in text for word in words)


def _renders_calls(template: ChatTemplate, wants: TemplateInput, n_calls: int) -> bool:
    """Return whether calls of one turn are rendered, at the end and in the middle."""
    called = _called(n_calls)
    return all(
        _renders(template, wants, turns, tools)
        for turns in (called, [*called, _ANSWER, _NEXT_QUESTION])
        for tools in _TOOLS
    )


def _called(n_calls: int) -> list[Turn]:
    calling = Turn("assistant", "", _CALLS[:n_calls])
    return [_QUESTION, calling, *_RESULTS[:n_calls]]


def _renders(
    template: ChatTemplate,
    wants: TemplateInput,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec] = (),
) -> bool:
    """Return whether the text of all turns is rendered."""
    text = _attempt(template, wants, turns, tools)
    is_whole = all(text.count(word) >= n for word, n in Counter(_words(turns)).items())
    return is_whole and not any(odd in text for odd in _ODD)


def _toggles_thinking(
    template: ChatTemplate, wants: TemplateInput, turns: Sequence[Turn]
) -> bool:
    """Return whether the output depends on whether the model is to think."""
    without = _attempt(template, wants, turns)
    return "" != without != _attempt(template, wants, turns, thinks=True) != ""


def _attempt(
    template: ChatTemplate,
    wants: TemplateInput,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec] = (),
    *,
    thinks: bool = False,
) -> str:
    try:
        return template.render(turns, tools, thinks=thinks, wants=wants)
    except TemplateError:
        return ""


def _words(turns: Iterable[Turn]) -> Iterator[str]:
    for turn in turns:
        if turn.text:
            yield turn.text
        for call in turn.calls:
            yield call.name
            yield from json.loads(call.arguments).values()
