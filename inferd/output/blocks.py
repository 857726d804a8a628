"""Text to typed blocks: what a model says, thinks and calls."""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import chain, groupby
from typing import Final

from inferd.backend import MalformedToolCall, Markers, Text, Thinking, ToolUse
from inferd.output.phrases import PhraseFinder, PhraseTree
from inferd.output.tool_calls import read_tool_call

TOOL_CALL_MAX_CHARS: Final = 1024 * 1024
"""Characters between tool-call markers that are kept until the call is whole: room for a
large file as an argument; without a bound an answer could be kept to its end."""

Block = Text | Thinking | ToolUse


class _Place(Enum):
    """Where in the output the parser is."""

    TEXT = auto()
    THINKING = auto()
    TOOL_CALL = auto()
    LONG_TOOL_CALL = auto()  # past the bound: text, up to and with its end marker


_Ways = dict[_Place, dict[str, _Place]]


class BlockParser:
    """Turns text into blocks by the markers of a model, each as soon as it is certain.

    Only the markers are taken out: newlines and spaces beside them are the model's, and
    stay. A marker counts only where it means something: the end of a thought in plain
    text is text, and a tool call inside a thought is thought. A tool call is one block,
    given when it is whole; what is not plainly a call goes out as text, with its markers.

    Any split of the same text gives the same blocks, but for where deltas are cut.

    Bounds:
        Holds ``TOOL_CALL_MAX_CHARS`` and a marker, besides what ``warnings`` quote.
    """

    def __init__(self, markers: Markers, *, starts_thinking: bool = False) -> None:
        """Begin an answer.

        Args:
            markers: the model's; the two that open something differ.
            starts_thinking: the prompt ended inside a thought.

        Raises:
            ValueError: a marker is empty, or none could end the thought.
        """
        if starts_thinking and markers.thinking is None:
            raise ValueError("without thinking markers no answer starts in a thought")
        self.warnings: list[MalformedToolCall] = []
        """What was no tool call, in order, with its markers. Of one over the bound, what
        was kept when it was passed."""
        self.n_markers = 0
        """Markers taken out so far."""
        self._ways = _ways(markers)
        self._trees = {place: PhraseTree([*out]) for place, out in self._ways.items()}
        self._begin = ""
        self._kept: list[str] = []
        self._n_kept = 0
        self._n_calls = 0
        self._enter(_Place.THINKING if starts_thinking else _Place.TEXT)

    def feed(self, text: str) -> list[Block]:
        """Add text; give what is certain by now, perhaps nothing."""
        blocks = self._take(self._finder.feed(text))
        if self._finder.found is None:
            return blocks
        return merge(blocks + self._past_markers())

    def finish(self) -> list[Block]:
        """Say that no more text comes; give what was held back."""
        blocks = self._take(self._finder.finish())
        while self._finder.found is not None:
            blocks += self._past_markers()
            blocks += self._take(self._finder.finish())
        if self._place is _Place.TOOL_CALL:
            raw = self._begin + "".join(self._kept)
            blocks += self._refuse(raw, quoted=raw)
        return merge(blocks)

    def _enter(self, place: _Place) -> None:
        self._place = place
        self._finder = PhraseFinder(self._trees[place])

    def _take(self, text: str) -> list[Block]:
        """Give what text without markers is, where the parser is."""
        if not text:
            return []
        match self._place:
            case _Place.TEXT | _Place.LONG_TOOL_CALL:
                return [Text(text)]
            case _Place.THINKING:
                return [Thinking(text)]
            case _Place.TOOL_CALL:
                return self._keep(text)

    def _past_markers(self) -> list[Block]:
        """Give what follows the marker that was found, if any, and those after it."""
        blocks: list[Block] = []
        while (marker := self._finder.found) is not None:
            rest = self._finder.rest
            blocks += self._pass(marker)
            blocks += self._take(self._finder.feed(rest))
        return blocks

    def _pass(self, marker: str) -> list[Block]:
        place = self._place
        self.n_markers += 1
        self._enter(self._ways[place][marker])
        match place:
            case _Place.TEXT:
                self._begin, self._kept, self._n_kept = marker, [], 0
                return []
            case _Place.THINKING:
                return []
            case _Place.TOOL_CALL:
                return self._end_call(marker)
            case _Place.LONG_TOOL_CALL:
                return [Text(marker)]

    def _keep(self, text: str) -> list[Block]:
        self._kept.append(text)
        self._n_kept += len(text)
        if self._n_kept <= TOOL_CALL_MAX_CHARS:
            return []
        # The finder stays: it may hold the beginning of the end marker.
        self._place = _Place.LONG_TOOL_CALL
        raw = self._begin + "".join(self._kept)
        return self._refuse(raw, quoted=raw[: len(self._begin) + TOOL_CALL_MAX_CHARS])

    def _end_call(self, end: str) -> list[Block]:
        text = "".join(self._kept)
        call = read_tool_call(text)
        if call is None:
            raw = self._begin + text + end
            return self._refuse(raw, quoted=raw)
        name, arguments = call
        tool_call_id = f"tc-{self._n_calls}"
        self._n_calls += 1
        return [ToolUse(tool_call_id=tool_call_id, name=name, input=arguments)]

    def _refuse(self, raw: str, *, quoted: str) -> list[Block]:
        self.warnings.append(MalformedToolCall(quoted))
        return [Text(raw)]


def merge(blocks: Iterable[Block]) -> list[Block]:
    """Join each run of text, and each run of thinking, into one block."""
    runs = groupby(blocks, type)
    return [block for _, run in runs for block in _joined([*run])]


def _joined(run: list[Block]) -> list[Block]:
    delta = "".join([block.delta for block in run if not isinstance(block, ToolUse)])
    match run[0]:
        case Text():
            logprobs = [block.logprobs for block in run if isinstance(block, Text)]
            return [Text(delta, tuple(chain.from_iterable(logprobs)))]
        case Thinking():
            return [Thinking(delta)]
        case ToolUse():
            return run


def _ways(markers: Markers) -> _Ways:
    """Give, for each place, the markers that matter there and where each leads."""
    ways: _Ways = {place: {} for place in _Place}
    if markers.thinking is not None:
        begin, end = markers.thinking
        ways[_Place.TEXT][begin] = _Place.THINKING
        ways[_Place.THINKING][end] = _Place.TEXT
    if markers.tool_call is not None:
        begin, end = markers.tool_call
        ways[_Place.TEXT][begin] = _Place.TOOL_CALL
        ways[_Place.TOOL_CALL][end] = _Place.TEXT
        ways[_Place.LONG_TOOL_CALL][end] = _Place.TEXT
    return ways
