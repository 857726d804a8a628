"""What the output stages give for a whole text, by the plainest means; and its splits."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

from inferd.backend.events import MalformedToolCall, Text, Thinking, ToolUse
from inferd.backend.job import ToolSpec
from inferd.dialects.dialect import CallClassifier, ParsedCall, Region
from inferd.output.parser import Block, merge_deltas


def split(text: str) -> st.SearchStrategy[list[str]]:
    """Cut text into pieces, in order; some may be empty."""

    def cut(places: list[int]) -> list[str]:
        edges = [0, *sorted(places), len(text)]
        return [text[start:end] for start, end in pairwise(edges)]

    return st.lists(st.integers(0, len(text)), max_size=12).map(cut)


def first(phrases: Sequence[str], text: str) -> tuple[int, str] | None:
    """Give the place of the first phrase and, of those that start there, the longest."""
    for start in range(len(text)):
        here = [phrase for phrase in phrases if text.startswith(phrase, start)]
        if here:
            return start, max(here, key=len)
    return None


def n_open(phrases: Sequence[str], text: str) -> int:
    """Count the characters at the end that may still become a phrase."""
    sizes = [
        size
        for phrase in phrases
        for size in range(1, len(phrase))
        if text.endswith(phrase[:size])
    ]
    return max(sizes, default=0)


def settled(phrases: Sequence[str], text: str) -> tuple[str, str | None]:
    """Give what is certain when so much text has come: the text to send, the phrase."""
    certain = len(text) - n_open(phrases, text)
    match first(phrases, text):
        case (start, phrase) if start < certain:
            return text[:start], phrase
        case _:
            return text[:certain], None


def whole(phrases: Sequence[str], text: str) -> tuple[str, str | None]:
    """Give what is certain when all text has come."""
    match first(phrases, text):
        case (start, phrase):
            return text[:start], phrase
        case _:
            return text, None


def read_calls(
    text: str, _tools: Sequence[ToolSpec] = ()
) -> Sequence[ParsedCall] | None:
    """Read what a small family writes: ``f{"a": 1}``, a call on each line, or ``-``."""
    lines = [line for line in text.split("\n") if line]
    found = [re.fullmatch(r"(\w+)({.*})", line) for line in lines if lines != ["-"]]
    try:
        calls = [ParsedCall(each[1], json.loads(each[2])) for each in found if each]
    except ValueError:
        return None
    return calls if lines and all(found) else None


def states_of_json(text: str) -> list[str]:
    """Tell for each beginning of a text where JSON is by then."""
    states = [state := "outside"]
    depth = 0
    for char in text:
        match state:
            case "string" if char < " ":
                state = "broken"
            case "string":
                state = {"\\": "escaped", '"': "inside"}.get(char, "string")
            case "escaped":
                state = "string"
            case "inside" if char not in '"{}[]:,.+-0123456789truefalsnE \n':
                state = "broken"
            case "inside" if char == '"':
                state = "string"
            case "inside" | "outside":
                depth += (char in "{[") - (char in "}]" and depth > 0)
                state = "inside" if depth else "outside"
            case _:
                pass
        states.append(state)
    return states


def end_of_json(ends: Sequence[str], text: str, bound: int) -> tuple[int, str] | None:
    """Find the marker that ends calls in JSON: the first that stands in no string.

    Where the JSON turns out to be broken, it is the first marker in that value, unless
    more than the bound stands before the place that tells.
    """
    states = states_of_json(text)
    passed: list[tuple[int, str]] = []
    start = 0
    while start < len(text):
        here = max([end for end in ends if text.startswith(end, start)], default="")
        if here and states[start] not in ("string", "escaped"):
            return start, here
        passed += [(start, here)] if here else []
        end = start + max(len(here), 1)
        for at in range(start + 1, end + 1):
            if states[at] == "broken" and passed and at <= bound:
                return passed[0]
            if states[at] in ("broken", "outside"):
                passed = []
        start = end
    return None


def is_call(judge: CallClassifier, text: str) -> bool:
    """Tell whether a text is judged a call as soon as it is judged at all."""
    verdicts = (judge(text[:size], ()) for size in range(len(text) + 1))
    return next((each for each in verdicts if each is not None), False)


OUTSIDE: Final = Region(holds="text", begins=())


class Parsed:
    """An answer, read from left to right with the whole of it in view."""

    def __init__(self, regions: Sequence[Region], text: str, **options: int) -> None:
        """Read it.

        Args:
            regions: the dialect's.
            text: all of it.
            options: ``opens_thought``, ``was_cut``, and a call's ``bound``.
        """
        self.blocks: list[Block] = []
        self.warnings: list[MalformedToolCall] = []
        self._regions = regions
        self._was_cut = options.get("was_cut", 0)
        self._bound = options.get("bound", 1024 * 1024)
        self._is_fresh = True
        thoughts = [region for region in regions if region.holds == "thought"]
        self._go(thoughts[0] if options.get("opens_thought") else OUTSIDE, text)

    def _go(self, place: Region, text: str) -> None:
        begin, end = "", "begins"
        while end:
            start, end, target = self._next(place, text)
            if place.string_tracker:
                found = end_of_json([*filter(None, place.ends)], text, self._bound)
                start, end = found or (len(text), "")
            body, text = text[:start], text[start + len(end) :]
            if place.keeps_begin:
                begin, body = "", begin + body
            self._add(place, begin, body, end)
            if target.classify and not is_call(target.classify, end + text):
                self._is_fresh, end, text = False, "text", end + text
                continue
            begin, place = end, target
            if target.keeps_begin and target.holds == "text" and begin.strip():
                self._is_fresh = False
            if "" in target.ends:
                kept = (end, "") if target.keeps_begin else ("", end)
                self._add(target, kept[1], kept[0], "")
                place = OUTSIDE

    def _next(self, place: Region, text: str) -> tuple[int, str, Region]:
        """Give the next marker that counts, with its place and where it leads."""
        for start in range(len(text)):
            is_fresh = self._is_fresh and not text[:start].strip()
            ways = [(end, OUTSIDE) for end in place.ends if end]
            if place.holds == "text":
                ways += [
                    (begin, region)
                    for region in self._regions
                    for begin in region.begins
                    if is_fresh or not region.only_first
                ]
            here = [way for way in ways if text.startswith(way[0], start)]
            if here:
                return start, *max(here, key=lambda way: len(way[0]))
        return len(text), "", OUTSIDE

    def _add(self, place: Region, begin: str, body: str, end: str) -> None:
        match place.holds:
            case "calls":
                self._is_fresh = False
                self._add_calls(place, begin, body, end)
            case "text" if body:
                self._is_fresh = self._is_fresh and not body.strip()
                self.blocks.append(Text(body))
            case "thought" if body:
                self.blocks.append(Thinking(body))
        self.blocks = merge_deltas(self.blocks)

    def _add_calls(self, place: Region, begin: str, body: str, end: str) -> None:
        assert place.read is not None
        is_long = len(body) > self._bound
        is_half = self._was_cut and place.ends and not end and "" not in place.ends
        calls = None if is_long or is_half else place.read(body, ())
        if calls is None:
            quoted = body[: self._bound] if is_long else body + end
            self.warnings.append(MalformedToolCall(begin + quoted))
            self.blocks.append(Text(begin + body + end))
        for name, value in calls or ():
            n_calls = sum(isinstance(block, ToolUse) for block in self.blocks)
            call_id = f"tc-{n_calls}"
            self.blocks.append(ToolUse(tool_call_id=call_id, name=name, input=value))
