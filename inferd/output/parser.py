"""Parse the text of an answer into typed blocks: text, thinking and tool calls."""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Final, Literal, NamedTuple, TypeVar

from inferd.backend.events import MalformedToolCall, Text, Thinking, ToolUse
from inferd.backend.job import ToolSpec
from inferd.dialects.calls.string_tracker import MissedMarker
from inferd.dialects.dialect import ParsedCall, Region
from inferd.limits.protocol import MAX_TOOL_CALLS
from inferd.output.marker_state import OUTSIDE, MarkerState
from inferd.output.matcher import PhraseMatcher

TOOL_CALL_MAX_CHARS: Final = 1024 * 1024
"""Characters of a tool call that are buffered until it is complete: enough for a large file
as an argument. Without a bound, an answer could be buffered to its end."""

Block = Text | Thinking | ToolUse
ParsedBlock = Block | MalformedToolCall
"""A warning comes before the text that it is about."""


RunKind = Literal["text", "thought", "calls", "marker"]
"""What characters of an answer are: ``marker`` is all that is in no block."""


class CharRun(NamedTuple):
    """Consecutive characters of an answer of one kind."""

    n_chars: int
    kind: RunKind
    n_calls: int = 0
    """With ``calls``: how many there are."""

    @property
    def is_text(self) -> bool:
        """Whether they are visible text."""
        return self.kind == "text"


