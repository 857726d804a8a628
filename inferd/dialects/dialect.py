"""What a dialect is: how one family of models writes prompts, thoughts and tool calls."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from inferd.dialects.lark import Lark
from inferd.dialects.strings import Strings
from inferd.job import Tool, Turn

Arguments = dict[str, object]


class Call(NamedTuple):
    """A call that a model has written."""

    name: str
    arguments: Arguments


Reader = Callable[[str, Sequence[Tool]], Sequence[Call] | None]
"""Takes what stands between the markers of calls, and the tools there are; gives the
calls in order, or nothing where it is not plainly calls. Pure, and linear in the text."""

Judge = Callable[[str, Sequence[Tool]], bool | None]
"""Takes how a region begins, and the tools there are; tells whether that is a call, or
was plainly meant to be one. None: more has to come. It never changes its mind."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """A stretch of an answer between two markers."""

    holds: Literal["thought", "text", "calls", "nothing"]
    """What it is. Nothing: neither the markers nor what is between them is for anybody."""
    begins: tuple[str, ...]
    """The markers that open it; several are spellings of one thing."""
    ends: tuple[str, ...] = ()
    """The markers that close it; without any it lasts to the end of the answer. What
    is ``""`` after a begin is no marker: the region is the begin alone."""
    read: Reader | None = None
    """How to read calls."""
    strings: Callable[[], Strings] | None = None
    """How to follow strings in calls, in which nothing is a marker."""
    judge: Judge | None = None
    """How to tell calls from text that begins alike; what is none is as if no region had
    been opened."""
    only_first: bool = False
    """Whether it opens only where nothing but white space stands before it."""
    is_around_calls: bool = False
    """Whether it is there for calls alone: where nothing is called, it is text."""
    keeps_begin: bool = False
    """Whether the opening marker is part of what it holds."""

    @property
    def is_for_calls(self) -> bool:
        """Whether it has to do with calls."""
        return self.holds == "calls" or self.is_around_calls


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A family's way of writing. All of it is pure."""

    name: str
    """What configurations and ``capabilities`` call it."""
    regions: tuple[Region, ...]
    """How thoughts and calls stand out; all else in an answer is text. No marker is the
    beginning of another region's marker."""
    render: Callable[[Sequence[Turn], Sequence[Tool], bool], str]
    """Write a prompt: of turns, tools, and whether the model is to think. It goes up to
    where the assistant speaks, and leaves out the beginning-of-text token."""
    write_calls: Callable[[Lark, Sequence[Tool]], str]
    """Add rules to a grammar; give the expression for one call or more of these tools,
    as the family writes them, markers and all."""
    recognises: Callable[[str, str], bool]
    """Whether a model is of the family: by ``general.architecture`` and chat template."""
    tool_names: re.Pattern[str] | None = None
    """What names of tools have to match as a whole to be read back; without it, any."""
    no_thought: str = ""
    """What closes a thought that a template has opened, where none is wanted."""
    in_plain_turns: Callable[[Sequence[Turn], Sequence[Tool]], list[Turn]] | None = None
    """Say tools, calls and results in turns of text, so that a template that has no
    words for them can write the rest. Without it the dialect's own renderer does."""

    def can_call(self, name: str) -> bool:
        """Tell whether calls of a tool of this name can be read."""
        return self.tool_names is None or bool(self.tool_names.fullmatch(name))

    @property
    def thoughts(self) -> list[Region]:
        """The regions that hold thoughts, if the family has any."""
        return [each for each in self.regions if each.holds == "thought"]

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers: texts of tokens that an answer has to keep."""
        return tuple(
            marker for each in self.regions for marker in (*each.begins, *each.ends)
        )

    def open_thought(self, prompt: str) -> str:
        """Tell which marker has opened the thought that a prompt ends inside, if any."""
        text = prompt.rstrip()
        found = (each.begins[0] for each in self.thoughts if text.endswith(each.begins))
        return next(found, "")
