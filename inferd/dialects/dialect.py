"""Dialect: the format in which a model family has prompts, thoughts and tool calls."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.calls.string_tracker import StringTracker
from inferd.dialects.lark import LarkBuilder

Arguments = dict[str, object]


class ParsedCall(NamedTuple):
    """A tool call that a model generated."""

    name: str
    arguments: Arguments


CallReader = Callable[[str, Sequence[ToolSpec]], Sequence[ParsedCall] | None]
"""Parser of the text between call markers, given the tools: returns the calls in order, or
``None`` if the text is not valid calls. Pure, and linear in the text."""

CutCallReader = Callable[[str], tuple[Sequence[ParsedCall], str]]
"""Parser of the text after a call marker whose last call is cut: returns the complete calls
before that one in order, and the text of the rest. Pure, and linear in the text."""

CallClassifier = Callable[[str, Sequence[ToolSpec]], bool | None]
"""Classifier of the beginning of a region, given the tools: returns whether it is a call or
clearly an attempt at one; ``None`` if more text is needed. Its answer is final."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """A stretch of an answer between two markers."""

    holds: Literal["thought", "text", "calls", "nothing"]
    """Kind of the content. ``nothing``: markers and content are dropped."""
    begins: tuple[str, ...]
    """Markers that open the region; several are spellings of the same marker."""
    ends: tuple[str, ...] = ()
    """Markers that close the region; without any it lasts to the end of the answer. An
    empty string means that the region is only its begin marker."""
    read: CallReader | None = None
    """Parser of the calls."""
    read_cut: CutCallReader | None = None
    """The same for a cut answer, if the region may hold several calls and has no end."""
    string_tracker: Callable[[], StringTracker] | None = None
    """Maker of a tracker of strings in calls, in which markers do not count."""
    classify: CallClassifier | None = None
    """Classifier that tells calls from text with the same beginning. If it is text, the
    region counts as never opened."""
    only_first: bool = False
    """Whether it opens only at the beginning of the answer, white space aside."""
    is_around_calls: bool = False
    """Whether it only encloses calls: if calls are not parsed, it is text."""
    keeps_begin: bool = False
    """Whether the begin marker is part of the content."""

    @property
    def is_for_calls(self) -> bool:
        """Whether the region contains or encloses calls."""
        return self.holds == "calls" or self.is_around_calls


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The prompt and output format of a model family. All functions are pure."""

    name: str
    """Name in the configuration and in ``capabilities``."""
    regions: tuple[Region, ...]
    """Regions of thoughts and calls in an answer; all else is text. No marker is a prefix
    of another region's marker."""
    render: Callable[[Sequence[Turn], Sequence[ToolSpec], bool], str]
    """Render a prompt from turns, tools, and whether the model is to think. It ends where
    the assistant begins, and has no beginning-of-text token."""
    write_calls: Callable[[LarkBuilder, Sequence[ToolSpec]], str]
    """Add rules to a grammar; return the expression for 1 to ``MAX_TOOL_CALLS`` calls of
    these tools in the family's format, markers included."""
    recognises: Callable[[str, str], bool]
    """Return whether a model, by ``general.architecture`` and chat template, is of the
    family."""
    tool_names: re.Pattern[str] | None = None
    """Pattern that tool names must match as a whole to be parsed; without it, any do."""
    close_thought: str = ""
    """Text that closes a thought opened by a template, if none is requested."""
    tools_as_text: Callable[[Sequence[Turn], Sequence[ToolSpec]], list[Turn]] | None = (
        None
    )
    """Convert tools, calls and results to turns of text, for a template that does not
    support them. Without it, the dialect's own renderer is used."""

    def can_call(self, name: str) -> bool:
        """Return whether calls of a tool of this name can be parsed."""
        return self.tool_names is None or bool(self.tool_names.fullmatch(name))

    @property
    def thoughts(self) -> list[Region]:
        """Regions of thoughts, if the family has any."""
        return [each for each in self.regions if each.holds == "thought"]

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers; the text of their tokens must be kept in the output."""
        return tuple(
            marker for each in self.regions for marker in (*each.begins, *each.ends)
        )

    def open_thought(self, prompt: str) -> str:
        """Return the marker of the thought that a prompt ends inside, or ``""``."""
        text = prompt.rstrip()
        found = (each.begins[0] for each in self.thoughts if text.endswith(each.begins))
        return next(found, "")