class BlockParser:
    """Incremental parser of text into blocks, by the regions of a dialect.

    Only markers are removed: newlines and spaces beside them stay, as the model generated
    them. A begin marker counts only in text, so a tool call inside a thought is part of the
    thought. An end marker counts only in its region, so the end of a thought in plain text
    is text. Markers count in code blocks as anywhere in text, as the protocol between model
    and server knows no Markdown; families whose calls begin with plain text use
    ``only_first`` instead.

    Calls are returned when their region is complete. A region that does not contain valid
    calls becomes text, with its markers, after a warning; so do calls over
    ``MAX_TOOL_CALLS``. An end marker in a string of a call does not end it; if the call
    turns out to be invalid later, the first such marker was its end. Some models end their
    turn right after a call, without the end marker: such a call is parsed at the end of the
    answer, unless the answer was cut and the region has end markers.

    Structured text contains no markers. With a structure, markers count until the first
    character that is not part of one, or until a marker that introduces text: they may
    open one thought, or calls instead of the text.

    Any split of the same text gives the same blocks; only the cuts between deltas differ.

    Bounds:
        Holds ``TOOL_CALL_MAX_CHARS`` and a marker, besides the text of warnings.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        tools: Sequence[ToolSpec] = (),
        *,
        open_thought: str = "",
        calls_tools: bool = True,
        is_structured: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            regions: of the dialect. Of two with the same begin marker, the first counts.
            tools: tools that may be called.
            open_thought: begin marker of the thought that the prompt ends inside, if any.
            calls_tools: if false, calls are text, without a warning.
            is_structured: whether the text of the answer has a structure.

        Raises:
            ValueError: no thought region has the marker ``open_thought``.
        """
        opened = OUTSIDE
        if open_thought:
            opened = _thought_region(regions, open_thought)
        self._runs: list[CharRun] = []
        self._markers = MarkerState(
            [each for each in regions if calls_tools or not each.is_for_calls],
            is_structured=is_structured,
        )
        self._tools = tools
        self._begin = ""
        self._buffer: list[str] = []
        self._n_buffered = 0
        self._n_calls = 0
        self._is_unsure = False  # whether the open region may still be text
        self._text_region = OUTSIDE  # where it goes on if it is
        self._enter(self._markers.open_region(opened))

    def feed(self, text: str) -> list[ParsedBlock]:
        """Add text; return the blocks that are certain now, possibly none."""
        blocks = self._parse_text(self._matcher.feed(text))
        if self._matcher.found is not None:
            blocks += self._parse_past_markers()
        return merge_deltas(blocks) if len(blocks) > 1 else blocks

    def finish(
        self, *, was_cut: bool = False, is_forced: bool = False
    ) -> list[ParsedBlock]:
        """End the answer; return the blocks that were held back.

        Args:
            was_cut: whether the answer ended before the model's turn did.
            is_forced: whether the answer is forced calls of which the last is not complete:
                those before it are returned then, whatever the syntax.
        """
        blocks: list[ParsedBlock] = []
        matcher = None
        while matcher is not self._matcher:  # a marker, or the first text, replaces it
            matcher = self._matcher
            blocks += self._parse_text(
                matcher.finish() if matcher.found is None else ""
            )
            blocks += self._parse_past_markers()
            if matcher is self._matcher and self._is_unsure and not is_forced:
                blocks += self._as_text()
        if self._holds == "calls" and is_forced:
            blocks += self._take_complete_calls()
        if self._holds == "calls":
            blocks += self._end_calls("", reads=not (was_cut and self._region.ends))
        return merge_deltas(blocks)

    def runs(self) -> list[CharRun]:
        """Return, in order, the character runs since the last call.

        There is one of kind ``calls`` for each region whose calls were returned.
        """
        runs, self._runs = self._runs, []
        return runs

    def _count(self, n_chars: int, kind: RunKind, n_calls: int = 0) -> None:
        if self._runs and self._runs[-1].kind == kind != "calls":
            n_chars += self._runs.pop().n_chars
        self._runs.append(CharRun(n_chars, kind, n_calls))

    def _enter(self, region: Region) -> None:
        self._region = region
        self._holds = region.holds
        self._string_tracker = (
            region.string_tracker() if region.string_tracker is not None else None
        )
        self._is_unsure = region.classify is not None
        self._targets, self._automaton = self._markers.markers(region)
        self._matcher = PhraseMatcher(self._automaton)

    def _parse_text(self, text: str) -> list[ParsedBlock]:
        """Return the blocks of text without markers in the current region."""
        if text and self._holds != "calls":
            self._count(
                len(text), "marker" if self._holds == "nothing" else self._holds
            )
        if not text or self._holds == "nothing":
            return []
        if self._string_tracker is not None:
            self._string_tracker.feed(text)
        match self._holds:
            case "text" if self._markers.note_text(text):
                return [Text(text), *self._reparse(self._region)]
            case "text":
                return [Text(text)]
            case "thought":
                return [Thinking(text)]
            case "calls":
                return self._buffer_call(text)

    def _reparse(self, region: Region, text: str = "") -> list[ParsedBlock]:
        """Parse text and all waiting text again, in another region."""
        old = self._matcher
        waiting = old.finish() if old.found is None else ""
        waiting += (old.found or "") + old.rest
        self._enter(region)
        return self._parse_text(self._matcher.feed(text + waiting))

    def _parse_past_markers(self) -> list[ParsedBlock]:
        """Parse past the marker that was found, if any, and those after it."""
        blocks: list[ParsedBlock] = []
        while (marker := self._matcher.found) is not None:
            rest = self._matcher.rest
            blocks += self._handle_marker(marker)
            blocks += self._parse_text(self._matcher.feed(rest))
        return blocks

    def _handle_marker(self, marker: str) -> list[ParsedBlock]:
        if self._string_tracker is not None and self._string_tracker.is_open:
            self._string_tracker.skip_marker(marker)
            self._matcher = PhraseMatcher(self._automaton)
            return self._parse_text(marker)
        blocks = self._end_calls(marker) if self._region.holds == "calls" else []
        opened = self._markers.open_region(self._targets[marker])
        is_of_calls = "calls" in (self._region.holds, opened.holds)
        if not (is_of_calls or opened.keeps_begin):  # those are counted as a whole
            self._count(len(marker), "marker")
        if opened.classify is not None:
            self._text_region = self._region  # regions open in text alone
        self._enter(opened)
        self._begin, self._buffer, self._n_buffered = marker, [], 0
        if opened.keeps_begin:
            self._begin = ""
            blocks += self._parse_text(marker)
        if "" in opened.ends:
            blocks += self._end_calls("") if opened.holds == "calls" else []
            self._enter(OUTSIDE)
        return blocks

    def _buffer_call(self, text: str) -> list[ParsedBlock]:
        self._buffer.append(text)
        self._n_buffered += len(text)
        if self._is_unsure and self._is_text():
            return self._as_text()
        broken = (
            self._string_tracker.missed if self._string_tracker is not None else None
        )
        if broken is not None and broken.at <= TOOL_CALL_MAX_CHARS:
            return self._broken(broken)
        if self._n_buffered <= TOOL_CALL_MAX_CHARS:
            return []
        if self._is_unsure:
            return self._as_text()
        # Text, up to and including the end marker, of which the matcher may hold a part.
        self._holds = "text"
        raw = self._raw()
        self._count(len(raw), "text")
        quoted = raw[: len(self._begin) + TOOL_CALL_MAX_CHARS]
        return [MalformedToolCall(quoted), Text(raw)]

    def _is_text(self) -> bool:
        judge = self._region.classify
        verdict = judge(self._raw(), self._tools) if judge is not None else None
        self._is_unsure = verdict is None
        return verdict is False

    def _as_text(self) -> list[ParsedBlock]:
        """Treat a region that began like a call as text."""
        self._markers.drop_calls()
        return self._reparse(self._text_region, self._raw())

    def _broken(self, broken: MissedMarker) -> list[ParsedBlock]:
        """End a call at a marker that was wrongly skipped as part of a string."""
        text = "".join(self._buffer)
        self._buffer = [text[: broken.marker_at]]
        blocks = self._end_calls(broken.marker)
        rest = text[broken.marker_at + len(broken.marker) :]
        return blocks + self._reparse(OUTSIDE, rest)

    def _raw(self) -> str:
        return self._begin + "".join(self._buffer)

    def _end_calls(self, end: str, *, reads: bool = True) -> list[ParsedBlock]:
        if self._holds == "text":  # over TOOL_CALL_MAX_CHARS
            self._count(len(end), "text")
            return [Text(end)] if end else []
        text = "".join(self._buffer)
        read = self._region.read
        calls = read(text, self._tools) if read is not None and reads else None
        if calls is not None and self._n_calls + len(calls) > MAX_TOOL_CALLS:
            calls = None
        raw = self._begin + text + end
        if calls is None:
            self._count(len(raw), "text")
            return [MalformedToolCall(raw), Text(raw)]
        self._count(len(raw), "calls" if calls else "marker", len(calls))
        return [self._to_tool_use(call) for call in calls]

    def _take_complete_calls(self) -> list[ParsedBlock]:
        """Return the complete calls of a region that was cut; keep only the rest."""
        text, read_cut = "".join(self._buffer), self._region.read_cut
        calls, rest = ((), text) if read_cut is None else read_cut(text)
        if not calls or self._n_calls + len(calls) > MAX_TOOL_CALLS:
            return []
        if not rest.strip():
            rest, self._holds = "", "nothing"
        self._count(len(self._begin) + len(text) - len(rest), "calls", len(calls))
        self._begin, self._buffer = "", [rest]
        return [self._to_tool_use(call) for call in calls]

    def _to_tool_use(self, call: ParsedCall) -> ToolUse:
        tool_call_id = f"tc-{self._n_calls}"
        self._n_calls += 1
        return ToolUse(tool_call_id=tool_call_id, name=call.name, input=call.arguments)


def _thought_region(regions: Sequence[Region], marker: str) -> Region:
    for region in regions:
        if region.holds == "thought" and marker in region.begins:
            return region
    raise ValueError(f"no thought begins with the marker {marker!r}")


M = TypeVar("M", Block, ParsedBlock)


def merge_deltas(blocks: Iterable[M]) -> list[M]:
    """Merge consecutive text blocks into one, and consecutive thinking blocks.

    Text with time spans is not merged.
    """
    runs = groupby(blocks, type)
    return [block for _, run in runs for block in _joined(list(run))]


def _joined(run: list[M]) -> list[M]:
    texts = [block for block in run if isinstance(block, Text)]
    if any(text.span for text in texts):
        return run
    if texts:
        logprobs = chain.from_iterable([block.logprobs for block in texts])
        ids = chain.from_iterable([block.token_ids for block in texts])
        text = "".join([block.delta for block in texts])
        return [Text(text, tuple(logprobs), token_ids=tuple(ids))]
    thoughts = [block for block in run if isinstance(block, Thinking)]
    if thoughts:
        ids = chain.from_iterable([block.token_ids for block in thoughts])
        return [Thinking("".join([block.delta for block in thoughts]), tuple(ids))]
    return run
