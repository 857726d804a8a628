"""What the output stages give for a whole text, by the plainest means; and its splits."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from inferd.backend import MalformedToolCall, Markers, Text, Thinking, ToolUse
from inferd.output.blocks import Block, merge
from inferd.output.tool_calls import read_tool_call


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


def parsed(
    markers: Markers, text: str, *, place: str = "text", bound: int = 1024 * 1024
) -> tuple[list[Block], list[MalformedToolCall]]:
    """Give the merged blocks of a whole text, and the warnings."""
    pairs = {"thinking": markers.thinking, "call": markers.tool_call}
    places = {pair[0]: name for name, pair in pairs.items() if pair}
    ends = {name: [pair[1]] for name, pair in pairs.items() if pair}
    blocks: list[Block] = []
    warnings: list[MalformedToolCall] = []
    begin = ""
    while True:
        start, marker = first(ends.get(place, [*places]), text) or (len(text), "")
        body, text = text[:start], text[start + len(marker) :]
        call = read_tool_call(body) if marker and len(body) <= bound else None
        if place != "call":
            block = Thinking if place == "thinking" else Text
            blocks += [block(body)] if body else []
        elif call is None:
            blocks.append(Text(begin + body + marker))
            kept = body[:bound] if len(body) > bound else body + marker
            warnings.append(MalformedToolCall(begin + kept))
        else:
            n_calls = sum(isinstance(block, ToolUse) for block in blocks)
            name, value = call
            blocks.append(ToolUse(tool_call_id=f"tc-{n_calls}", name=name, input=value))
        if not marker:
            return merge(blocks), warnings
        begin, place = marker, places[marker] if place == "text" else "text"
