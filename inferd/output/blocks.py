"""Text to typed blocks: what a model says, thinks and calls."""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Final, NamedTuple, TypeVar

from inferd.dialects.dialect import Call, Region
from inferd.dialects.strings import Break
from inferd.events import MalformedToolCall, Text, Thinking, ToolUse
from inferd.job import Tool
from inferd.output.openings import OUTSIDE, Openings
from inferd.output.phrases import PhraseFinder

TOOL_CALL_MAX_CHARS: Final = 1024 * 1024
"""Characters between tool-call markers that are kept until the call is whole: room for a
large file as an argument; without a bound an answer could be kept to its end."""

Block = Text | Thinking | ToolUse
Said = Block | MalformedToolCall
"""A warning stands before the text that it is about."""


class Run(NamedTuple):
    """Characters of an answer in a row that went out as text, or did not."""

    n_chars: int
    is_text: bool


class BlockParser:
    """Turns text into blocks by the regions of a dialect, each as soon as it is certain.

    Only the markers are taken out: newlines and spaces beside them are the model's, and
    stay. A marker counts only where it means something. What opens a region counts in
    text alone, so a tool call inside a thought is thought; what closes one counts in it
    alone, so the end of a thought in plain text is text. It counts in a code block as
    anywhere in text: what models write between themselves and a server knows no
    Markdown. A family whose calls open with plain text has ``only_first`` against that.

    Calls are given when their region is whole; what is not plainly calls goes out as
    text, with its markers, after a warning. A marker in a string of a call ends nothing,
    if it is a string: where the call breaks later, its first marker was its end. Some
    models end their turn right after a call and never write what closes it: at the end of
    an answer a call is read all the same, unless the answer was cut off inside a region
    that something closes.

    What a structure governs is text whatever it holds. There, markers count until the
    first character that is none, or the marker that opens text: of a thought before the
    text, and of calls in its place.

    Any split of the same text gives the same blocks, but for where deltas are cut.

    Bounds:
        Holds ``TOOL_CALL_MAX_CHARS`` and a marker, besides what warnings quote.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        tools: Sequence[Tool] = (),
        *,
        open_thought: str = "",
        calls_tools: bool = True,
        is_structured: bool = False,
    ) -> None:
        """Begin an answer.

        Args:
            regions: the dialect's. Of two with the same begin, the first counts.
            tools: what may be called.
            open_thought: the marker of the thought that the prompt ended inside, if any.
            calls_tools: without it what looks like a call is text, and no warning.
            is_structured: what is neither a thought nor calls is one text to its end.

        Raises:
            ValueError: no thought that the answer could start in has this marker.
        """
        opened = OUTSIDE
        if open_thought:
            opened = _thought_of(regions, open_thought)
        self._runs: list[Run] = []
        self._openings = Openings(
            [each for each in regions if calls_tools or not each.is_for_calls],
            is_structured=is_structured,
        )
        self._tools = tools
        self._begin = ""
        self._kept: list[str] = []
        self._n_kept = 0
        self._n_calls = 0
        self._is_unsure = False  # whether it is a call that has begun
        self._enter(self._openings.opened(opened))

    def feed(self, text: str) -> list[Said]:
        """Add text; give what is certain by now, perhaps nothing."""
        said = self._take(self._finder.feed(text))
        if self._finder.found is not None:
            said += self._past_markers()
        return merge(said) if len(said) > 1 else said

    def finish(self, *, was_cut: bool = False) -> list[Said]:
        """Say that no more text comes; give what was held back.

        Args:
            was_cut: the model would have gone on.
        """
        said: list[Said] = []
        finder = None
        while finder is not self._finder:  # each marker, and the first text, renews it
            finder = self._finder
            said += self._take(finder.finish() if finder.found is None else "")
            said += self._past_markers()
            if finder is self._finder and self._is_unsure:
                said += self._as_text()
        if self._holds == "calls":
            said += self._end_calls("", reads=not (was_cut and self._region.ends))
        return merge(said)

    def runs(self) -> list[Run]:
        """Tell what the answer has come to since this was asked last, in its order."""
        runs, self._runs = self._runs, []
        return runs

    def _count(self, n_chars: int, *, is_text: bool) -> None:
        if self._runs and self._runs[-1].is_text == is_text:
            n_chars += self._runs.pop().n_chars
        self._runs.append(Run(n_chars, is_text))

    def _enter(self, region: Region) -> None:
        self._region = region
        self._holds = region.holds
        self._strings = region.strings() if region.strings is not None else None
        self._is_unsure = region.judge is not None
        self._ways, self._tree = self._openings.ways(region)
        self._finder = PhraseFinder(self._tree)

    def _take(self, text: str) -> list[Said]:
        """Give what text without markers is, where the parser is."""
        if text and self._holds != "calls":
            self._count(len(text), is_text=self._holds == "text")
        if not text or self._holds == "nothing":
            return []
        if self._strings is not None:
            self._strings.feed(text)
        match self._holds:
            case "text" if self._openings.has_begun(text):
                return [Text(text), *self._reread(self._region)]
            case "text":
                return [Text(text)]
            case "thought":
                return [Thinking(text)]
            case "calls":
                return self._keep(text)

    def _reread(self, region: Region, text: str = "") -> list[Said]:
        """Read text and what waits anew: it means something else in another place."""
        old = self._finder
        waiting = old.finish() if old.found is None else ""
        waiting += (old.found or "") + old.rest
        self._enter(region)
        return self._take(self._finder.feed(text + waiting))

    def _past_markers(self) -> list[Said]:
        """Give what follows the marker that was found, if any, and those after it."""
        said: list[Said] = []
        while (marker := self._finder.found) is not None:
            rest = self._finder.rest
            said += self._pass(marker)
            said += self._take(self._finder.feed(rest))
        return said

    def _pass(self, marker: str) -> list[Said]:
        if self._strings is not None and self._strings.is_open:
            self._strings.pass_over(marker)
            self._finder = PhraseFinder(self._tree)
            return self._take(marker)
        said = self._end_calls(marker) if self._region.holds == "calls" else []
        opened = self._openings.opened(self._ways[marker])
        is_of_calls = "calls" in (self._region.holds, opened.holds)
        if not (is_of_calls or opened.keeps_begin):  # which are counted as a whole
            self._count(len(marker), is_text=False)
        self._enter(opened)
        self._begin, self._kept, self._n_kept = marker, [], 0
        if opened.keeps_begin:
            self._begin = ""
            said += self._take(marker)
        if "" in opened.ends:
            said += self._end_calls("") if opened.holds == "calls" else []
            self._enter(OUTSIDE)
        return said

    def _keep(self, text: str) -> list[Said]:
        self._kept.append(text)
        self._n_kept += len(text)
        if self._is_unsure and self._is_no_call():
            return self._as_text()
        broken = self._strings.broken if self._strings is not None else None
        if broken is not None and broken.at <= TOOL_CALL_MAX_CHARS:
            return self._broken(broken)
        if self._n_kept <= TOOL_CALL_MAX_CHARS:
            return []
        if self._is_unsure:
            return self._as_text()
        # Text, up to and with its end. The finder stays: it may hold a part of that.
        self._holds = "text"
        raw = self._raw()
        self._count(len(raw), is_text=True)
        quoted = raw[: len(self._begin) + TOOL_CALL_MAX_CHARS]
        return [MalformedToolCall(quoted), Text(raw)]

    def _is_no_call(self) -> bool:
        judge = self._region.judge
        verdict = judge(self._raw(), self._tools) if judge is not None else None
        self._is_unsure = verdict is None
        return verdict is False

    def _as_text(self) -> list[Said]:
        """Take what has begun like a call for the text that it is."""
        self._openings.has_no_calls()
        return self._reread(OUTSIDE, self._raw())

    def _broken(self, broken: Break) -> list[Said]:
        """End a call at a marker that seemed to stand in a string."""
        text = "".join(self._kept)
        self._kept = [text[: broken.marker_at]]
        said = self._end_calls(broken.marker)
        rest = text[broken.marker_at + len(broken.marker) :]
        return said + self._reread(OUTSIDE, rest)

    def _raw(self) -> str:
        return self._begin + "".join(self._kept)

    def _end_calls(self, end: str, *, reads: bool = True) -> list[Said]:
        if self._holds == "text":  # over the bound
            self._count(len(end), is_text=True)
            return [Text(end)] if end else []
        text = "".join(self._kept)
        read = self._region.read
        calls = read(text, self._tools) if read is not None and reads else None
        raw = self._begin + text + end
        self._count(len(raw), is_text=calls is None)
        if calls is None:
            return [MalformedToolCall(raw), Text(raw)]
        return [self._use(call) for call in calls]

    def _use(self, call: Call) -> ToolUse:
        tool_call_id = f"tc-{self._n_calls}"
        self._n_calls += 1
        return ToolUse(tool_call_id=tool_call_id, name=call.name, input=call.arguments)


def _thought_of(regions: Sequence[Region], marker: str) -> Region:
    for region in regions:
        if region.holds == "thought" and marker in region.begins:
            return region
    raise ValueError("without a region of thoughts no answer starts in one")


M = TypeVar("M", Block, Said)


def merge(blocks: Iterable[M]) -> list[M]:
    """Join each run of text, and each run of thinking, into one block.

    Text that has its times stays in its pieces.
    """
    runs = groupby(blocks, type)
    return [block for _, run in runs for block in _joined(list(run))]


def _joined(run: list[M]) -> list[M]:
    texts = [block for block in run if isinstance(block, Text)]
    if any(text.span for text in texts):
        return run
    if texts:
        logprobs = chain.from_iterable([block.logprobs for block in texts])
        return [Text("".join([block.delta for block in texts]), tuple(logprobs))]
    thoughts = [block for block in run if isinstance(block, Thinking)]
    if thoughts:
        return [Thinking("".join([block.delta for block in thoughts]))]
    return run
