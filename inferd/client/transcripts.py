"""Transcripts: what was said and when, and the files that hold it.

Sources: SubRip as players read it; WebVTT, W3C Candidate Recommendation 4 April 2019,
section 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from inferd.terminal import text_of_json
from inferd.wire.responses import BlockFrame, TextDelta
from inferd.wire.speech import TranscriptionFacts

SHORTEST_MS: Final = 1
"""Milliseconds that a cue lasts at least: players pass over those that last none."""


class Segment(Struct, frozen=True, kw_only=True):
    """What was said from one moment to another; with ``word``, a word."""

    start_ms: int
    """From the sound's beginning."""
    end_ms: int
    text: str
    """As it came: joined, the texts are all that was said."""
    no_speech: float | UnsetType = UNSET
    """0 to 1, how likely nobody speaks there, where the model tells."""


class Transcript(Struct, frozen=True, kw_only=True):
    """All that was said."""

    segments: Sequence[Segment]
    facts: TranscriptionFacts | None = None
    """Where the daemon told them."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(each.text for each in self.segments).strip()


def segment_of(frame: object) -> Segment | None:
    """Read a frame of an answer; ``None`` for one without text that has a time."""
    match frame:
        case BlockFrame(
            block=TextDelta(
                delta=text, start_ms=int(start_ms), end_ms=int(end_ms), no_speech=doubt
            )
        ):
            return Segment(start_ms=start_ms, end_ms=end_ms, text=text, no_speech=doubt)
        case _:
            return None


# --- files ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A way to write a transcript: parts that can be written one after another."""

    head: str = ""
    cue: Callable[[int, Segment], str] = lambda _number, _segment: ""
    """Writes a segment that has text, and its number, from 1 on."""
    tail: Callable[[str, Transcript], str] = lambda _name, _transcript: ""
    """Writes what comes last: knows the recording's name, and all that was said."""

    def whole(self, name: str, transcript: Transcript) -> str:
        """Write all of it."""
        said = filter(has_text, transcript.segments)
        cues = (self.cue(number, each) for number, each in enumerate(said, 1))
        return "".join((self.head, *cues, self.tail(name, transcript)))


def has_text(segment: Segment) -> bool:
    """Tell whether anything is to be written of it."""
    return bool(segment.text.strip())


def clock(ms: int, point: str = ".") -> str:
    """Write a time as subtitles have it: ``01:02:03.004``; hours may have more digits."""
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _srt(number: int, segment: Segment) -> str:
    return f"{number}\n{_span(segment, ',')}\n{_line(segment.text)}\n\n"


def _vtt(_number: int, segment: Segment) -> str:
    return f"{_span(segment, '.')}\n{_escaped(_line(segment.text))}\n\n"


def _txt(_number: int, segment: Segment) -> str:
    return f"{_line(segment.text)}\n"


def _prose(_number: int, segment: Segment) -> str:
    return segment.text


def _json(name: str, transcript: Transcript) -> str:
    fields = {
        "file": text_of_json(name),
        "text": transcript.text,
        "segments": transcript.segments,
        **msgspec.to_builtins(transcript.facts or {}),
    }
    return msgspec.json.encode(fields).decode() + "\n"


def _span(segment: Segment, point: str) -> str:
    end_ms = max(segment.end_ms, segment.start_ms + SHORTEST_MS)
    return f"{clock(segment.start_ms, point)} --> {clock(end_ms, point)}"


def _line(text: str) -> str:
    """Make a line of it: an empty one would end a cue."""
    return " ".join(text.split())


def _escaped(text: str) -> str:
    """Write what WebVTT would read as a tag, an entity or an arrow."""
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return text


FORMATS: Final = {
    "txt": Format(cue=_txt),
    "srt": Format(cue=_srt),
    "vtt": Format(head="WEBVTT\n\n", cue=_vtt),
    "json": Format(tail=_json),
}
"""By the ends of files' names: a line, or a cue, for each segment; or one line of JSON."""
PROSE: Final = Format(cue=_prose, tail=lambda _name, _transcript: "\n")
"""Text in one line, for segments that are words."""
