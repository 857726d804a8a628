"""Find out what a chat template can say, by trying: many leave out what they do not know."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

from inferd.dialects.template import USUAL, ChatTemplate, TemplateError, Wants
from inferd.job import Tool, ToolCall, Turn

_EFFORTS: Final = (("low", "medium"), ("none", "high"))
"""What templates that know no switch for thoughts take as ``reasoning_effort``."""
_PARAGRAPH: Final = "\n\n"


@dataclass(frozen=True, kw_only=True)
class Repertoire:
    """What a template can say."""

    wants: Wants
    """How it must be given what it says."""
    system: bool
    """A system turn at the beginning."""
    later_system: bool
    """System turns after others, too."""
    system_at_results: bool
    """Any where the conversation ends with a result."""
    runs: bool
    """Several turns of one role in a row."""
    tools: bool
    calls: bool
    """Calls and their results."""
    parallel_calls: bool
    """Several calls in one turn."""
    words_beside_calls: bool
    """Whether it bears both in one turn, if only by leaving out the words."""
    switches_thought: bool
    """Whether it writes something else where the model is to think."""
    switches_beside_system: bool
    """Whether it does so, too, where there is a system turn."""

    def can_say(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> bool:
        """Tell whether it has words for the tools, calls and results that there are."""
        n_calls = max((len(each.calls) for each in turns), default=0)
        n_results = sum(each.role == "tool" for each in turns)
        return (
            (self.tools or not tools)
            and (self.calls or not (n_calls or n_results))
            and (self.parallel_calls or n_calls <= 1)
        )

    def can_switch(self, turns: Sequence[Turn]) -> bool:
        """Tell whether its switch for thoughts, if it has one, works."""
        has_system = any(each.role == "system" for each in turns)
        return self.switches_beside_system or not (self.switches_thought and has_system)

    def fitted(self, turns: Sequence[Turn]) -> list[Turn]:
        """Put what it does not know, but for tools, into turns that it knows.

        System turns become the user's, runs become one turn, and words beside calls that
        it would refuse are left out.
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
        return [*_joined(fitted)] if has_users or not self.runs else fitted

    def _fitted(self, turn: Turn, *, has_system: bool) -> Turn:
        if turn.role == "system" and not has_system:
            return Turn("user", turn.text)
        if turn.calls and not self.words_beside_calls:
            return Turn("assistant", "", turn.calls)
        return turn


def _joined(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Make one turn of what one role says in a row, up to its calls."""
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


# Finding out what a template can say. No word below is part of another.

_SYSTEM: Final = Turn("system", "system-words")
_LATER_SYSTEM: Final = Turn("system", "words-of-later")
_QUESTION: Final = Turn("user", "first-question")
_ANSWER: Final = Turn("assistant", "first-answer")
_NEXT_QUESTION: Final = Turn("user", "second-question")
_NEXT_ANSWER: Final = Turn("assistant", "second-answer")
_TOOL: Final = Tool(
    name="tool_name",
    description="tool-description",
    input_schema='{"type": "object", "properties": {"input_key": {"type": "string"}}}',
)
_TOOLS: Final = ((), (_TOOL,))
_CALLS: Final = (
    ToolCall(id="tc-0", name="tool_name", arguments='{"input_key": "first-input"}'),
    ToolCall(id="tc-1", name="tool_name", arguments='{"input_key": "second-input"}'),
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
"""A conversation that has a bit of everything, and its tools."""
_ODD: Final = ("{'type': 'text'", "{'input_key': '", '{\\"input_key\\": \\"')
"""Objects as Python writes them, and JSON inside JSON: not what was wanted."""


def repertoire_of(template: ChatTemplate) -> Repertoire | None:
    """Find out what a template can say; nothing if not even what a user asks."""
    for wants in (USUAL, Wants(parts=True)):
        if _says(template, wants, [_QUESTION]):
            return _repertoire(template, wants)
    return None


def _repertoire(template: ChatTemplate, wants: Wants) -> Repertoire:
    shapes = (
        replace(wants, arguments_as_text=as_text, nine_characters=nine)
        for as_text, nine in product((False, True), repeat=2)
    )
    wants = next((each for each in shapes if _says_calls(template, each, 1)), wants)
    switches = partial(_switches, template, turns=[_QUESTION])
    efforts = (replace(wants, efforts=each) for each in (None, *_EFFORTS))
    wants = next(filter(switches, efforts), wants)
    says = partial(_says, template, wants)
    system = says([_SYSTEM, _QUESTION])
    calls = _says_calls(template, wants, 1)
    return Repertoire(
        wants=wants,
        system=system,
        later_system=system and all(map(says, _INTERRUPTED)),
        system_at_results=system
        and all(says([_SYSTEM, *_called(1)], tools) for tools in _TOOLS if calls),
        runs=says([_QUESTION, _NEXT_QUESTION, _ANSWER, _NEXT_ANSWER, _QUESTION]),
        tools=_tells_tools(template, wants),
        calls=calls,
        parallel_calls=_says_calls(template, wants, 2),
        words_beside_calls=_attempt(template, wants, _BOTH) != "",
        switches_thought=_switches(template, wants, [_QUESTION]),
        switches_beside_system=_switches(template, wants, [_SYSTEM, _QUESTION]),
    )


def _tells_tools(template: ChatTemplate, wants: Wants) -> bool:
    text = _attempt(template, wants, [_QUESTION], [_TOOL])
    words = (_QUESTION.text, _TOOL.name, _TOOL.description, "input_key")
    return all(word in text for word in words)


def _says_calls(template: ChatTemplate, wants: Wants, n_calls: int) -> bool:
    """Tell whether it has words for calls of one turn: at the end, and further up."""
    called = _called(n_calls)
    return all(
        _says(template, wants, turns, tools)
        for turns in (called, [*called, _ANSWER, _NEXT_QUESTION])
        for tools in _TOOLS
    )


def _called(n_calls: int) -> list[Turn]:
    calling = Turn("assistant", "", _CALLS[:n_calls])
    return [_QUESTION, calling, *_RESULTS[:n_calls]]


def _says(
    template: ChatTemplate,
    wants: Wants,
    turns: Sequence[Turn],
    tools: Sequence[Tool] = (),
) -> bool:
    """Tell whether it leaves out nothing of some turns."""
    text = _attempt(template, wants, turns, tools)
    is_whole = all(text.count(word) >= n for word, n in Counter(_words(turns)).items())
    return is_whole and not any(odd in text for odd in _ODD)


def _switches(template: ChatTemplate, wants: Wants, turns: Sequence[Turn]) -> bool:
    """Tell whether it matters to a template if the model is to think."""
    without = _attempt(template, wants, turns)
    return "" != without != _attempt(template, wants, turns, thinks=True) != ""


def _attempt(
    template: ChatTemplate,
    wants: Wants,
    turns: Sequence[Turn],
    tools: Sequence[Tool] = (),
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
